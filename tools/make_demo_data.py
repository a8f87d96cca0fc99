#!/usr/bin/env python3
"""Makes the demo's data: long manual pages, each with its one-line description as the answer.

In:  a folder into which Debian packages with manual pages were unpacked, and a model's tokenizer.json.
Out: train.jsonl, val.jsonl               every page of 700 to 16,384 tokens, split by a hash of its name
     demo_train.jsonl, demo_val.jsonl     the few rows of the quick demo
     demo_infer.jsonl                     one more validation page, a system call, for asking the model before and after
The description is taken out of the page's text. Same packages, same files.
"""

import argparse
import concurrent.futures
import gzip
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys

from tokenizers import Tokenizer

MIN_TOKENS, MAX_TOKENS = 700, 16384
MIN_SOURCE_BYTES = (
    1500  # a compressed page below this is shorter than MIN_TOKENS: not worth rendering
)
RENDER = ["groff", "-Kutf8", "-Tutf8", "-t", "-mandoc", "-P-cbou", "-rLL=100n", "-rHY=0"]
MIN_TRAIN_ROWS, MIN_VAL_ROWS = 300, 40
QUESTION = "Write the one-line description of this manual page, as its NAME section has it."
# The quick demo: rows longer than one of two ranks holds, and shorter ones to fill them up to a pack.
DEMO_LONG, DEMO_LONG_ROWS = (1600, 2150), 16
DEMO_SHORT, DEMO_SHORT_ROWS = (760, 900), 14
DEMO_VAL, DEMO_VAL_ROWS = (760, 1500), 8


def sources(root):
    """Every page's source file, in the order of its name."""
    files = []
    for path in root.rglob("man[1-8]/*.gz"):
        # Perl's release notes resemble each other too much to be split into training and validation.
        is_release_note = re.match(r"perl(5\d+)?delta\.", path.name)
        if (
            not path.is_symlink()
            and not is_release_note
            and path.stat().st_size >= MIN_SOURCE_BYTES
        ):
            files.append(path)
    return sorted(files, key=lambda path: path.name)


def render(path):
    """The page as plain text, 100 columns wide, ragged right; "" for a page that only points to another."""
    source = gzip.decompress(path.read_bytes())
    if source.startswith(b".so "):
        return ""
    source = re.sub(
        rb"^\.TH .*$", rb"\g<0>\n.ad l\n.de1 ad\n..", source, count=1, flags=re.MULTILINE
    )
    done = subprocess.run(RENDER, input=source, capture_output=True, check=False)
    if done.returncode != 0:
        sys.exit(
            f"make_demo_data: error: groff failed on {path.name}: {done.stderr.decode(errors='replace').strip()}"
        )
    lines = [
        line.rstrip() for line in done.stdout.decode("utf-8", errors="replace").strip().splitlines()
    ]
    return "\n".join(lines[1:-1]) + "\n"  # without the running head and foot


def split_page(text):
    """(page without its NAME section and description, description), or None where there is no such section."""
    found = re.search(r"^NAME\n((?:[ \t]+\S.*\n|\n)+)", text, flags=re.MULTILINE)
    if not found:
        return None
    line = " ".join(found.group(1).split())
    parts = re.split(r" (?:-{1,2}|\u2013|\u2014|\u2212|\u2010) ", line, maxsplit=1)
    if len(parts) != 2 or not 8 <= len(parts[1]) <= 100:
        return None
    description = parts[1].strip().rstrip(".")
    body = text[: found.start()] + text[found.end() :]
    words = r"\s+".join(re.escape(word) for word in description.split())
    body = re.sub(words, "...", body, flags=re.IGNORECASE)
    return re.sub(r"\n{3,}", "\n\n", body).strip(), description


def make_row(body, description):
    user = f"{QUESTION}\n\n{body}"
    return {
        "messages": [
            {"role": "user", "content": user},
            {"role": "assistant", "content": description},
        ]
    }


def is_validation(name):
    return int(hashlib.sha256(name.encode()).hexdigest(), 16) % 10 == 0


def pages(root, tokenizer_file):
    """[(name, tokens, row)] of every usable page."""
    tokenizer = Tokenizer.from_file(str(tokenizer_file))
    files = sources(root)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        texts = list(pool.map(render, files))
    result = []
    for path, text in zip(files, texts):
        page = split_page(text)
        if page is None:
            continue
        row = make_row(*page)
        tokens = (
            sum(len(tokenizer.encode(m["content"]).ids) for m in row["messages"]) + 32
        )  # template, about
        if MIN_TOKENS <= tokens <= MAX_TOKENS:
            result.append((path.name, tokens, row))
    return result


def pick(candidates, bounds, count, what):
    """`count` rows with a length inside `bounds`, in the order of a hash of their names."""
    fitting = [p for p in candidates if bounds[0] <= p[1] <= bounds[1]]
    if len(fitting) < count:
        sys.exit(
            f"make_demo_data: error: {len(fitting)} pages for {what}, expected {count}. Are all packages unpacked?"
        )
    return sorted(fitting, key=lambda p: hashlib.sha256(p[0].encode()).hexdigest())[:count]


def write_jsonl(path, rows):
    partial = path.with_suffix(".partial")
    with partial.open("w", encoding="utf-8") as out:
        for _, _, row in rows:
            out.write(json.dumps(row, ensure_ascii=False) + "\n")
    partial.rename(path)
    lengths = sorted(tokens for _, tokens, _ in rows)
    long, longest = sum(n > 1500 for n in lengths), sum(n > 8192 for n in lengths)
    print(
        f"{path.name}: {len(rows)} rows, {lengths[0]} to {lengths[-1]} tokens, {long} above 1,500, {longest} above 8,192"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("root", type=pathlib.Path, help="folder with the unpacked packages")
    parser.add_argument(
        "tokenizer", type=pathlib.Path, help="tokenizer.json that counts the tokens"
    )
    parser.add_argument("output", type=pathlib.Path, help="folder of the JSONL files")
    args = parser.parse_args()
    everything = pages(args.root, args.tokenizer)
    train = [p for p in everything if not is_validation(p[0])]
    val = [p for p in everything if is_validation(p[0])]
    if len(train) < MIN_TRAIN_ROWS or len(val) < MIN_VAL_ROWS:
        sys.exit(
            f"make_demo_data: error: {len(train)} training and {len(val)} validation rows, "
            f"expected {MIN_TRAIN_ROWS} and {MIN_VAL_ROWS}. Are all packages unpacked?"
        )
    system_calls = [p for p in val if p[0].endswith(".2.gz")]
    demo_infer = pick(system_calls, DEMO_VAL, 1, "the demo's question")
    demo_val = pick(
        [p for p in val if p not in demo_infer], DEMO_VAL, DEMO_VAL_ROWS, "the demo's validation"
    )
    args.output.mkdir(parents=True, exist_ok=True)
    write_jsonl(args.output / "train.jsonl", train)
    write_jsonl(args.output / "val.jsonl", val)
    write_jsonl(
        args.output / "demo_train.jsonl",
        pick(train, DEMO_LONG, DEMO_LONG_ROWS, "the demo's long rows")
        + pick(train, DEMO_SHORT, DEMO_SHORT_ROWS, "the demo's short rows"),
    )
    write_jsonl(args.output / "demo_val.jsonl", demo_val)
    write_jsonl(args.output / "demo_infer.jsonl", demo_infer)


if __name__ == "__main__":
    main()
