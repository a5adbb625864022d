# SPDX-License-Identifier: Apache-2.0
"""Runs the reproducers of docs/jax-compatibility.md on the platform of JAX_PLATFORMS.

A section of that page is an entry if it has a python block, followed by a line "On the cluster:
`text`". The last line of output is JSON: {entry: {"expected": text, "lines": those of the block,
"seen": its exception, "" for none}}.
"""

import json
import pathlib
import re
import sys

PAGE = pathlib.Path(__file__).resolve().parents[3] / "docs" / "jax-compatibility.md"
ENTRY = re.compile(
    r"^### (?P<entry>.+)\n(?:(?!#).*\n)*?```python\n(?P<code>[\s\S]*?)```\n\s*"
    r"On the cluster: `(?P<expected>[^`]+)`", re.MULTILINE)


def entries(text):
    """Returns [(entry, code, expected text)] of the page."""
    return [(m["entry"], m["code"], m["expected"]) for m in ENTRY.finditer(text)]


def seen(entry, code):
    try:
        exec(compile(code, entry, "exec"), {})  # each in a namespace of its own
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def main():
    found = {
        entry: {"expected": expected, "lines": len(code.splitlines()), "seen": seen(entry, code)}
        for entry, code, expected in entries(PAGE.read_text(encoding="utf-8"))
    }
    sys.stdout.flush()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
