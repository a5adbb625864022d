# SPDX-License-Identifier: Apache-2.0
"""Puts the table of values into the chart's README.md: each key of values.yaml, its default, and the comment above it."""

import pathlib
import re
import sys

CHART = pathlib.Path(__file__).resolve().parent / "fairway"
README = CHART / "README.md"
BEGIN, END = "<!-- Made by ../readme.py from values.yaml. -->\n", "<!-- End of what ../readme.py makes. -->\n"


def rows():
    """(path, default, meaning) of each key that has a comment; others are the parents of such keys, or examples."""
    path, comment, found = [], [], []
    for line in (CHART / "values.yaml").read_text(encoding="utf-8").splitlines():
        about = re.fullmatch(r" *# (.*)", line)
        key = re.fullmatch(r"( *)([A-Za-z]+):(?: (.*))?", line)
        if about:
            comment.append(about[1])
            continue
        if key:
            depth = len(key[1]) // 2
            path[depth:] = [key[2]]
            if comment:
                found.append((".".join(path), key[3] or "", " ".join(comment)))
        comment = []
    return found


def written():
    """The README with the table of now."""
    lines = ["| value | default | meaning |", "|---|---|---|"]
    for path, default, meaning in rows():
        shown = f"`{default}`" if default else ""
        lines.append(f"| `{path}` | {shown} | {meaning.replace('|', chr(92) + '|')} |")
    head, _, rest = README.read_text(encoding="utf-8").partition(BEGIN)
    if not rest or END not in rest:
        sys.exit(f"{README}: has not the two lines between which the table belongs: {BEGIN}{END}")
    return head + BEGIN + "\n".join(lines) + "\n" + END + rest.partition(END)[2]


if __name__ == "__main__":
    README.write_text(written(), encoding="utf-8")
