#!/usr/bin/env python3
"""Every src/<folder>/<file>.cpp has tests/<folder>/<file>_test.cpp, or a line in mirror_exemptions.txt.

A line there is `source  test  reason`: the file that tests it instead, which must exist. `*` in the source stands
for any text.
"""

import pathlib

from sources import ROOT, finish

EXEMPTIONS = pathlib.Path(__file__).with_name("mirror_exemptions.txt")


def read_exemptions():
    """({source: test}, findings)"""
    exempt, findings = {}, []
    for number, line in enumerate(EXEMPTIONS.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        parts = line.split(maxsplit=2)
        if len(parts) < 3:
            findings.append(f"{EXEMPTIONS.name}:{number}: expected source, test and reason")
            continue
        source, test = parts[:2]
        matched = [str(p.relative_to(ROOT)) for p in ROOT.glob(source)]
        if not matched or not (ROOT / test).exists():
            findings.append(f"{EXEMPTIONS.name}:{number}: {source} or {test} does not exist")
        exempt.update({name: test for name in matched})
    return exempt, findings


def main():
    exempt, findings = read_exemptions()
    checked = 0
    for path in sorted((ROOT / "src").glob("*/*.cpp")):
        checked += 1
        source = str(path.relative_to(ROOT))
        test = f"tests/{path.parent.name}/{path.stem}_test.cpp"
        has_test = (ROOT / test).exists()
        if source in exempt and has_test:
            findings.append(
                f"{EXEMPTIONS.name}: {source} has a test of its own now; remove its line"
            )
        elif source not in exempt and not has_test:
            findings.append(f"{source}: no {test}, and no line in tests/lint/{EXEMPTIONS.name}")
    finish(findings, checked)


if __name__ == "__main__":
    main()
