#!/usr/bin/env python3
"""Runs the text cases of one .test file against the program.

    # comment
    file model/config.json      files that every case below finds in its fresh folder, up to a line `end`
    {"model_type": "llama"}
    end
    bytes sys.txt caf\xe9       the same in one line, with Python's escapes
    link loop loop              a symbolic link

    case a name for the reader
    env NPROC_PER_NODE=2        variables of the case ({here}: its folder); the launch variables of the caller are removed
    env HOME                    a variable that is not set
    run sft --model model       words as a shell splits them
    run~ sft --model '\xff'     the same with Python's escapes in the words
    exit 2                      expected code, 0 by default
    error --dataset: missing    an expected line on standard error, after `longhaul: error: `
    error~ REGEX                the same, searched
    out REGEX                   searched in standard output (several: each must be found)
    only REGEX                  every line of standard output matches it wholly
    alone                       the program runs as a copy, with none of its shared objects near it
    stdout /dev/full            standard output goes to that file
    unread                      standard output is a pipe that nobody reads any more; `exit -13` is the signal SIGPIPE
    leaves nothing              the case writes no file, though it succeeds
    within 10                   seconds, 20 by default

Standard error must consist of exactly the expected lines (in any order), a failing case must write nothing to standard
output and leave no new file or folder behind, and nothing may outlive the case.

Usage: run_cases.py PROGRAM FILE [CASE-REGEX]
"""

import contextlib
import dataclasses
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time

LAUNCH = re.compile(r"^(OMPI_|PMIX?_|SLURM_|NPROC_PER_NODE|NNODES|NODE_RANK|MASTER_|RANK$|LOCAL_|WORLD_SIZE|HF_|LONGHAUL_|XDG_)")
PREFIX = "longhaul: error: "


@dataclasses.dataclass
class Case:
    name: str
    line: int
    files: dict
    env: dict = dataclasses.field(default_factory=dict)
    words: list = dataclasses.field(default_factory=list)
    code: int = 0
    errors: list = dataclasses.field(default_factory=list)  # (text, is a regular expression)
    out: list = dataclasses.field(default_factory=list)
    only: str = ""
    leaves_nothing: bool = False
    alone: bool = False
    unread: bool = False
    stdout: str = ""
    within: float = 20.0


def read_cases(path):
    """The file's cases; files accumulate from top to bottom."""
    files, cases = {}, []
    lines = iter(enumerate(path.read_text(encoding="utf-8").splitlines(), 1))
    for number, line in lines:
        key, _, value = line.partition(" ")
        name, _, content = value.partition(" ")
        if not line.strip() or line.startswith("#"):
            continue
        if key == "file":
            text = []
            for _, inner in lines:
                if inner == "end":
                    break
                text.append(inner)
            files = {**files, value: "\n".join(text) + "\n"}
        elif key == "bytes":
            files = {**files, name: unescape(content)}
        elif key == "link":
            files = {**files, name: pathlib.Path(content)}
        elif key == "case":
            cases.append(Case(value, number, files))
        elif not cases:
            sys.exit(f"{path}:{number}: before the first case")
        else:
            read_step(path, number, key, value, cases[-1])
    return cases


def unescape(text):
    return text.encode("latin-1").decode("unicode_escape").encode("latin-1")


def read_step(path, number, key, value, case):
    if key == "env":
        name, is_set, text = value.partition("=")
        case.env[name] = text if is_set else None
    elif key == "run":
        case.words = shlex.split(value)
    elif key == "run~":
        case.words = [os.fsdecode(unescape(word)) for word in shlex.split(value)]
    elif key == "exit":
        case.code = int(value)
    elif key in ("error", "error~"):
        case.errors.append((value, key == "error~"))
    elif key == "out":
        case.out.append(value)
    elif key == "only":
        case.only = value
    elif key == "leaves":
        case.leaves_nothing = True
    elif key in ("alone", "unread"):
        setattr(case, key, True)
    elif key == "stdout":
        case.stdout = value
    elif key == "within":
        case.within = float(value)
    else:
        sys.exit(f"{path}:{number}: unknown step {key}")


