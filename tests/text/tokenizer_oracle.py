"""Compares text_tool's ids and decoded text with the PyPI package `tokenizers`, on fixed and random texts.

tokenizer_oracle.py TEXT_TOOL FOLDER_OF_TOKENIZERS [--texts N] [--seed S] [--only NAME]
"""

import argparse
import json
import pathlib
import random
import subprocess
import sys

from tokenizers import Tokenizer

FIXED = [
    "", " ", "\n", "\r\n", "\t", "\0", "a\0b", "\x01\x02\x7f\x1b[0m", "\ufeffBOM", "\u200b\u200d\u180e x\u180e",
    "Hello world", "  leading", "trailing  ", "a  b   c    d", "\n\n\n", "a\n\nb\r\n\r\nc\r\r", " \n \t\n  x", "\u00a0x \u00a0 y\u3000z",
    "\x85a\x85\x85 b", "\u2028\u2029 \u2028", "x\u1680y\u202fz\u205f!", "\v\fq \v\f", "\x1c\x1d\x1e\x1f",
    "I'm you're he'LL we'VE it'S can't o'clock 'tis ''s '\u017f 'S don\u2019t 'Ll 'rE x'd'd'",
    "1234567890 12 3 4567 \u0663\u0664\u0665 \u0967\u0968 \u2155\u00bd\u00b2\u2167 \U0001d7ce\U0001d7cf 1.5e-10 0x1F",
    "\u4eca\u5929\u5929\u6c14\u5f88\u597d\uff0c\u6211\u4eec\u53bb\u516c\u56ed\u3002\u65e5\u672c\u8a9e\u306e\u30c6\u30ad\u30b9\u30c8 \ud55c\uad6d\uc5b4 \u1112\u1161\u11ab \uac00\u11a7\u11a8 \ufa0e\u9fff\U00020000",
    "\u0627\u0644\u0644\u063a\u0629 \u0627\u0644\u0639\u0631\u0628\u064a\u0651\u0629\u064b \u0647\u0630\u0627 \u0646\u0635\u064c \u05e9\u05c1\u05dc\u05d5\u05b9\u05dd",
    "\u0939\u093f\u0928\u094d\u0926\u0940 \u0915\u094d\u0937 \u0c3c \u0e20\u0e32\u0e29\u0e32\u0e44\u0e17\u0e22\u0e01\u0e33\u0e25\u0e31\u0e07\u0e14\u0e35 \u0f7d\u0f71\u0f72",
    "\U0001f469\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466\U0001f44d\U0001f3fd \U0001f1e9\U0001f1ea \u2702\ufe0f \U0001fae8\U0001fadc",
    "e\u0301 \u00e9 A\u030a \u212b \u2126 \u1e9b\u0323 q\u0307\u0323 q\u0323\u0307 \u0344 \u0958 \ufb1d \U0001d15e a\u0300\u0301\u0302\u0303" + "\u0301" * 40,
    "\U00011935\U00011930 \U00011938 \u0898\u0301 \u1acf\u0323 \U0001e4ec\u0301 \U00010efd\u0323",
    "\u0378\U0010ffff\ue000\ufffe \u2427 \u0897 \U00010d40\U00010d41 \U00011de0 \U00016ff4 \U0001ccf0 \ua7dc\ua7da \U00032000",
    "def f(x):\n    return {\"a\": [1, 2]}  # done\n\n\n\tif x:\n\t\tpass\r\n",
    "https://example.org/a_b?c=d&e=%20#frag user@mail.example \\frac{1}{2} <b>bold</b> $x^2$ ~/.ssh/id_rsa",
    "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n", "<|endoftext|>", "<|im_start|", "<|im_end|><|im_end|> <|im_end|>x",
    "<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nhi<|begin_of_text|>", "<think>\n\n</think>\n\nyes <tool_call>x</tool_call>",
    "<\uff5cbegin\u2581of\u2581sentence\uff5c>hi<\uff5cend\u2581of\u2581sentence\uff5c><\uff5cUser\uff5c>a",
    "a <l>b <r> c \n<lr>\t d <w> e<w>f <w>.<w> <w2> g<w2>\u00b2<w2>\u0301 \u00e9! e\u0301! e\u0301? \u00e9? <r>x <r> <r <r>  <r>",
    "word words sword word, _word word_ word\u200d \u00f1n\u0303 <l><l> <l>\u180e<l>\u3000<r>\u2003\n<r><lr> <lr>", "<r>   <l>", "  <lr>  <l>  <w2>  ",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "abcd" * 2000, "\u4e2d\u6587" * 700, " " * 1500 + "x" + "\n" * 900, "=" * 300 + "-" * 77, "\U0001f600" * 200, "0123456789" * 150,
    " quick-made\u4e2d\u6587\u6d4b\u8bd5 zqxj 777 77 7777\n\n\n\n\n\n\nx", "a1a22a333Aa\u0391\u03b1bAbB--bb..bbxB", "^start\n12\nx.\nabb\n..\u044f\u044fX]-\\a",
    "Ab'sCD'LL efG'ReH\u01c5\u02b0\u0308 camelCaseHTTPServer'tX /path/to\n//x\r\n",
]

