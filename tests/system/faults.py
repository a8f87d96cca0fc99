"""A training run on two ranks that is killed, interrupted and resumed.

usage: faults.py LONGHAUL WORK_FOLDER
- a rank dies by SIGKILL: everything is gone within 20 s, one line names rank and step, exit status 3, resuming works;
- SIGINT to the launcher: the step is finished, its checkpoint written, exit status 130;
- a run folder that cannot be written: exit status 3 before the first step.
"""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import tiny  # noqa: E402


def start(longhaul, work, out, *extra):
    command = [longhaul, "sft", "--model", work / "model", "--dataset", work / "chats.jsonl", "--max_length", 400]
    command += ["--cache_dir", work / "cache", "--torch_dtype", "float32", "--sequence_parallel_size", 2]
    command += ["--gradient_accumulation_steps", 1, "--max_steps", 4000, "--logging_steps", 1, "--save_steps", 20]
    command += ["--save_total_limit", 3, "--output_dir", out, "--add_version", "false", *extra]
    environment = dict(os.environ, NPROC_PER_NODE="2", OMP_NUM_THREADS="1")
    return subprocess.Popen(
        [str(word) for word in command],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def ranks_of(out):
    """Process ids of the ranks of the run that writes `out`, by rank."""
    found = {}
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
            environment = (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        rank = [v.split(b"=")[1] for v in environment if v.startswith(b"OMPI_COMM_WORLD_RANK=")]
        if rank and str(out).encode() in words:
            found[int(rank[0])] = int(entry.name)
    return found


def wait_for(what, condition, seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.1)
    raise SystemExit(f"waited {seconds} s for {what}")


def checkpoints(folder):
    return sorted(folder.glob("checkpoint-*"), key=lambda path: int(path.name.split("-")[1]))


def killed_rank(longhaul, work):
    out = work / "killed"
    job = start(longhaul, work, out)
    wait_for("a checkpoint", lambda: checkpoints(out), 120)
    ranks = ranks_of(out)
    if sorted(ranks) != [0, 1]:
        raise SystemExit(f"expected two ranks, found {ranks}")
    os.kill(ranks[1], signal.SIGKILL)
    begin = time.monotonic()
    _, errors = job.communicate(timeout=60)
    seconds = time.monotonic() - begin
    lines = [line for line in errors.splitlines() if line]
    if job.returncode != 3 or seconds > 20 or len(lines) != 1:
        raise SystemExit(f"killed rank: status {job.returncode} after {seconds:.1f} s, stderr:\n{errors}")
    if not re.match(r"longhaul: error: rank 1, step \d+, ", lines[0]):
        raise SystemExit(f"killed rank: unexpected message: {lines[0]}")
    if ranks_of(out):
        raise SystemExit(f"killed rank: processes left: {ranks_of(out)}")
    print(f"killed rank: {lines[0]} ({seconds:.1f} s)")
    return out


def interrupted(longhaul, work, resume_from):
    out = work / "interrupted"
    job = start(longhaul, work, out, "--resume_from_checkpoint", resume_from)
    first = int(checkpoints(resume_from)[-1].name.split("-")[1])
    log = out / "logging.jsonl"
    wait_for("steps after resuming", lambda: log.exists() and log.read_text().count('"loss"') > 3, 120)
    job.send_signal(signal.SIGINT)
    output, errors = job.communicate(timeout=60)
    if job.returncode != 130 or "error" in errors:
        raise SystemExit(f"interrupt: status {job.returncode}, stderr:\n{errors}\n{output}")
    steps = [json.loads(line) for line in log.read_text().splitlines()]
    trained = [int(line["global_step/max_steps"].split("/")[0]) for line in steps if "loss" in line]
    last = int(checkpoints(out)[-1].name.split("-")[1])
    if trained[0] != first + 1 or trained != list(range(first + 1, last + 1)):
        raise SystemExit(f"interrupt: resumed after {first}, trained {trained[0]}…{trained[-1]}, saved {last}")
    print(f"interrupt: resumed after step {first}, stopped and saved after step {last}")


def unwritable(longhaul, work):
    blocked = work / "blocked"
    blocked.write_text("a file where the run folder should be\n")
    job = start(longhaul, work, blocked / "out")
    _, errors = job.communicate(timeout=60)
    lines = [line for line in errors.splitlines() if line]
    if job.returncode != 3 or len(lines) != 1:
        raise SystemExit(f"unwritable folder: status {job.returncode}, stderr:\n{errors}")
    print(f"unwritable folder: {lines[0]}")


def main():
    longhaul, work = sys.argv[1], pathlib.Path(sys.argv[2])
    shutil.rmtree(work, ignore_errors=True)
    tiny.write_model(work / "model", "smol")
    tiny.write_chats(work / "chats.jsonl", 64)
    out = killed_rank(longhaul, work)
    interrupted(longhaul, work, out)
    unwritable(longhaul, work)
    shutil.rmtree(work)


if __name__ == "__main__":
    main()
