#!/usr/bin/env python3
"""The counter of ./run-tests: a test that failed, did not run or was disabled is never counted as passed."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

COUNTER = pathlib.Path(__file__).with_name("count_tests.py")


class CountTests(unittest.TestCase):
    def count(self, *statuses):
        cases = "".join(
            f'<testcase name="t{i}" status="{status}"/>' for i, status in enumerate(statuses)
        )
        with tempfile.NamedTemporaryFile("w", suffix=".xml") as report:
            report.write(f"<testsuite>{cases}</testsuite>")
            report.flush()
            return subprocess.run(
                [sys.executable, COUNTER, report.name], capture_output=True, text=True, check=True
            ).stdout

    def test_everything_passed(self):
        self.assertEqual(self.count("run", "run"), "2 0\n")

    def test_skipped_and_disabled_count_as_failed(self):
        self.assertEqual(
            self.count("run", "fail", "notrun", "disabled"),
            "1 3\nt1\nt2 (did not run)\nt3 (disabled)\n",
        )


if __name__ == "__main__":
    unittest.main()
