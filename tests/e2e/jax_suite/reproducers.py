# SPDX-License-Identifier: Apache-2.0
"""Runs the reproducers of docs/jax-compatibility.md where JAX_PLATFORMS says.

A section of that page is an entry if it has a python block; behind the block stands a line
"On the cluster: `text`". Printed: {entry: {"expected": text, "lines": of the block, "seen": what it
raised, "" for nothing}} in JSON, as the last line.
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
    """[(entry, code, expected text)] of the page."""
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
