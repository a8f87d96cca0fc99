#!/usr/bin/env python3
"""Prints what a demo run has changed: evaluation loss before and after, an answer before and after.

In: a run folder (logging.jsonl, answers/before.jsonl, answers/after.jsonl), the JSONL file that was asked.
"""

import json
import pathlib
import statistics
import sys
import textwrap


def read_jsonl(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def show(label, text):
    print(
        textwrap.fill(
            text.strip(), width=100, initial_indent=f"{label:14}", subsequent_indent=" " * 14
        )
    )


def main():
    run, asked = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    log = read_jsonl(run / "logging.jsonl")
    evals = [line for line in log if "eval_loss" in line]
    steps = [line for line in log if "loss" in line]
    if len(evals) < 2 or not steps:
        sys.exit(
            f"demo_report: error: {run / 'logging.jsonl'} holds {len(evals)} evaluations, expected 2. Run ./quickstart --again"
        )
    before, after = evals[0], evals[-1]
    print()
    show(
        "eval loss",
        f"{before['eval_loss']:.3f} before, {after['eval_loss']:.3f} after "
        f"({after['eval_loss'] / before['eval_loss']:.2f} x), on pages the model was not tuned on",
    )
    rate = statistics.median(line["tokens_per_second"] for line in steps)
    show("training", f"{len(steps)} steps, {rate:.0f} tokens/s over both processes")
    page = read_jsonl(asked)[0]["messages"]
    print()
    show("page", " ".join(page[0]["content"].split("\n\n", 1)[-1].split())[:240] + " ...")
    show("its own words", page[1]["content"])
    for label in ("before", "after"):
        show(label, read_jsonl(run / "answers" / f"{label}.jsonl")[0]["response"])


if __name__ == "__main__":
    main()
