"""Runs with sharded weights write the bytes of runs with whole ones, from weight files on, resumed or not.

usage: sharded_ranks.py LONGHAUL WORK_FOLDER
"""

import os
import pathlib
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import tiny  # noqa: E402


def train(longhaul, work, name, *words):
    command = [longhaul, "sft", "--model", work / "model", "--dataset", work / "chats.jsonl", "--max_length", 400]
    command += ["--cache_dir", work / "cache", "--torch_dtype", "float32", "--device", "cpu", "--lora_rank", 4]
    command += ["--lora_dropout", 0, "--max_steps", 9, "--save_steps", 4, "--split_dataset_ratio", 0.2]
    command += ["--logging_steps", 1, "--output_dir", work / name, "--add_version", "false", *words]
    environment = dict(os.environ, NPROC_PER_NODE="2", OMP_NUM_THREADS="1")
    done = subprocess.run([str(word) for word in command], env=environment, text=True, capture_output=True, timeout=300)
    assert done.returncode == 0, f"{name}: exit {done.returncode}\n{done.stdout}{done.stderr}"
    losses = [line.split("eval_loss")[1] for line in done.stdout.splitlines() if "eval_loss" in line]
    return done.stdout, (work / name / "checkpoint-9" / "adapter_model.safetensors").read_bytes(), losses


def main():
    longhaul, work = sys.argv[1], pathlib.Path(sys.argv[2])
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    tiny.write_model(work / "model", "smol", layers=4)  # two would stay in the buffers for good
    # 21 rows train and 5 validate: of two data-parallel groups one sits out at the end of either.
    tiny.write_chats(work / "chats.jsonl", 26)
    layouts = {
        "sp2": ("--sequence_parallel_size", 2, "--gradient_accumulation_steps", 2),
        "dp2": ("--sequence_parallel_size", 1, "--gradient_accumulation_steps", 2),
    }
    for layout, words in layouts.items():
        _, want, want_losses = train(longhaul, work, f"{layout}-whole", *words)
        said, got, losses = train(longhaul, work, f"{layout}-sharded", *words, "--fsdp", "fsdp2")
        assert " 21 sequences per epoch" in said, said
        assert "sharding: frozen weights of the layers over 2 ranks" in said, said
        assert losses and losses == want_losses, (layout, losses, want_losses)
        assert got == want, f"{layout}: sharded weights train another adapter"
        # Resumed from the middle of the run with whole weights, with the rest sharded.
        resume = ("--deepspeed", "zero3", "--resume_from_checkpoint", work / "half" / layout / "checkpoint-4")
        shutil.copytree(work / f"{layout}-whole" / "checkpoint-4", work / "half" / layout / "checkpoint-4")
        said, got, _ = train(longhaul, work, f"{layout}-resumed", *words, *resume)
        assert "resumed from" in said, said
        assert got == want, f"{layout}: a resumed run trains another adapter"
        print(f"{layout}: sharded and resumed runs end with the bytes of the run with whole weights")


if __name__ == "__main__":
    main()
