# SPDX-License-Identifier: Apache-2.0
"""Prints "TESTS FAILED SKIPPED" of a JUnit file, as ctest and pytest write them."""

import re
import sys
import xml.etree.ElementTree as ElementTree

# The output of tests may contain bytes that XML does not allow; ctest copies them.
_NOT_XML = re.compile(r"[^\t\n\r\x20-\uD7FF\uE000-\uFFFD]")


def counts(text):
    """Returns (tests, failed, skipped) of JUnit text.

    A test that ctest could not start (no executable, a missing fixture) is a failure; a disabled
    test, or one that skipped itself, is skipped. Text that is not XML counts as one failed test.
    """
    try:
        root = ElementTree.fromstring(_NOT_XML.sub("?", text))
    except ElementTree.ParseError:
        return 1, 1, 0
    tests = failed = skipped = 0
    for case in root.iter("testcase"):
        tests += 1
        status = case.get("status")
        skip = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            failed += 1
        elif status == "notrun" and "SKIP_" not in (skip.get("message") if skip is not None else ""):
            failed += 1
        elif status in ("notrun", "disabled") or skip is not None:
            skipped += 1
    return tests, failed, skipped


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8", errors="replace") as file:
        print(*counts(file.read()))
