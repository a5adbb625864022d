# SPDX-License-Identifier: Apache-2.0
"""Processes of a cluster (tests/e2e/cluster.py) that do not run, or run only now and then."""

import contextlib
import signal
import threading
import time


@contextlib.contextmanager
def stopped(process):
    """The process does not run until the block ends."""
    process.signal(signal.SIGSTOP)
    try:
        yield
    finally:
        process.signal(signal.SIGCONT)


@contextlib.contextmanager
def again_and_again(act, pause):
    """Calls `act` on another thread until the block ends, with a pause of so many seconds before each call."""
    over = threading.Event()

    def calls():
        while not over.wait(pause):
            act()

    thread = threading.Thread(target=calls)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def slow(process):
    """The process runs for 10 ms of every 100 until the block ends."""
    def hinder():
        with stopped(process):
            time.sleep(0.09)

    return again_and_again(hinder, 0.01)
