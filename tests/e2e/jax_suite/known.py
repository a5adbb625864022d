# SPDX-License-Identifier: Apache-2.0
"""Known differences: known.toml beside this file, explained in docs/jax-compatibility.md."""

import dataclasses
import fnmatch
import pathlib
import re
import tomllib

TABLE = pathlib.Path(__file__).resolve().with_name("known.toml")
# Outcomes that no difference may be excused for.
WRONG_VALUE = re.compile(
    r"Not equal to tolerance|Arrays are not (almost )?equal|Mismatched elements|not close to")


@dataclasses.dataclass
class Known:
    """entry: a heading of docs/jax-compatibility.md. tests: globs over "file::Class::test". text: a
    regular expression that the failure must contain."""

    entry: str
    tests: list[str]
    text: re.Pattern

    def explains(self, test, why):
        return self.text.search(why) is not None and any(
            fnmatch.fnmatchcase(test, pattern) for pattern in self.tests)


def load():
    return load_text(TABLE.read_text(encoding="utf-8"))


def load_text(text):
    table = tomllib.loads(text)
    return [Known(row["entry"], row.get("tests", ["*"]), re.compile(row.get("text", "")))
            for row in table["difference"]]


def kind(result):
    """The failure of a test that should have passed, from its Result."""
    if result.outcome in ("crashed", "hung", "skipped", "missing"):
        return result.outcome
    return "wrong value" if WRONG_VALUE.search(result.why) else "error"


def explain(known, test, result):
    """The entry that explains why `test` did not pass; None: it is a new difference."""
    if kind(result) in ("crashed", "hung", "wrong value"):
        return None
    return next((row.entry for row in known if row.explains(test, result.why)), None)
