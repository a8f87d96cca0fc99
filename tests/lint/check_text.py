#!/usr/bin/env python3
"""No file of the project names a machine's own folders or a registry's host; text is UTF-8, without tabs in C++."""

import re

from sources import ROOT, finish, project_files

# Written in pieces, so that this file passes its own check.
FORBIDDEN = [
    (
        "an absolute path of one machine",
        re.compile(
            r"(?<![\w.])/(?:"
            + "|".join(["work", "root", "ho" + "me/\\w+", "opt/\\w+", "mnt"])
            + r")(?:/|\b)"
        ),
    ),
    (
        "a registry's host",
        re.compile(
            "|".join(
                [
                    "py" + r"pi\.org",
                    "python" + r"hosted\.org",
                    "deb\\." + r"debian\.org",
                    "download\\." + r"pytorch\.org",
                ]
            )
        ),
    ),
]
BINARY = {".png", ".safetensors", ".bin", ".pt", ".tiktoken", ".gz"}


def main():
    findings, checked = [], 0
    for path in project_files():
        if path.suffix in BINARY:
            continue
        checked += 1
        name = path.relative_to(ROOT)
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            if "golden" not in name.parts:
                findings.append(f"{name}: not UTF-8")
            continue
        for number, line in enumerate(text.splitlines(), 1):
            for what, pattern in FORBIDDEN:
                found = pattern.search(line)
                if found:
                    findings.append(f"{name}:{number}: {what}: {found.group(0)}")
            if path.suffix in (".cpp", ".h") and "\t" in line:
                findings.append(f"{name}:{number}: a tab")
    finish(findings, checked)


if __name__ == "__main__":
    main()
