#!/usr/bin/env python3
"""Files of at most 500 lines, functions of at most 60; the root CMakeLists.txt at most 90, README.md at most 120.

C++ functions are found by clang-format's layout: a body closes with a brace in the column where it began.
"""

import ast
import re

from sources import ROOT, finish, project_files

MAX_FILE, MAX_FUNCTION = 500, 60
OWN_LIMITS = {"CMakeLists.txt": 90, "README.md": 120, "src/train/trainer.cpp": 300}
CODE = {".cpp", ".h", ".cu", ".cuh", ".py", ".sh", ".cmake"}
NOT_A_FUNCTION = re.compile(
    r"^\s*(namespace|struct|class|enum|union|extern|using|#|//|\}|\)|public|private|protected)"
)


def cpp_functions(lines):
    """[(first line, length)] of functions in namespaces (column 0) and in classes (column 2)."""
    result = []
    for indent in ("", "  "):
        for end, line in enumerate(lines):
            if line != indent + "}":
                continue
            start = end - 1
            while start >= 0 and not (
                lines[start].startswith(indent)
                and lines[start][len(indent) :][:1].strip()
                and not lines[start][len(indent) :].startswith(("}", "#", ")", "//"))
            ):
                start -= 1
            if start >= 0 and not NOT_A_FUNCTION.match(lines[start]):
                result.append((start + 1, end - start + 1))
    return result


def python_functions(text):
    return [
        (node.lineno, node.end_lineno - node.lineno + 1)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    ]


def main():
    findings, checked = [], 0
    for path in project_files():
        name = str(path.relative_to(ROOT))
        limit = OWN_LIMITS.get(name, MAX_FILE if path.suffix in CODE else None)
        if limit is None:
            continue
        checked += 1
        text = path.read_text(encoding="utf-8")
        lines = text.splitlines()
        if len(lines) > limit:
            findings.append(f"{name}: {len(lines)} lines, at most {limit}")
        functions = (
            python_functions(text)
            if path.suffix == ".py"
            else cpp_functions(lines) if path.suffix in (".cpp", ".h", ".cu", ".cuh") else []
        )
        for line, length in functions:
            if length > MAX_FUNCTION:
                findings.append(
                    f"{name}:{line}: a function of {length} lines, at most {MAX_FUNCTION}"
                )
    finish(findings, checked)


if __name__ == "__main__":
    main()
