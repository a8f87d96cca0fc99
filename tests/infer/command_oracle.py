#!/usr/bin/env python3
"""`longhaul infer` from outside: settings of a checkpoint, result files, sampling, the chat in a terminal, Ctrl-C.

Usage: command_oracle.py PROGRAM files|terminal
"""

import json
import os
import pathlib
import pty
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "system"))
import tiny  # noqa: E402

from oracle_models import add_adapter  # noqa: E402

QUESTIONS = ["the cat sat on a mat", "two fish in the old town", "it rained near seven hills"]
FOREVER = ("--max_new_tokens", "100000", "--max_model_len", "200000")


def run(program, folder, *words, code=0, talk=""):
    done = subprocess.run([program, "infer", *map(str, words)], cwd=folder, input=talk, text=True, capture_output=True)
    assert done.returncode == code, f"{words}: exit {done.returncode}, expected {code}\n{done.stdout}{done.stderr}"
    return done


def lines_of(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def write_rows(folder, questions=QUESTIONS):
    (folder / "rows.jsonl").write_text("".join(json.dumps({"query": text, "response": "x"}) + "\n" for text in questions))
    return "rows.jsonl"


def make_endless(source, target):
    """A copy of a tied model that never ends an answer: its end token has logit 0."""
    model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32)
    with torch.no_grad():
        model.get_input_embeddings().weight[model.config.eos_token_id] = 0
    model.save_pretrained(target)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(source / name, target)


def transformers_answer(model_folder, messages, tokens):
    tokenizer = AutoTokenizer.from_pretrained(model_folder)
    model = AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float32).eval()
    ids = torch.tensor([tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)])
    with torch.no_grad():
        out = model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=tokens, do_sample=False)
    return tokenizer.decode(out[0, ids.shape[1]:], skip_special_tokens=True)


def check_checkpoint_settings(program, scratch):
    """Model, template, system, type and length come from args.json unless given."""
    model, adapter, elsewhere = scratch / "model", scratch / "run" / "checkpoint-3", scratch / "elsewhere"
    elsewhere.mkdir()
    add_adapter(AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32), adapter)
    args = {"model": str(model), "template": "qwen", "system": "be kind", "torch_dtype": "float32", "max_length": 60}
    (adapter / "args.json").write_text(json.dumps(args))
    rows = write_rows(elsewhere)
    done = run(program, elsewhere, "--adapters", adapter, "--val_dataset", rows, "--max_new_tokens", 5)
    assert "template: qwen (from args.json)\n" in done.stdout and f"adapter: {adapter}\n" in done.stdout, done.stdout
    results = list((adapter / "infer_result").glob("*.jsonl"))
    assert len(results) == 1 and str(results[0]) in done.stdout, done.stdout
    lines = lines_of(results[0])
    assert [line["messages"][0] for line in lines] == [{"role": "system", "content": "be kind"}] * 3
    done = run(program, elsewhere, "--adapters", adapter, "--val_dataset", rows, "--max_new_tokens", 5, "--template", "chatml",
               "--system", "be short", "--result_path", "own.jsonl")
    assert "template: chatml (from --template)\n" in done.stdout, done.stdout
    assert lines_of(elsewhere / "own.jsonl")[0]["messages"][0]["content"] == "be short"
    write_rows(elsewhere, [QUESTIONS[0], " ".join(QUESTIONS * 8)])
    done = run(program, elsewhere, "--adapters", adapter, "--val_dataset", rows, "--result_path", "no.jsonl", code=2)
    assert "rows.jsonl:2: the prompt is longer than the maximum length" in done.stderr, done.stderr
    assert "at most 60" in done.stderr and "--max_length" in done.stderr and not done.stdout, done.stderr
    assert not (elsewhere / "no.jsonl").exists()
    run(program, elsewhere, "--adapters", adapter, "--val_dataset", rows, "--max_length", 400, "--max_new_tokens", 2)
    # The base model has moved: the adapter's own file names a folder that is gone, args.json is mended.
    model.rename(scratch / "moved")
    done = run(program, elsewhere, "--adapters", adapter, "--val_dataset", rows, code=2)
    assert "Name it with --model" in done.stderr, done.stderr
    (adapter / "args.json").write_text(json.dumps({**args, "model": str(scratch / "moved")}))
    run(program, elsewhere, "--adapters", adapter, "--val_dataset", rows, "--max_length", 400, "--max_new_tokens", 2)
    (scratch / "moved").rename(model)
    done = run(program, elsewhere, "--adapters", adapter.parent, "--val_dataset", rows, code=2)
    assert f"Did you mean {adapter}?" in done.stderr, done.stderr


def check_plain_model(program, scratch):
    """Without a checkpoint the answers go where sft's runs go."""
    here = scratch / "here"
    here.mkdir()
    rows = write_rows(here)
    done = run(program, here, "--model", scratch / "model", "--val_dataset", rows, "--max_new_tokens", 6)
    results = list((here / "output" / "model" / "infer_result").glob("*.jsonl"))
    assert len(results) == 1 and f"3 answers in {results[0].relative_to(here)}" in done.stdout, done.stdout
    want = transformers_answer(scratch / "model", [{"role": "user", "content": QUESTIONS[1]}], 6)
    assert lines_of(results[0])[1]["response"] == want


