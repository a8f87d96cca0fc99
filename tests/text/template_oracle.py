"""Compares the built-in templates with transformers' apply_chat_template on the families' published templates.

Files are named after the built-in template that must be chosen for them (`none` for none). Checked per file: the
template chosen by text_tool; the text of prompts and of whole chats; ids and labels of the training sample.
template_oracle.py TEXT_TOOL FOLDER_OF_TEMPLATES FOLDER_OF_TOKENIZERS [--without-ids]
"""

import json
import pathlib
import random
import subprocess
import sys
import tempfile

from transformers import PreTrainedTokenizerFast

CLOSE = {"llama3": "<|eot_id|>", "llama3_1": "<|eot_id|>"}
OPEN = {"llama3": "<|start_header_id|>assistant<|end_header_id|>\n\n", "llama3_1": "<|start_header_id|>assistant<|end_header_id|>\n\n"}
VOCABULARY = {"llama3": "llama3", "llama3_1": "llama3", "smollm2": "smollm2"}
THINK = "<think>\n\n</think>\n\n"


def conversations():
    """Chats whose messages have no outer white space and no think block."""
    rng = random.Random(11)
    texts = ["Hi", "What is 2 + 2?\nNow!", "größer ☃ & \"q\" 中文。", "def f(x):\n    return x\n\n\n# end", "1234567 ½", "x", "it's <b>bold</b>", "🙂👩‍👩‍👧", "<|im_end|> inside"]
    for rounds in (1, 2, 3, 5):
        for system in (None, "You are terse.", "Two\n\nlines"):
            for _ in range(3):
                messages = [] if system is None else [{"role": "system", "content": system}]
                for _ in range(rounds):
                    messages.append({"role": "user", "content": rng.choice(texts)})
                    messages.append({"role": "assistant", "content": rng.choice(texts)})
                yield messages


def run(tool, *arguments, rows=()):
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    result = subprocess.run([tool, *arguments], input=lines, capture_output=True, text=True, check=False)
    return result.returncode, result.stdout, result.stderr


def run_rows(tool, *arguments, rows):
    code, out, error = run(tool, *arguments, rows=rows)
    assert code == 0, error
    return [json.loads(line) for line in out.split("\n") if line]


class Checks:
    def __init__(self):
        self.problems = []
        self.count = 0

    def equal(self, what, mine, expected):
        self.count += 1
        if mine != expected:
            self.problems.append(f"{what}\n  ours     {mine!r}\n  expected {expected!r}")


def model_folder(folder, source, style, bos):
    """A model folder as far as templates go, in one of the ways that a template is stored."""
    config = {"bos_token": {"content": bos, "lstrip": False} if style == "list" else bos, "eos_token": "<|end|>"}
    if style == "file":
        (folder / "chat_template.jinja").write_text(source, encoding="utf-8")
        config["chat_template"] = "{{ 'the file wins' }}"
    elif style == "list":
        config["chat_template"] = [{"name": "tool_use", "template": "x"}, {"name": "default", "template": source}]
    else:
        config["chat_template"] = source
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")


def check_choice(tool, checks, path, name):
    for style in ("string", "list", "file"):
        with tempfile.TemporaryDirectory() as temporary:
            folder = pathlib.Path(temporary)
            model_folder(folder, path.read_text(encoding="utf-8"), style, "<|begin_of_text|>")
            code, out, error = run(tool, "choose", temporary)
            if name == "none":
                checks.equal(f"{path.name} is refused", (code, "chatml, qwen, qwen2_5" in error, out), (2, True, ""))
            else:
                checks.equal(f"{path.name} choice ({style}) {error}", (out.split("\n")[0], code), (name, 0))


def check_rendering(tool, checks, path, name, tokenizers, with_ids):
    source = path.read_text(encoding="utf-8")
    vocabulary = tokenizers / VOCABULARY.get(name, "qwen")
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(vocabulary / "tokenizer.json"), bos_token="<|begin_of_text|>" if name in CLOSE else None)

    def apply(messages, prompt):
        return tokenizer.apply_chat_template(messages, chat_template=source, tokenize=False, add_generation_prompt=prompt)

    always_prompts = path.name == "llama3-first.jinja"
    chats = list(conversations())
    rows = [{"messages": chat} for chat in chats]
    rendered = run_rows(tool, "render", name, rows=rows)
    prompts = run_rows(tool, "render", name, rows=[{"messages": chat[:-1]} for chat in chats])
    encoded = run_rows(tool, "encode", name, str(vocabulary), rows=rows) if with_ids else [None] * len(rows)
    for chat, mine, prompt, sample in zip(chats, rendered, prompts, encoded, strict=True):
        whole = apply(chat, False)
        if always_prompts:
            whole = whole.removesuffix(OPEN[name])
        checks.equal(f"{path.name} prompt", prompt["prompt"], apply(chat[:-1], True))
        checks.equal(f"{path.name} whole", mine["reference"], whole)
        text = "".join(piece for piece, _ in mine["pieces"])
        if name == "qwen3":
            # The training text has the think block before every answer, the family's own only before the last.
            checks.equal(f"{path.name} think blocks", text.count(THINK), len(chat) // 2)
            checks.equal(f"{path.name} without them", text.replace(THINK, ""), whole.replace(THINK, ""))
            checks.equal(f"{path.name} untrained think", [p for p, loss in mine["pieces"] if loss and THINK in p], [])
        else:
            checks.equal(f"{path.name} training text", text, whole)
        answers = [m["content"] + CLOSE.get(name, "<|im_end|>\n") for m in chat if m["role"] == "assistant"]
        checks.equal(f"{path.name} targets", [p for p, loss in mine["pieces"] if loss], answers)
        if not with_ids:
            continue
        # Ids: every piece tokenised by itself by the reference.
        ids, labels = [], []
        for piece, loss in mine["pieces"]:
            part = tokenizer(piece, add_special_tokens=False)["input_ids"]
            ids += part
            labels += part if loss else [-100] * len(part)
        checks.equal(f"{path.name} ids", sample, {"input_ids": ids, "labels": labels})


def main():
    tool, templates, tokenizers = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
    with_ids = "--without-ids" not in sys.argv[4:]
    checks = Checks()
    paths = sorted(templates.glob("*.jinja"))
    assert paths, f"no templates in {templates}"
    for path in paths:
        name = path.stem.split("-")[0]
        check_choice(tool, checks, path, name)
        if name != "none":
            check_rendering(tool, checks, path, name, tokenizers, with_ids)
    # The same text as the family's own training rows get when nothing is special about them.
    check_rendering(tool, checks, templates / "chatml-qwen3_2507.jinja", "qwen3_nothinking", tokenizers, with_ids)
    print(f"{checks.count} comparisons over {len(paths)} templates")
    for problem in checks.problems[:20]:
        print("DIFFERS", problem)
    sys.exit(1 if checks.problems else 0)


if __name__ == "__main__":
    main()
