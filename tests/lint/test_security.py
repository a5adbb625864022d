# SPDX-License-Identifier: Apache-2.0
"""What docs/security.md says is shown by a test is shown by one that exists."""

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
NAMED = re.compile(r"`([\w./]+)::(\w+)`")


def named(text):
    return NAMED.findall(text)


def exists(path, name):
    file = ROOT / path
    if not file.is_file():
        return False
    defined = rf"^def {name}\(" if path.endswith(".py") else rf"^TEST(_F|_P)?\(\s*\w+,\s*{name}\)"
    return re.search(defined, file.read_text(encoding="utf-8"), re.M) is not None


def protections():
    """The rows of the table of what is protected."""
    page = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    rows = page.partition("## What is protected")[2].partition("\n## ")[0].splitlines()
    return [row for row in rows if row.startswith("|")][2:]


def test_each_protection_names_a_test_that_exists():
    rows = protections()
    assert len(rows) > 10
    missing = [row for row in rows if not named(row)]
    assert not missing, missing
    wrong = [f"{path}::{name}" for row in rows for path, name in named(row) if not exists(path, name)]
    assert not wrong, wrong


def test_a_test_that_does_not_exist_is_found():
    assert exists("tests/lint/test_security.py", "test_a_test_that_does_not_exist_is_found")
    assert not exists("tests/lint/test_security.py", "test_that_nobody_wrote")
    assert not exists("no/such_test.cc", "Anything")
    assert exists("transport/channel_test.cc", "ACutIsNotAnEnd")
    assert not exists("transport/channel_test.cc", "ACut")
