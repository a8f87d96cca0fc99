#!/usr/bin/env python3
"""Counts a ctest JUnit report: the line `PASSED FAILED`, then one line per test that failed.

A test that did not run, or skipped itself, counts as failed: nothing is skipped silently.
"""

import sys
import xml.etree.ElementTree as ElementTree


def main():
    passed, failed = 0, []
    for case in ElementTree.parse(sys.argv[1]).getroot().iter("testcase"):
        status = case.get("status")
        if status == "run":
            passed += 1
        else:
            what = {"fail": "", "notrun": " (did not run)", "disabled": " (disabled)"}.get(
                status, f" ({status})"
            )
            failed.append(case.get("name") + what)
    print(passed, len(failed))
    for name in failed:
        print(name)


if __name__ == "__main__":
    main()
