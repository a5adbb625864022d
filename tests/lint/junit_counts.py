# SPDX-License-Identifier: Apache-2.0
"""junit_counts.py PHASE FILE: prints "TESTS FAILED SKIPPED" of a JUnit file, as ctest and pytest write them.

On its standard error it says which tests of that phase failed, and the end of what each said.
"""

import re
import sys
import xml.etree.ElementTree as ElementTree

# The output of tests may contain bytes that XML does not allow; ctest copies them.
_NOT_XML = re.compile(r"[^\t\n\r\x20-\uD7FF\uE000-\uFFFD]")
LINES, COLUMNS = 12, 200  # shown of what a failed test said


def _cases(text):
    return ElementTree.fromstring(_NOT_XML.sub("?", text)).iter("testcase")


def _failed(case):
    """A test that ctest could not start (no executable, a missing fixture) is a failure, too."""
    if case.find("failure") is not None or case.find("error") is not None:
        return True
    skip = case.find("skipped")
    return case.get("status") == "notrun" and "SKIP_" not in (skip.get("message") if skip is not None else "")


def counts(text):
    """Returns (tests, failed, skipped) of JUnit text.

    A disabled test, or one that skipped itself, is skipped. Text that is not XML counts as one failed test.
    """
    try:
        cases = list(_cases(text))
    except ElementTree.ParseError:
        return 1, 1, 0
    failed = [case for case in cases if _failed(case)]
    skipped = [case for case in cases if case not in failed and (
        case.get("status") in ("notrun", "disabled") or case.find("skipped") is not None)]
    return len(cases), len(failed), len(skipped)


def failures(name, text):
    """Returns lines: each failed test of the JUnit text, and the last lines that it said."""
    try:
        cases = [case for case in _cases(text) if _failed(case)]
    except ElementTree.ParseError:
        return [f"FAILED {name}: its results are no XML"]
    lines = []
    for case in cases:
        lines.append(f"FAILED {name}: {case.get('classname') or ''} {case.get('name')}")
        for found in (case.find("failure"), case.find("error"), case.find("skipped")):
            if found is None:
                continue
            # pytest puts what failed into the element; ctest puts all that was said beside it.
            said = (found.text or case.findtext("system-out") or found.get("message") or "").splitlines()
            lines += [f"    {line[:COLUMNS]}" for line in [one for one in said if one.strip()][-LINES:]]
            break
    return lines


if __name__ == "__main__":
    with open(sys.argv[2], encoding="utf-8", errors="replace") as file:
        content = file.read()
    print(*counts(content))
    for told in failures(sys.argv[1], content):
        print(told, file=sys.stderr)
