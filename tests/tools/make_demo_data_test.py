#!/usr/bin/env python3
"""tools/make_demo_data.py: what becomes of a manual page, and what the demo's files promise."""

import gzip
import importlib.util
import json
import pathlib
import tempfile
import unittest

from tokenizers import Tokenizer

ROOT = pathlib.Path(__file__).resolve().parents[2]
SPEC = importlib.util.spec_from_file_location("make_demo_data", ROOT / "tools/make_demo_data.py")
tool = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(tool)

PAGE = r""".TH SQUARE 3 2020-01-01 "Manual" "Library calls"
.SH NAME
square, squaref \- multiply a number by itself
.SH SYNOPSIS
.B double square(double x);
.SH DESCRIPTION
These functions multiply a number
by itself, and so on.
"""


def rows(name):
    return [
        json.loads(line)["messages"]
        for line in (ROOT / "demo/data" / name).read_text(encoding="utf-8").splitlines()
    ]


class MakeDemoData(unittest.TestCase):
    def page(self, source):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "square.3.gz"
            path.write_bytes(gzip.compress(source.encode()))
            return tool.split_page(tool.render(path))

    def test_description_is_the_answer_and_nowhere_in_the_text(self):
        body, description = self.page(PAGE)
        self.assertEqual(description, "multiply a number by itself")
        self.assertNotIn("itself", body)
        self.assertNotIn("NAME", body)
        self.assertTrue(body.startswith("SYNOPSIS\n       double square(double x);"), body)

    def test_page_that_points_to_another_is_left_out(self):
        self.assertIsNone(self.page(".so man3/sqrt.3\n"))

    def test_page_without_a_description_is_left_out(self):
        self.assertIsNone(self.page(PAGE.replace(r"\- multiply a number by itself", "")))

    def test_full_data_are_long_and_no_page_is_in_both_sets(self):
        train, val = rows("train.jsonl"), rows("val.jsonl")
        self.assertGreaterEqual(len(train), 300)
        self.assertGreaterEqual(len(val), 40)
        tokenizer = Tokenizer.from_file(str(ROOT / "demo/model/tokenizer.json"))
        lengths = [len(tokenizer.encode(row[0]["content"]).ids) for row in train]
        self.assertGreater(sum(n > 1500 for n in lengths), len(lengths) / 2)
        self.assertGreater(sum(n > 8192 for n in lengths), 10)
        self.assertTrue(
            {row[0]["content"] for row in train}.isdisjoint(row[0]["content"] for row in val)
        )

    def test_half_of_the_demo_rows_are_longer_than_one_rank_holds(self):
        tokenizer = Tokenizer.from_file(str(ROOT / "demo/model/tokenizer.json"))
        lengths = [
            sum(len(tokenizer.encode(m["content"]).ids) for m in row)
            for row in rows("demo_train.jsonl")
        ]
        self.assertGreaterEqual(sum(n > 1536 for n in lengths), len(lengths) / 2)
        self.assertLess(max(lengths), 3000)
        val = [
            sum(len(tokenizer.encode(m["content"]).ids) for m in row)
            for row in rows("demo_val.jsonl")
        ]
        self.assertEqual(len(val), 8)
        self.assertLess(max(val), 1500)


if __name__ == "__main__":
    unittest.main()