def check_sampling(program, scratch):
    """Draws depend on seed and row; the other rows of a batch change nothing."""
    here = scratch / "sampling"
    here.mkdir()

    def sample(name, rows, *words):
        write_rows(here, rows)
        run(program, here, "--model", scratch / "model", "--val_dataset", "rows.jsonl", "--result_path", name,
            "--max_new_tokens", 12, "--temperature", 1.3, "--top_p", 0.9, *words)
        return [line["response"] for line in lines_of(here / name)]

    first = sample("a.jsonl", QUESTIONS)
    assert sample("b.jsonl", QUESTIONS) == first
    assert sample("c.jsonl", [QUESTIONS[2], QUESTIONS[1]])[1] == first[1]
    assert sample("d.jsonl", QUESTIONS, "--seed", 7) != first
    assert sample("e.jsonl", [QUESTIONS[0]] * 2)[0] != sample("e.jsonl", [QUESTIONS[0]] * 2)[1]


def check_long_chat(program, scratch):
    """A conversation beyond the maximum length is refused, or goes on without its first tokens."""
    words = ("--model", scratch / "model", "--max_new_tokens", 4, "--max_length", 40)
    talk = "\n".join([QUESTIONS[0], " ".join(QUESTIONS * 4), QUESTIONS[1]]) + "\n"
    done = run(program, scratch, *words, talk=talk)
    assert "longer than the maximum length" in done.stderr and "left out" not in done.stdout, done.stdout + done.stderr
    done = run(program, scratch, *words, "--truncation_strategy", "left", talk=talk)
    assert not done.stderr and done.stdout.count("tokens were left out)") == 2, done.stdout + done.stderr


class Terminal:
    """A program in a terminal of its own."""

    def __init__(self, program, folder, *words):
        self.text = ""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(folder)
            os.execv(program, [program, "infer", *map(str, words)])

    def wait_for(self, text, seconds=60):
        end = time.monotonic() + seconds
        while text not in self.text:
            assert time.monotonic() < end, f"no {text!r} in:\n{self.text}"
            if select.select([self.fd], [], [], 0.2)[0]:
                try:
                    self.text += os.read(self.fd, 65536).decode("utf-8", "replace")
                except OSError:
                    raise AssertionError(f"ended without {text!r}:\n{self.text}") from None
        before, _, self.text = self.text.partition(text)
        return before

    def say(self, line):
        os.write(self.fd, line.encode())

    def exit_code(self):
        while True:
            try:
                if not os.read(self.fd, 65536):
                    break
            except OSError:
                break
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def check_terminal(program, scratch):
    chat = Terminal(program, scratch, "--model", scratch / "model", "--max_new_tokens", 6, "--system", "be kind")
    chat.wait_for("<<< ")
    chat.say(QUESTIONS[0] + "\n")
    system = {"role": "system", "content": "be kind"}
    talk = [system, {"role": "user", "content": QUESTIONS[0]}]
    first = transformers_answer(scratch / "model", talk, 6)
    assert first.split() == chat.wait_for("(stopped").partition(QUESTIONS[0])[2].split()
    # The second question is asked with the first one and its answer.
    chat.wait_for("<<< ")
    chat.say(QUESTIONS[1] + "\n")
    talk += [{"role": "assistant", "content": first}, {"role": "user", "content": QUESTIONS[1]}]
    want = transformers_answer(scratch / "model", talk, 6)
    assert want.split() == chat.wait_for("(stopped").partition(QUESTIONS[1])[2].split()
    chat.say("reset-system\n")
    chat.wait_for("system text")
    chat.say("be short\n")
    chat.wait_for("conversation cleared)")
    chat.wait_for("<<< ")
    chat.say(QUESTIONS[2] + "\n")
    talk = [{"role": "system", "content": "be short"}, {"role": "user", "content": QUESTIONS[2]}]
    want = transformers_answer(scratch / "model", talk, 6)
    assert want.split() == chat.wait_for("(stopped").partition(QUESTIONS[2])[2].split()
    chat.wait_for("<<< ")
    chat.say("\x04")  # the end of the input
    assert chat.exit_code() == 0
    for word in ("exit", "quit"):
        chat = Terminal(program, scratch, "--model", scratch / "model")
        chat.wait_for("<<< ")
        chat.say(word + "\n")
        assert chat.exit_code() == 0


def check_ctrl_c(program, scratch):
    """Ctrl-C ends an answer, at the prompt the program."""
    chat = Terminal(program, scratch, "--model", scratch / "endless", *FOREVER)
    chat.wait_for("<<< ")
    chat.say(QUESTIONS[0] + "\n")
    chat.wait_for(QUESTIONS[0])
    chat.wait_for(" ")
    time.sleep(0.2)
    chat.say("\x03")
    chat.wait_for("(interrupted)", 20)
    chat.wait_for("<<< ")
    chat.say("\x03")
    assert chat.exit_code() == 130


def check_interrupted_batch(program, scratch):
    """Whole lines only, and the exit code of the signal."""
    here = scratch / "interrupted"
    here.mkdir()
    rows = write_rows(here)
    for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
        process = subprocess.Popen([program, "infer", "--model", scratch / "endless", "--val_dataset", rows, "--result_path",
                                    "out.jsonl", *FOREVER, "--stream", "true"], cwd=here, stdout=subprocess.PIPE)
        shown = b""
        while b"rows.jsonl:1] " not in shown:
            shown += os.read(process.stdout.fileno(), 4096)
        process.send_signal(number)
        out, _ = process.communicate(timeout=30)
        assert process.returncode == code, (process.returncode, out)
        assert lines_of(here / "out.jsonl") == []


CHECKS = {"files": (check_plain_model, check_checkpoint_settings, check_sampling, check_long_chat),
          "terminal": (check_terminal, check_ctrl_c, check_interrupted_batch)}


def main():
    program = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        scratch = pathlib.Path(folder).resolve()
        tiny.write_model(scratch / "model", "smol")
        make_endless(scratch / "model", scratch / "endless")
        for check in CHECKS[sys.argv[2]]:
            check(program, scratch)
            print(check.__name__, "passes")


if __name__ == "__main__":
    main()
