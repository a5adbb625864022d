# SPDX-License-Identifier: Apache-2.0
"""Waiting for what machines in namespaces do, and ending their processes with the tests."""

import ctypes
import signal
import time


def wait_for(look, what, seconds=120):
    """What `look` returns once it is something; `what`: text, or a function that says how things are."""
    last = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < last, f"waited {seconds} s for {what() if callable(what) else what}"
        time.sleep(0.1)
    return found


def end_with_parent():
    """In a child, before its program begins: so a run of tests that is killed leaves no process. (1 is PR_SET_PDEATHSIG.)"""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
