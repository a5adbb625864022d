# SPDX-License-Identifier: Apache-2.0
"""The package's notices to its user: single lines on standard error, each once per process.

FAIRWAY_QUIET=1 in the environment silences all of them. Errors are exceptions and are not silenced.
"""

from __future__ import annotations

import os
import sys
import threading

ENVIRONMENT = "FAIRWAY_QUIET"

_lock = threading.Lock()
_said: set[str] = set()


def quiet() -> bool:
    """Whether the user wants no notices: FAIRWAY_QUIET is set to something other than 0."""
    return os.environ.get(ENVIRONMENT, "").strip() not in ("", "0")


def say(key: str, line: str) -> bool:
    """Writes "fairway: LINE" to standard error, unless `key` was used before in this process.

    Any thread may call it. In a notebook the line goes into the cell. It never raises: a notice
    that cannot be written is not worth an error.

    Args:
      key: names the notice, "version" for example.
      line: what the user needs to know and what to do about it; line breaks become spaces.

    Returns:
      Whether it was written.
    """
    with _lock:
        if quiet() or key in _said:
            return False
        _said.add(key)
    return write(line)


def write(line: str) -> bool:
    """The same without `key`: each call writes. For lines that come once in a session."""
    if quiet():
        return False
    try:
        # One write: with print, lines of other threads could come before the end of the line.
        sys.stderr.write(f"fairway: {' '.join(line.split())}\n")
        sys.stderr.flush()
    except (AttributeError, OSError, ValueError):  # standard error is missing or closed
        return False
    return True


def seen() -> bool:
    """Whether a user sees standard error as it is written: in a terminal or a notebook."""
    stream = sys.stderr
    if type(stream).__module__.partition(".")[0] == "ipykernel":
        return True
    try:
        return stream.isatty()
    except (AttributeError, ValueError):
        return False
