# SPDX-License-Identifier: Apache-2.0
"""Notices: one line each, once, and none where the user wants none."""

import subprocess
import sys

import pytest

SAY = "from fairway import notices\n"


def run(code, **environment):
    done = subprocess.run([sys.executable, "-c", SAY + code], env=environment, text=True,
                          capture_output=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    return done.stderr


def test_a_notice_is_one_line_and_comes_once():
    assert run("for _ in range(2): notices.say('k', 'a\\nb')\nnotices.say('l', 'c')") == (
        "fairway: a b\nfairway: c\n")


@pytest.mark.parametrize("value, silent", [("1", True), ("yes", True), ("0", False), ("", False)])
def test_one_variable_silences_all(value, silent):
    written = run("notices.say('k', 'a'); notices.write('b')", FAIRWAY_QUIET=value)
    assert written == ("" if silent else "fairway: a\nfairway: b\n")


@pytest.mark.parametrize("spoil", ["sys.stderr = None", "sys.stderr.close()"])
def test_without_standard_error_nothing_fails(spoil):
    assert run(f"import sys\n{spoil}\nassert not notices.say('k', 'a')\nassert not notices.seen()",
               ) == ""
