#!/usr/bin/env python3
"""Holds the folder table of docs/architecture.md: include directions, CMake DEPS, who may see libtorch, who may print.

A folder includes only itself and the folders that its row names; its CMakeLists.txt reaches what it includes.
"""

import re

from sources import ROOT, finish

ROW = re.compile(r"^\| (\d) \| `(\w+)`( \*\*T\*\*)? \|[^|]*\|\s*([^|]*?)\s*\|$", re.MULTILINE)
INCLUDE = re.compile(r'^\s*#\s*include\s+[<"]([^>"]+)[>"]', re.MULTILINE)
TORCH_HEADER = re.compile(r"^(ATen|c10|torch|caffe2)/")
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
# Words that only src/cli may use; the second column names the files that may, too.
RESERVED = {
    r"\bstd::c(?:out|err)\b|\bfmt::print\(|\bprintf\(|\bfputs\(|\bputs\(": (),
    r"\bstd::(?:_Exit|exit|abort|quick_exit)\(|(?<![\w.>:])exit\(": (),
    # Signal handlers, and a child between fork and exec.
    r"(?<![\w.>])_exit\(": ("src/dist/",),
    r"\b(?:std::)?(?:secure_)?getenv\(": ("src/dist/",),
}


def read_table():
    """{folder: (level, sees torch, folders it may include)}"""
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    table = {}
    for level, folder, torch, allowed in ROW.findall(text):
        names = set(re.findall(r"`(\w+)`", allowed))
        table[folder] = (int(level), bool(torch), names)
    return table


def check_table(table):
    findings = []
    for folder, (level, _, allowed) in table.items():
        for other in sorted(allowed):
            if other not in table:
                findings.append(
                    f"docs/architecture.md: {folder} may include {other}, which has no row"
                )
            elif table[other][0] >= level:
                findings.append(
                    f"docs/architecture.md: {folder} (level {level}) may not include {other} (level {table[other][0]})"
                )
    for path in sorted((ROOT / "src").iterdir()):
        if path.is_dir() and path.name not in table:
            findings.append(f"src/{path.name}: no row in the folder table of docs/architecture.md")
    return findings


def check_file(path, folder, table, deps):
    text = path.read_text(encoding="utf-8")
    name = path.relative_to(ROOT)
    _, torch, allowed = table[folder]
    findings = []
    for include in INCLUDE.findall(text):
        other = include.split("/")[0]
        if TORCH_HEADER.match(include) and not torch:
            findings.append(
                f"{name}: includes {include}, but {folder} is a folder without libtorch"
            )
        elif "/" in include and other in table and other != folder:
            if other not in allowed:
                findings.append(
                    f"{name}: includes {include}; {folder} may include {', '.join(sorted(allowed)) or 'nothing'}"
                )
            elif other not in deps:
                findings.append(
                    f"{name}: includes {include}, but the DEPS of src/{folder}/CMakeLists.txt do not reach {other}"
                )
    if folder != "cli":
        code = COMMENT.sub("", text)
        for pattern, exempt in RESERVED.items():
            for found in re.finditer(pattern, code):
                if not str(name).startswith(exempt or ("\0",)):
                    findings.append(f"{name}: {found.group(0)} belongs in src/cli only")
    return findings


def read_lists(table):
    """{folder: text of its CMakeLists.txt without comments}"""
    paths = {folder: ROOT / "src" / folder / "CMakeLists.txt" for folder in table}
    return {
        folder: re.sub(r"#[^\n]*", "", path.read_text(encoding="utf-8"))
        for folder, path in paths.items()
        if path.exists()
    }


def direct_dependencies(cmake, table):
    """The folders of the targets that a CMakeLists.txt names (longhaul::train_files is of folder train)."""
    targets = set(re.findall(r"longhaul::(\w+)", cmake))
    return {
        folder for folder in table for t in targets if t == folder or t.startswith(folder + "_")
    }


def reachable(folder, direct):
    found, todo = set(), [folder]
    while todo:
        new = direct.get(todo.pop(), set()) - found
        found |= new
        todo += new
    return found


def main():
    table = read_table()
    findings, checked = check_table(table), 0
    lists = read_lists(table)
    direct = {folder: direct_dependencies(cmake, table) for folder, cmake in lists.items()}
    for folder, (_, torch, allowed) in table.items():
        cmake = lists.get(folder, "")
        for extra in sorted(direct.get(folder, set()) - allowed - {folder}):
            findings.append(
                f"src/{folder}/CMakeLists.txt: depends on {extra}, which its row does not allow"
            )
        if not torch and re.search(r"\bTORCH\b|torch::", cmake):
            findings.append(
                f"src/{folder}/CMakeLists.txt: uses torch, but {folder} is a folder without libtorch"
            )
        for path in sorted((ROOT / "src" / folder).rglob("*")):
            if path.suffix in (".h", ".cpp", ".cu", ".cuh"):
                checked += 1
                findings += check_file(path, folder, table, reachable(folder, direct))
    finish(findings, checked)


if __name__ == "__main__":
    main()
