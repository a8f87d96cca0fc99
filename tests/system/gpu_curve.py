"""Fifty steps of the demo model: the loss curve on a GPU in bf16 is the CPU's within the noise of bf16.

usage: gpu_curve.py LONGHAUL MODEL_FOLDER DATASET WORK_FOLDER [DEVICE]

Three runs of the same rows: the CPU in fp32 (the curve that counts), the GPU in fp32, the GPU in bf16. In fp32 the
curves differ by the order of sums only, and greedy answers are the same; in bf16 every value is rounded to 8 bits, 0.4 % of it, and a mean over
thousands of tokens stays nearer. DEVICE (cuda) is where the second and third run; `cpu` tries the script itself.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys

STEPS = 50
FP32_LIMIT = 2e-3  # relative, of every step's loss: fifty updates let differences of 1e-6 grow
BF16_LIMIT = 1e-2


def long_answers(data, path):
    """The dataset's long prompts as answers, so that nearly every token of a row is a target and a loss is a mean of many."""
    pages = [json.loads(line)["messages"][0]["content"] for line in data.read_text().splitlines()]
    rows = [[{"role": "user", "content": page[:80]}, {"role": "assistant", "content": page[80:1600]}] for page in pages]
    path.write_text("".join(json.dumps({"messages": row}) + "\n" for row in rows))
    return path


def curve(longhaul, model, data, work, name, device, dtype):
    command = [longhaul, "sft", "--model", model, "--dataset", data, "--device", device, "--torch_dtype", dtype]
    command += ["--max_length", 512, "--truncation_strategy", "right", "--packing", "true", "--max_steps", STEPS]
    command += ["--gradient_accumulation_steps", 1, "--logging_steps", 1, "--lora_rank", 8, "--lora_dropout", 0]
    command += ["--save_strategy", "no", "--cache_dir", work / "cache", "--output_dir", work / name]
    command += ["--add_version", "false", "--learning_rate", "1e-3"]
    done = subprocess.run([str(word) for word in command], text=True, capture_output=True, timeout=1500, env=os.environ)
    if done.returncode:
        raise SystemExit(f"{name}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    lines = [json.loads(line) for line in (work / name / "logging.jsonl").read_text().splitlines()]
    return [line["loss"] for line in lines if "loss" in line and "grad_norm" in line]


def answers(longhaul, model, data, work, device):
    """Greedy answers to a few rows: prompts of several pieces, then single tokens over the cache."""
    result = work / f"answers_{device}.jsonl"
    command = [longhaul, "infer", "--model", model, "--val_dataset", f"{data}#3", "--device", device]
    command += ["--torch_dtype", "float32", "--max_new_tokens", 24, "--result_path", result, "--max_length", 3000]
    done = subprocess.run([str(word) for word in command], text=True, capture_output=True, timeout=900, env=os.environ)
    if done.returncode:
        raise SystemExit(f"infer on {device}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return [json.loads(line)["response"] for line in result.read_text().splitlines()]


def main():
    longhaul, model, data, work = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3]), pathlib.Path(sys.argv[4])
    device = sys.argv[5] if len(sys.argv) > 5 else "cuda"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    rows = long_answers(data, work / "rows.jsonl")
    want = curve(longhaul, model, rows, work, "cpu", "cpu", "float32")
    if len(want) != STEPS or not sum(want[-5:]) < 0.95 * sum(want[:5]):
        raise SystemExit(f"the CPU's curve does not fall: {want}")
    for dtype, limit in (("float32", FP32_LIMIT), ("bfloat16", BF16_LIMIT)):
        got = curve(longhaul, model, rows, work, f"{device}_{dtype}", device, dtype)
        worst = max(abs(a - b) / b for a, b in zip(got, want, strict=True))
        print(f"{device}, {dtype}: {STEPS} steps, largest difference of a loss {worst:.2e} (limit {limit:.0e})")
        if worst > limit:
            raise SystemExit(f"{got}\nagainst\n{want}")
    one, other = (answers(longhaul, model, data, work, where) for where in ("cpu", device))
    if one != other or not any(one):
        raise SystemExit(f"answers on the CPU: {one}\non {device}: {other}")
    print(f"{len(one)} greedy answers are the same on both")
    shutil.rmtree(work)


if __name__ == "__main__":
    main()
