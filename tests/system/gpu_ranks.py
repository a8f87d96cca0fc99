"""The same run on a CPU rank, on one GPU and on two: equal losses and gradient norms in fp32.

usage: gpu_ranks.py [--share-gpu] LONGHAUL WORK_FOLDER      with --share-gpu both ranks are on one GPU
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import tiny  # noqa: E402


SHARED = [sys.executable, pathlib.Path(__file__).parent.parent / "tools/start_ranks.py", "--share-gpu", 2]


def train(longhaul, work, name, ranks, *words, share_gpu=False):
    shares = share_gpu and ranks == 2
    command = [*SHARED, longhaul, "sft"] if shares else [longhaul, "sft"]
    command += ["--model", work / "model", "--dataset", work / "chats.jsonl", "--max_length", 400]
    command += ["--packing", "true", "--cache_dir", work / "cache", "--torch_dtype", "float32", "--max_steps", 6]
    command += ["--gradient_accumulation_steps", 2, "--logging_steps", 1, "--lora_rank", 4, "--lora_dropout", 0]
    command += ["--output_dir", work / name, "--add_version", "false", "--save_strategy", "no", *words]
    environment = dict(os.environ, OMP_NUM_THREADS="1", NPROC_PER_NODE="1" if shares else str(ranks))
    done = subprocess.run([str(word) for word in command], env=environment, text=True, capture_output=True, timeout=300)
    assert done.returncode == 0, f"{name}: exit {done.returncode}\n{done.stdout}{done.stderr}"
    print(f"--- {name}\n" + "\n".join(done.stdout.splitlines()[:30]))
    lines = [json.loads(line) for line in (work / name / "logging.jsonl").read_text().splitlines()]
    return [(line["loss"], line["grad_norm"]) for line in lines if "loss" in line and "grad_norm" in line]


def main():
    share_gpu = sys.argv[1] == "--share-gpu"
    longhaul, work = sys.argv[-2], pathlib.Path(sys.argv[-1])
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    tiny.write_model(work / "model", "smol")
    tiny.write_chats(work / "chats.jsonl", 60)
    want = train(longhaul, work, "cpu", 1, "--device", "cpu")
    assert len(want) == 6, want
    for name, ranks, words in (("one-gpu", 1, ()), ("two-gpus", 2, ("--ulysses", "true", "--ulysses_seq_len", 200)),
                               ("two-groups", 2, ("--sequence_parallel_size", 1, "--gradient_accumulation_steps", 1))):
        got = train(longhaul, work, name, ranks, "--device", "cuda", *words, share_gpu=share_gpu)
        for step, (one, other) in enumerate(zip(got, want, strict=True)):
            for a, b in zip(one, other):
                assert abs(a - b) <= 1e-4 * abs(b), f"{name}, step {step + 1}: {one}, the CPU has {other}"
        print(f"{name}: {len(got)} steps equal the CPU's")


if __name__ == "__main__":
    main()
