"""clang-tidy on several sources at once, which takes a fifth of the time: most of it goes to the headers they share.

usage: tidy_batch.py CLANG_TIDY CXX SOURCE_DIR STAMP FILE… -- FLAG…
The sources are joined into STAMP.cpp; findings are shown with the file and line they come from. On success STAMP is
touched and STAMP.d names the headers, so that a changed one runs the batch again. The analyzer follows at most so many
states per function: enough for its findings here, a quarter of the time.
"""

import pathlib
import re
import subprocess
import sys

MAX_NODES = 10000


def joined(files, target):
    """Writes the sources one after the other; gives for each its first line in `target`."""
    starts, text, line = [], [], 1
    for file in files:
        source = pathlib.Path(file).read_text()
        # A macro definition makes clang-tidy forget the includes so far, which another file may repeat.
        source = "#define LONGHAUL_NEXT_FILE\n#undef LONGHAUL_NEXT_FILE\n" + source.rstrip("\n") + "\n"
        starts.append((line + 2, file))
        text.append(source)
        line += source.count("\n")
    target.write_text("".join(text))
    return starts


def with_places(report, target, starts):
    """The report with places in the sources instead of places in `target`."""

    def place(match):
        line = int(match[1])
        first, file = max(start for start in starts if start[0] <= line)
        return f"{file}:{line - first + 1}:"

    return re.sub(rf"{re.escape(str(target))}:(\d+):", place, report)


def main():
    words = sys.argv[1:]
    split = words.index("--")
    (clang_tidy, cxx, source_dir, stamp), files, flags = words[:4], words[4:split], words[split + 1 :]
    target = pathlib.Path(f"{stamp}.cpp")
    starts = joined(files, target)
    extra = [f"-include{source_dir}/tests/lint/source_location_for_clang14.h", "-Wno-unknown-warning-option"]
    extra += ["-Xclang", "-analyzer-config", "-Xclang", f"max-nodes={MAX_NODES}"]
    command = [clang_tidy, "--quiet", f"--config-file={source_dir}/.clang-tidy", str(target), "--", *flags, *extra]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode:
        noise = re.compile(r"^(\d+ warnings? (and \d+ errors? )?generated|Suppressed|Use -header-filter)")
        lines = with_places(run.stdout + run.stderr, target, starts).splitlines()
        print("\n".join(line for line in lines if not noise.match(line)), file=sys.stderr)
        return 1
    subprocess.run([cxx, *flags, "-MM", "-MF", f"{stamp}.d", "-MT", stamp, str(target)], check=True)
    pathlib.Path(stamp).touch()
    return 0


if __name__ == "__main__":
    sys.exit(main())