def snapshot(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def unmatched_errors(case, lines):
    """Expected lines that did not come and lines that were not expected."""
    left = list(lines)
    missing = []
    for text, is_regex in case.errors:
        def fits(line):
            body = line.removeprefix(PREFIX)
            return line.startswith(PREFIX) and (re.search(text, body) is not None if is_regex else body == text)

        found = next((line for line in left if fits(line)), None)
        if found is None:
            missing.append("missing on standard error: " + PREFIX + text)
        else:
            left.remove(found)
    return missing + ["unexpected on standard error: " + line for line in left]


def check(case, result, seconds, new_files):
    faults = []
    if result.returncode != case.code:
        faults.append(f"exit code {result.returncode}, expected {case.code}")
    if case.code != 0 or case.errors or result.stderr:
        faults += unmatched_errors(case, result.stderr.splitlines())
    if case.code != 0:
        faults += ["unexpected on standard output: " + line for line in result.stdout.splitlines()]
    if case.code != 0 or case.leaves_nothing:
        # The token cache named by the case is the user's to keep; everything else must be as before.
        faults += ["left behind: " + name for name in sorted(new_files) if name.split("/")[0] != "cache"]
    for pattern in case.out:
        if not re.search(pattern, result.stdout, re.MULTILINE):
            faults.append(f"not on standard output: {pattern}\n{result.stdout}")
    if case.only:
        faults += ["not as expected: " + line for line in result.stdout.splitlines() if not re.fullmatch(case.only, line)]
    if seconds > case.within:
        faults.append(f"took {seconds:.1f} s, at most {case.within}")
    return faults


def put(target, content):
    target.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, pathlib.Path):
        target.symlink_to(content)
    elif isinstance(content, bytes):
        target.write_bytes(content)
    else:
        target.write_text(content, encoding="utf-8")


def place_of(program, case, stack):
    """The program itself, or a copy so deep in a folder of its own that what it looks for near itself is not there."""
    if not case.alone:
        return program
    folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory())) / "without" / "objects"
    folder.mkdir(parents=True)
    return shutil.copy(program, folder)


def output_of(case, stack):
    if case.stdout:
        return stack.enter_context(open(case.stdout, "w"))
    if case.unread:
        reader, writer = os.pipe()
        os.close(reader)
        stack.callback(os.close, writer)
        return writer
    return subprocess.PIPE


def run(program, case):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for path, content in case.files.items():
            put(folder / path, content)
        before = snapshot(folder)
        env = {key: value for key, value in os.environ.items() if not LAUNCH.match(key)}
        for key, value in {"HOME": name, **case.env}.items():
            env.pop(key, None)
            if value is not None:
                env[key] = value.replace("{here}", name)
        start = time.monotonic()
        try:
            with contextlib.ExitStack() as stack:
                result = subprocess.run([place_of(program, case, stack), *case.words], cwd=folder, env=env, text=True,
                                        errors="replace", stdin=subprocess.DEVNULL, stdout=output_of(case, stack),
                                        stderr=subprocess.PIPE, timeout=case.within + 30, check=False)
        except subprocess.TimeoutExpired:
            return ["does not end"]
        result.stdout = result.stdout or ""
        return check(case, result, time.monotonic() - start, snapshot(folder) - before)


def main():
    program, path = os.path.abspath(sys.argv[1]), pathlib.Path(sys.argv[2])
    chosen = re.compile(sys.argv[3] if len(sys.argv) > 3 else "")
    failed = 0
    cases = [case for case in read_cases(path) if chosen.search(case.name)]
    for case in cases:
        faults = run(program, case)
        failed += bool(faults)
        for fault in faults:
            print(f"{path.name}:{case.line}: {case.name}: {fault}")
    print(f"{path.name}: {len(cases) - failed} of {len(cases)} cases pass")
    sys.exit(1 if failed or not cases else 0)


if __name__ == "__main__":
    main()
