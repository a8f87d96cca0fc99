"""Training runs that are killed, interrupted, cut off and resumed.

usage: faults.py LONGHAUL WORK_FOLDER
- a rank dies by SIGKILL: everything is gone within 20 s, one line names rank and step, exit status 3, resuming works;
- SIGINT to the launcher: the step is finished, its checkpoint written, exit status 130;
- SIGHUP, as when the terminal is closed: the same with 129; ignored when it was ignored at the start, as by nohup;
- threads sleep soon when they wait, so that runs beside others stay fast (on more than one core);
- the reader of standard output goes away: training goes on to its last checkpoint;
- a file-size limit (`ulimit -f`) stops a checkpoint: exit status 3, one line, and resuming from the one before works;
- a run folder that cannot be written: exit status 3 before the first step;
- ranks with different options or data: exit status 2, one line names them, nothing is written.
"""

import json
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import tiny  # noqa: E402


def start(longhaul, work, out, *extra, ranks=2, threads=1, ignored=()):
    """The run in a session of its own; `ignored` signals are ignored from its start."""

    def before_start():
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # whatever started the tests
        for number in ignored:
            signal.signal(number, signal.SIG_IGN)

    command = [longhaul, "sft", "--model", work / "model", "--dataset", work / "chats.jsonl", "--max_length", 400]
    command += ["--cache_dir", work / "cache", "--torch_dtype", "float32", "--sequence_parallel_size", ranks]
    command += ["--gradient_accumulation_steps", 1, "--max_steps", 4000, "--logging_steps", 1, "--save_steps", 20]
    command += ["--save_total_limit", 3, "--output_dir", out, "--add_version", "false", *extra]
    environment = dict(os.environ, NPROC_PER_NODE=str(ranks), OMP_NUM_THREADS=str(threads))
    return subprocess.Popen(
        [str(word) for word in command],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=before_start,
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


def logged_steps(out):
    """The steps that the run has logged so far."""
    log = out / "logging.jsonl"
    lines = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    return [int(line["global_step/max_steps"].split("/")[0]) for line in lines if "loss" in line]


def interrupted(longhaul, work, resume_from, number, ranks=2):
    """A resumed run gets a signal; gives its run folder, from which the next can be resumed."""
    name = signal.Signals(number).name
    out = work / f"{name}_{ranks}"
    job = start(longhaul, work, out, "--resume_from_checkpoint", resume_from, ranks=ranks)
    first = int(checkpoints(resume_from)[-1].name.split("-")[1])
    wait_for("steps after resuming", lambda: len(logged_steps(out)) > 3, 120)
    job.send_signal(number)
    output, errors = job.communicate(timeout=60)
    if job.returncode != 128 + number or "error" in errors:
        raise SystemExit(f"{name}: status {job.returncode}, stderr:\n{errors}\n{output}")
    trained = logged_steps(out)
    last = int(checkpoints(out)[-1].name.split("-")[1])
    if trained[0] != first + 1 or trained != list(range(first + 1, last + 1)):
        raise SystemExit(f"{name}: resumed after {first}, trained {trained[0]}…{trained[-1]}, saved {last}")
    print(f"{name}, ranks {ranks}: resumed after step {first}, stopped and saved after step {last}")
    return out


def hangup_under_nohup(longhaul, work, ranks):
    out = work / f"nohup_{ranks}"
    job = start(longhaul, work, out, ranks=ranks, ignored=[signal.SIGHUP])
    wait_for("a step", lambda: logged_steps(out), 120)
    os.killpg(job.pid, signal.SIGHUP)
    seen = logged_steps(out)[-1]
    wait_for("steps after the hangup", lambda: logged_steps(out)[-1] > seen + 5, 60)
    job.send_signal(signal.SIGTERM)
    _, errors = job.communicate(timeout=60)
    if job.returncode != 143 or "error" in errors:
        raise SystemExit(f"hangup under nohup: status {job.returncode}, stderr:\n{errors}")
    print(f"hangup under nohup, ranks {ranks}: trained on after step {seen}")


def threads_sleep(longhaul, work, ranks):
    """The processes that compute have the variable by which libgomp's threads soon sleep."""
    out = work / f"threads_{ranks}"
    job = start(longhaul, work, out, ranks=ranks, threads=2)
    wait_for("a step", lambda: logged_steps(out), 120)
    pids = [job.pid] if ranks == 1 else ranks_of(out).values()
    environments = [pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0") for pid in pids]
    name = pathlib.Path(f"/proc/{job.pid}/comm").read_text().strip()
    job.send_signal(signal.SIGTERM)
    job.communicate(timeout=60)
    if len(environments) != ranks or not all(b"GOMP_SPINCOUNT=1000" in variables for variables in environments):
        raise SystemExit(f"threads, ranks {ranks}: no spin count")
    if not pathlib.Path(longhaul).name.startswith(name):
        raise SystemExit(f"threads, ranks {ranks}: the process is called {name}")
    print(f"threads, ranks {ranks}: soon sleep when they wait")


def reader_gone(longhaul, work, ranks):
    out = work / f"unread_{ranks}"
    job = start(longhaul, work, out, "--max_steps", 60, ranks=ranks)
    job.stdout.readline()
    job.stdout.close()
    errors = job.stderr.read()
    if job.wait(timeout=120) != 0 or errors or not (out / "checkpoint-60").is_dir():
        raise SystemExit(f"reader gone: status {job.returncode}, stderr:\n{errors}")
    print(f"reader of standard output gone, ranks {ranks}: trained to the end")


def file_limit(longhaul, work):
    out = work / "limited"
    job = start(longhaul, work, out, ranks=1)
    wait_for("a checkpoint", lambda: checkpoints(out), 120)
    weights = (checkpoints(out)[0] / "adapter_model.safetensors").stat().st_size
    resource.prlimit(job.pid, resource.RLIMIT_FSIZE, (weights - 1, weights - 1))
    _, errors = job.communicate(timeout=60)
    lines = errors.splitlines()
    if job.returncode != 3 or len(lines) != 1 or "cannot write: File too large" not in lines[0]:
        raise SystemExit(f"file-size limit: status {job.returncode}, stderr:\n{errors}")
    if any(path.name.startswith(".tmp") for path in out.iterdir()):
        raise SystemExit(f"file-size limit: left behind: {list(out.iterdir())}")
    print(f"file-size limit: {lines[0]}")
    interrupted(longhaul, work, out, signal.SIGTERM, ranks=1)


def unwritable(longhaul, work):
    blocked = work / "blocked"
    blocked.write_text("a file where the run folder should be\n")
    job = start(longhaul, work, blocked / "out")
    _, errors = job.communicate(timeout=60)
    lines = [line for line in errors.splitlines() if line]
    if job.returncode != 3 or len(lines) != 1:
        raise SystemExit(f"unwritable folder: status {job.returncode}, stderr:\n{errors}")
    print(f"unwritable folder: {lines[0]}")


def options_differ(longhaul, work):
    """Ranks started by hand, as on two hosts, with different options or different data."""
    other = work / "other_chats.jsonl"
    other.write_text((work / "chats.jsonl").read_text().replace(" cat", " dog"))
    common = ["--model", work / "model", "--max_length", 400, "--cache_dir", work / "cache"]
    common += ["--torch_dtype", "float32", "--sequence_parallel_size", 2, "--output_dir", work / "differ"]
    cases = {
        "--learning_rate: differs between the ranks": [["--learning_rate", "1e-4"], ["--learning_rate", "2e-4"]],
        "--sequence_parallel_size: differs between the ranks": [[], ["--sequence_parallel_size", 1]],
        "data: differs between the ranks": [[], ["--dataset", other]],
    }
    for message, both in cases.items():
        command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]
        for rank, own in enumerate(both):
            command += [":"] if rank else []
            command += ["-np", 1, longhaul, "sft", "--dataset", work / "chats.jsonl", *common, *own]
        environment = dict(os.environ, OMP_NUM_THREADS="1")
        job = subprocess.run([str(w) for w in command], env=environment, capture_output=True, text=True, timeout=120)
        lines = [line for line in job.stderr.splitlines() if line.startswith("longhaul: error: ")]
        if job.returncode != 2 or len(lines) != 1 or message not in lines[0]:
            raise SystemExit(f"{message}: status {job.returncode}, stderr:\n{job.stderr}")
        print(lines[0])
    if (work / "differ").exists():
        raise SystemExit("ranks that differ wrote a run folder")


def main():
    longhaul, work = sys.argv[1], pathlib.Path(sys.argv[2])
    shutil.rmtree(work, ignore_errors=True)
    tiny.write_model(work / "model", "smol")
    tiny.write_chats(work / "chats.jsonl", 64)
    out = killed_rank(longhaul, work)
    out = interrupted(longhaul, work, out, signal.SIGINT)
    out = interrupted(longhaul, work, out, signal.SIGHUP)
    interrupted(longhaul, work, out, signal.SIGHUP, ranks=1)
    for ranks in (1, 2):
        threads_sleep(longhaul, work, ranks)
        hangup_under_nohup(longhaul, work, ranks)
        reader_gone(longhaul, work, ranks)
    file_limit(longhaul, work)
    unwritable(longhaul, work)
    options_differ(longhaul, work)
    shutil.rmtree(work)


if __name__ == "__main__":
    main()
