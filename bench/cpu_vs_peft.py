#!/usr/bin/env python3
"""longhaul against transformers + PEFT on CPU: speed and peak memory, both measured in the same run.

    .venv-oracle/bin/python bench/cpu_vs_peft.py

SmolLM2-135M, LoRA r16 on every linear layer, one document with every token a target, fp32, one process, all cores:
PEFT with gradient checkpointing off and on, longhaul with several activation policies, in turn, for some rounds.
Then longhaul alone on a longer row, one process against two: activation memory per process, which is the peak
at that row less the peak at a very short row. Prints Markdown tables; medians, first step of each run left out.
Peak memory is VmHWM of the process itself, libraries and mapped files included.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import threading

ROOT = pathlib.Path(__file__).resolve().parents[1]
MODEL = ROOT / "demo/model"
SHORT_ROW = 64


class PeakWatcher(threading.Thread):
    """Follows a process and its descendants: VmHWM in bytes of each one whose name is `name`."""

    def __init__(self, root_pid, name):
        super().__init__(daemon=True)
        self.peaks = {}
        self._root, self._name, self._done = root_pid, name, threading.Event()

    def run(self):
        while not self._done.wait(0.05):
            self._sample()

    def finish(self):
        self._done.set()
        self.join()
        return sorted(self.peaks.values(), reverse=True)

    def _sample(self):
        parents, status = {}, {}
        for entry in pathlib.Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    lines = (entry / "status").read_text().splitlines()
                except OSError:
                    continue
                fields = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
                parents[int(entry.name)], status[int(entry.name)] = int(fields["PPid"]), fields
        for pid, fields in status.items():
            ancestor = pid
            while ancestor not in (0, self._root):
                ancestor = parents.get(ancestor, 0)
            if ancestor == self._root and fields["Name"] == self._name and "VmHWM" in fields:
                self.peaks[pid] = max(
                    self.peaks.get(pid, 0), int(fields["VmHWM"].split()[0]) * 1024
                )


def run_watched(command, name, env=None):
    """(standard output, peaks of the processes called `name`); the command must succeed."""
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env, cwd=ROOT
    )
    watcher = PeakWatcher(process.pid, name)
    watcher.start()
    out, err = process.communicate()
    peaks = watcher.finish()
    if process.returncode != 0:
        sys.exit(
            f"cpu_vs_peft: error: {' '.join(map(str, command))} ended with {process.returncode}:\n{err[-2000:]}"
        )
    return out, peaks


def peft(work, tokens, steps, checkpointing):
    command = [
        sys.executable,
        ROOT / "bench/peft_train.py",
        "--model",
        MODEL,
        "--text",
        work / "text.txt",
        "--tokens",
        str(tokens),
        "--steps",
        str(steps),
    ] + (["--checkpointing"] if checkpointing else [])
    out, peaks = run_watched(command, pathlib.Path(sys.executable).name[:15])
    result = json.loads(out.strip().splitlines()[-1])
    return {
        "loss": result["loss"],
        "rates": [tokens / s for s in result["seconds"][1:]],
        "peak": peaks[0],
    }


def longhaul(args, work, tokens, steps, policy, ranks=1):
    folder = work / f"run-{len(list(work.iterdir()))}"
    command = [
        args.longhaul,
        "sft",
        "--model",
        MODEL,
        "--torch_dtype",
        "float32",
        "--dataset",
        work / "text.jsonl",
        "--use_chat_template",
        "false",
        "--loss_scale",
        "all",
        "--truncation_strategy",
        "right",
        "--max_length",
        str(tokens),
        "--train_type",
        "lora",
        "--lora_rank",
        "16",
        "--lora_alpha",
        "32",
        "--lora_dropout",
        "0",
        "--activation_policy",
        policy,
        "--gradient_accumulation_steps",
        "1",
        "--max_steps",
        str(steps),
        "--logging_steps",
        "1",
        "--save_only_model",
        "true",
        "--report_to",
        "none",
        "--add_version",
        "false",
        "--output_dir",
        folder,
    ]
    if ranks > 1:
        command += ["--sequence_parallel_size", str(ranks)]
    _, peaks = run_watched(command, "longhaul", env=os.environ | {"NPROC_PER_NODE": str(ranks)})
    lines = [json.loads(line) for line in (folder / "logging.jsonl").read_text().splitlines()]
    lines = [line for line in lines if "tokens_per_second" in line and "loss" in line]
    worst = max(peaks[:ranks])
    return {
        "loss": [line["loss"] for line in lines],
        "rates": [line["tokens_per_second"] for line in lines[1:]],
        "peak": worst,
    }


def compare(args, work):
    settings = {
        "PEFT, checkpointing off": lambda: peft(work, args.tokens, args.steps, False),
        "PEFT, checkpointing on": lambda: peft(work, args.tokens, args.steps, True),
    }
    for policy in args.policies:
        settings[f"longhaul, policy {policy}"] = lambda policy=policy: longhaul(
            args, work, args.tokens, args.steps, policy
        )
    rates, peaks, losses = {}, {}, {}
    for round_idx in range(args.rounds):
        for name, run in settings.items():
            result = run()
            rates.setdefault(name, []).extend(result["rates"])
            peaks.setdefault(name, []).append(result["peak"])
            losses[name] = result["loss"][0]
            print(
                f"round {round_idx + 1}: {name}: {statistics.median(result['rates']):.0f} tokens/s",
                file=sys.stderr,
            )
    print(
        f"\n{args.tokens} tokens, {args.rounds} rounds of {args.steps} steps, {os.cpu_count()} cores\n"
    )
    print(
        "| setting | tokens/s, median | (least – most) | peak memory, GB | loss of step 1 |\n| --- | --- | --- | --- | --- |"
    )
    for name, values in rates.items():
        print(
            f"| {name} | {statistics.median(values):.0f} | {min(values):.0f} – {max(values):.0f} | "
            f"{statistics.median(peaks[name]) / 1e9:.2f} | {losses[name]:.6f} |"
        )
    medians = {
        name: (statistics.median(values), statistics.median(peaks[name]))
        for name, values in rates.items()
    }
    theirs = [m for name, m in medians.items() if name.startswith("PEFT")]
    fastest, leanest = max(theirs), min(theirs, key=lambda m: m[1])
    print(
        "\n| longhaul's policy | speed / PEFT's faster | peak / PEFT's leaner | speed / PEFT's leaner |\n| --- | --- | --- | --- |"
    )
    for name, (rate, peak) in medians.items():
        if name.startswith("longhaul"):
            print(
                f"| {name.split()[-1]} | {rate / fastest[0]:.2f} × | {peak / leanest[1]:.2f} × | {rate / leanest[0]:.2f} × |"
            )


def two_processes(args, work):
    print(
        f"\n{args.long_tokens} tokens: activation memory per process (peak less peak at {SHORT_ROW} tokens)\n"
    )
    print(
        "| policy | one process, GB | two processes, GB each | ratio |\n| --- | --- | --- | --- |"
    )
    for policy in args.policies:
        activation = []
        for ranks in (1, 2):
            peaks = [
                longhaul(args, work, tokens, 2, policy, ranks)["peak"]
                for tokens in (args.long_tokens, SHORT_ROW)
            ]
            activation.append(peaks[0] - peaks[1])
        print(
            f"| {policy} | {activation[0] / 1e9:.3f} | {activation[1] / 1e9:.3f} | {activation[1] / activation[0]:.2f} × |"
        )


def write_text(work):
    """A long document from the demo data, as plain text and as a row for longhaul."""
    rows = [
        json.loads(line)
        for line in (ROOT / "demo/data/train.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    text = max((row["messages"][0]["content"] for row in rows), key=len)
    (work / "text.txt").write_text(text, encoding="utf-8")
    row = {"messages": [{"role": "assistant", "content": text}]}
    (work / "text.jsonl").write_text(json.dumps(row, ensure_ascii=False) + "\n", encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--longhaul", default=ROOT / "build/release/longhaul", type=pathlib.Path)
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--long_tokens", type=int, default=4096)
    parser.add_argument("--steps", type=int, default=4, help="per run; the first is left out")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--policies", nargs="+", default=["A", "C", "D"])
    parser.add_argument("--skip_two_processes", action="store_true")
    args = parser.parse_args()
    if not args.longhaul.exists() or not MODEL.exists():
        sys.exit(
            "cpu_vs_peft: error: build/release/longhaul or demo/model is missing. Run ./quickstart and ./run-tests first"
        )
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        write_text(work)
        compare(args, work)
        if not args.skip_two_processes:
            two_processes(args, work)


if __name__ == "__main__":
    main()