ALPHABETS = [
    [chr(c) for c in range(0x20, 0x7F)],
    [chr(c) for c in range(0x41, 0x5B)] + [chr(c) for c in range(0x61, 0x7B)],
    list("0123456789"),
    [" ", " ", " ", "\n", "\n", "\r\n", "\r", "\t", "\u00a0", "\u3000", "\u2003", "\v", "\f", "\x85", "\u2028", "\u180e", "\u200b", "\x1c"],
    ["'s", "'T", "'re", "'VE", "'m", "'ll", "'D", "'\u017f", "'", "\u2019s"],
    [chr(c) for c in (*range(0xC0, 0x180), *range(0x370, 0x400), *range(0x400, 0x460))],
    [chr(c) for c in range(0x4E00, 0x4F00)] + [chr(c) for c in range(0x3040, 0x3100)] + [chr(c) for c in range(0xAC00, 0xAC80)],
    [chr(c) for c in range(0x600, 0x700)],
    [chr(c) for c in range(0x900, 0x980)] + [chr(c) for c in range(0xE00, 0xE60)],
    [chr(c) for c in (*range(0x300, 0x370), *range(0x1AB0, 0x1AD0), *range(0x1100, 0x1200))],
    [chr(c) for c in (*range(0x1F600, 0x1F650), 0x200D, 0xFE0F, *range(0x1F3FB, 0x1F400), *range(0x1F1E6, 0x1F200))],
    [chr(c) for c in range(0, 0x20)] + ["\x7f", "\x80", "\x9f"],
    ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<think>", "</think>", "<l>", "<r>", "<lr>", "<w>", "<w2>", "<r>x",
     "<|", "|>", "<\uff5cUser\uff5c>", "\u00e9!", "e\u0301?", "word", "\u00f1", "n\u0303"],
]


def random_text(rng):
    parts = []
    for _ in range(rng.randint(1, 25)):
        kind = rng.random()
        if kind < 0.06:
            # Any code point at all.
            points = (rng.choice([rng.randrange(0x250), rng.randrange(0x3000), rng.randrange(0x10000), rng.randrange(0x110000)])
                      for _ in range(rng.randint(1, 6)))
            parts.append("".join(chr(p) for p in points if not 0xD800 <= p < 0xE000))
        else:
            alphabet = rng.choice(ALPHABETS)
            parts.append("".join(rng.choice(alphabet) for _ in range(rng.randint(1, 9))))
    return "".join(parts)


def every_code_point():
    """Each code point of the planes in use once, beside letters, digits, spaces and combining marks."""
    points = [p for p in (*range(0x40000), *range(0xE0000, 0xE0200), 0xF0000, 0x10FFFD) if not 0xD800 <= p < 0xE000]
    for start in range(0, len(points), 500):
        some = [chr(p) for p in points[start:start + 500]]
        yield "".join(some)
        yield "".join(f"a{c}b 1{c}2 {c}\u0301\u0323" for c in some)


def run_tool(tool, command, folder, rows):
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    result = subprocess.run([tool, command, folder], input=lines, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        sys.exit(f"{command} {folder}: {result.stderr}")
    return [json.loads(line) for line in result.stdout.split("\n") if line]


def first_difference(name, what, inputs, ours, reference):
    if len(ours) != len(reference):
        return f"{name} {what}: {len(ours)} results for {len(reference)} inputs"
    for given, mine, theirs in zip(inputs, ours, reference):
        if mine != theirs:
            return f"{name} {what}: {given!r}\n  ours      {mine}\n  reference {theirs}"
    return None


def check(tool, folder, texts, rng):
    name = folder.name
    reference = Tokenizer.from_file(str(folder / "tokenizer.json"))
    expected = [encoding.ids for encoding in reference.encode_batch(texts, add_special_tokens=False)]
    ours = run_tool(tool, "tokenize", folder, texts)
    problems = [first_difference(name, "ids", texts, ours, expected)]
    # Decoding: whole texts, and random ids, which cut characters in two.
    size = reference.get_vocab_size() + 20
    id_lists = expected[:200] + [[rng.randrange(size) for _ in range(rng.randint(0, 12))] for _ in range(300)]
    rows = [{"ids": ids, "skip_special": i % 2 == 0} for i, ids in enumerate(id_lists)]
    decoded = [reference.decode(row["ids"], skip_special_tokens=row["skip_special"]) for row in rows]
    for command in ("decode", "stream"):
        problems.append(first_difference(name, command, rows, run_tool(tool, command, folder, rows), decoded))
    tokens = sum(map(len, expected))
    print(f"{name}: {len(texts)} texts, {tokens} tokens, {len(rows)} decodings")
    return [problem for problem in problems if problem]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tool")
    parser.add_argument("folders", type=pathlib.Path)
    parser.add_argument("--texts", type=int, default=1500)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--only", default="")
    parser.add_argument("--every-code-point", nargs="*", default=[], help="folders that get every code point too")
    options = parser.parse_args()
    problems = []
    folders = sorted(path.parent for path in options.folders.glob("*/tokenizer.json"))
    assert folders, f"no tokenizers in {options.folders}"
    for folder in folders:
        if options.only in folder.name:
            rng = random.Random(options.seed)
            texts = FIXED + [random_text(rng) for _ in range(options.texts)]
            if folder.name in options.every_code_point:
                texts += every_code_point()
            problems += check(options.tool, folder, texts, rng)
    for problem in problems:
        print("DIFFERS", problem)
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
