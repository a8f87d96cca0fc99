#!/usr/bin/env python3
"""Greedy answers with the cache, with and without a PEFT adapter, against transformers' generate: the same tokens.

Usage: generate_oracle.py GENERATE_TOOL PROGRAM
"""

import json
import pathlib
import subprocess
import sys
import tempfile

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from oracle_models import CONFIGS, DEMO_MODEL, add_adapter, make_model

TOKENS = 20
QUESTIONS = ["What is the capital of France?", "Write a short poem about the sea.", "Explain how a diesel engine works.",
             "Übersetze ins Englische: Guten Morgen, wie geht es dir? 🌍", "Name three prime numbers."]


def ours(tool, model, adapter, prompts):
    lines = "".join(json.dumps(prompt) + "\n" for prompt in prompts)
    done = subprocess.run([tool, model, adapter, str(TOKENS)], input=lines, text=True, capture_output=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def theirs(model, prompt, eos):
    ids = torch.tensor([prompt])
    with torch.no_grad():
        out = model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=TOKENS, do_sample=False,
                             eos_token_id=eos, pad_token_id=eos)
    answer = out[0, len(prompt):].tolist()
    return answer[:answer.index(eos)] if eos in answer else answer


def compare(what, got, want):
    for row, (one, other) in enumerate(zip(got, want, strict=True)):
        assert one == other, f"{what}, prompt {row}:\n  got      {one}\n  expected {other}"
    print(f"{what}: {len(want)} answers equal")


def demo_prompts(tokenizer):
    return [tokenizer.apply_chat_template([{"role": "user", "content": text}], add_generation_prompt=True, return_dict=False)
            for text in QUESTIONS]


def check_demo(tool, program, scratch):
    tokenizer = AutoTokenizer.from_pretrained(DEMO_MODEL)
    prompts = demo_prompts(tokenizer)
    model = AutoModelForCausalLM.from_pretrained(DEMO_MODEL, dtype=torch.float32).eval()
    want = [theirs(model, prompt, 2) for prompt in prompts]
    compare("demo model", ours(tool, DEMO_MODEL, "-", prompts), want)
    check_batch(program, ["--model", DEMO_MODEL], scratch, tokenizer, want)
    check_chat(program, tokenizer, want)
    tuned = add_adapter(model, scratch / "adapter", scale=0.03)
    tuned_want = [theirs(tuned, prompt, 2) for prompt in prompts]
    assert tuned_want != want, "the adapter changes nothing: this test would prove nothing"
    compare("demo model with an adapter", ours(tool, DEMO_MODEL, scratch / "adapter", prompts), tuned_want)
    check_batch(program, ["--model", DEMO_MODEL, "--adapters", scratch / "adapter"], scratch, tokenizer, tuned_want)


def check_batch(program, model, scratch, tokenizer, want):
    """`longhaul infer` over a file: rows of three formats, template chosen by the program."""
    rows = [{"query": QUESTIONS[0], "response": "Paris"}, {"messages": [{"role": "user", "content": QUESTIONS[1]}]},
            {"conversations": [{"from": "human", "value": QUESTIONS[2]}, {"from": "gpt", "value": "label"}]},
            {"instruction": QUESTIONS[3], "output": "Good morning"}, {"query": QUESTIONS[4]}]
    (scratch / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    result = scratch / "results" / "out.jsonl"
    subprocess.run([program, "infer", *model, "--val_dataset", scratch / "rows.jsonl", "--result_path", result,
                    "--max_new_tokens", str(TOKENS)], check=True, stdout=subprocess.DEVNULL)
    lines = [json.loads(line) for line in result.read_text(encoding="utf-8").splitlines()]
    texts = [tokenizer.decode(ids, skip_special_tokens=True) for ids in want]
    compare("longhaul infer, texts", [line["response"] for line in lines], texts)
    assert [line["labels"] for line in lines] == ["Paris", None, "label", "Good morning", None]
    for line, question in zip(lines, QUESTIONS, strict=True):
        assert [message["role"] for message in line["messages"]] == ["user", "assistant"]
        assert line["messages"][0]["content"] == question and line["messages"][1]["content"] == line["response"]


def check_chat(program, tokenizer, want):
    """Two questions with `clear` between them: the second answer knows nothing of the first question."""
    talk = f"{QUESTIONS[0]}\nclear\n{QUESTIONS[4]}\nexit\n"
    done = subprocess.run([program, "infer", "--model", DEMO_MODEL, "--max_new_tokens", str(TOKENS)], input=talk, text=True,
                          capture_output=True, check=True)
    for row in (0, 4):
        assert tokenizer.decode(want[row], skip_special_tokens=True) in done.stdout, done.stdout
    print("longhaul infer, chat: both answers equal")


def check_tiny(tool, scratch):
    torch.manual_seed(3)
    prompts = [torch.randint(0, 300, (length,)).tolist() for length in (1, 7, 23, 130)]
    for name in CONFIGS:
        model = make_model(name, scratch / name).eval()
        want = [theirs(model, prompt, 319) for prompt in prompts]
        compare(name, ours(tool, scratch / name, "-", prompts), want)
        tuned = add_adapter(model, scratch / f"{name}-adapter", use_rslora=name == "qwen3")
        want = [theirs(tuned, prompt, 319) for prompt in prompts]
        compare(f"{name} with an adapter", ours(tool, scratch / name, scratch / f"{name}-adapter", prompts), want)


def main():
    tool, program = sys.argv[1:3]
    if not (DEMO_MODEL / "model.safetensors").exists():
        sys.exit(f"{DEMO_MODEL} is missing: run ./quickstart or ./run-tests once")
    with tempfile.TemporaryDirectory() as folder:
        scratch = pathlib.Path(folder)
        check_tiny(tool, scratch)
        check_demo(tool, program, scratch)


if __name__ == "__main__":
    main()
