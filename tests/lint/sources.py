"""What every check of this folder shares: the project's files and how a finding is reported."""

import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
SKIPPED_FOLDERS = {".git", ".venv", ".venv-oracle", ".cache", "build", "demo", "output"}


def project_files():
    """Every file that git tracks or would add; without git, every file outside the generated folders."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        names = listed.stdout.splitlines() if listed.returncode == 0 else None
    except FileNotFoundError:
        names = None
    if names is not None:
        return sorted(ROOT / name for name in names if (ROOT / name).is_file())
    return sorted(
        p
        for p in ROOT.rglob("*")
        if p.is_file() and SKIPPED_FOLDERS.isdisjoint(p.relative_to(ROOT).parts)
    )


def finish(findings, checked):
    """Prints the findings and ends the process: 1 where there is one, or where nothing was checked at all."""
    for finding in findings:
        print(finding)
    if checked == 0:
        print("nothing was checked: has a folder been renamed?")
    print(f"{checked} checked, {len(findings)} findings")
    sys.exit(1 if findings or checked == 0 else 0)
