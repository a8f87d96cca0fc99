"""Writes src/text/unicode_delta.inc: code points assigned after Unicode 14 with their general category.

The reference is the regular-expression engine inside the PyPI package `tokenizers` (Unicode 16 in 0.23); the
base is Python 3.11's unicodedata, which like PCRE2 10.42 knows Unicode 14. Run: make_unicode_delta.py OUTPUT
"""

import sys
import unicodedata

import tokenizers
from tokenizers import Regex, pre_tokenizers

CATEGORIES = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp".split()


def members(category):
    """Code points that the reference engine puts into \\p{category}."""
    split = pre_tokenizers.Split(Regex(r"\p{%s}" % category), "removed")
    found = set()
    for base in range(0, 0x110000, 0x400):
        points = [c for c in range(base, base + 0x400) if not 0xD800 <= c < 0xE000]
        if points:
            text = "".join(map(chr, points))
            kept = set("".join(piece for piece, _ in split.pre_tokenize_str(text)))
            found.update(c for c in points if chr(c) not in kept)
    return found


def main():
    assert unicodedata.unidata_version == "14.0.0", "run with Python 3.11"
    ranges = []
    for category in CATEGORIES:
        for point in sorted(members(category)):
            if unicodedata.category(chr(point)) != "Cn":
                continue
            if ranges and ranges[-1][1] == point - 1 and ranges[-1][2] == category:
                ranges[-1][1] = point
            else:
                ranges.append([point, point, category])
    ranges.sort()
    with open(sys.argv[1], "w", encoding="utf-8") as out:
        out.write(f"// Made by tests/golden/text/make_unicode_delta.py with tokenizers {tokenizers.__version__}.\n")
        out.write("// Code points assigned after Unicode 14: first, last, general category.\n")
        for first, last, category in ranges:
            out.write(f'{{0x{first:X}, 0x{last:X}, "{category}"}},\n')


if __name__ == "__main__":
    main()
