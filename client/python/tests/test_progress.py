# SPDX-License-Identifier: Apache-2.0
"""The line about a compilation that takes long."""

import threading
import types

import pytest

from fairway import notices, progress


@pytest.fixture
def said(monkeypatch):
    """Collects the lines that a terminal would show, at once."""
    lines = []
    monkeypatch.setattr(progress, "SECONDS", 0.0)
    monkeypatch.setattr(notices, "seen", lambda: True)
    monkeypatch.setattr(notices, "_said", set())
    monkeypatch.delenv(notices.ENVIRONMENT, raising=False)
    monkeypatch.setattr(notices, "write", lambda line: lines.append(line) or True)
    return lines


def devices(*islands):
    return [types.SimpleNamespace(slice_index=island) for island in islands]


def join():
    for thread in threading.enumerate():
        if isinstance(thread, threading.Timer):
            thread.join(120)


def test_a_long_compilation_is_named_with_its_island_once(said):
    for _ in range(2):
        with progress.announced("step", devices(1, 1)):
            join()
    with progress.announced("loss", devices(0, 2)):
        join()
    assert said == ["compiling step for island 1, 2 devices (over 0 s so far)",
                    "compiling loss for islands 0, 2, 2 devices (over 0 s so far)"]


def test_a_short_compilation_is_not_named(said, monkeypatch):
    monkeypatch.setattr(progress, "SECONDS", 1000.0)
    with progress.announced("step", devices(0)):
        pass
    join()  # the timer was cancelled
    assert said == []


@pytest.mark.parametrize("why", ["nobody watches", "silenced"])
def test_nothing_is_named_and_no_thread_started_where(said, monkeypatch, why):
    if why == "silenced":
        monkeypatch.setenv(notices.ENVIRONMENT, "1")
    else:
        monkeypatch.setattr(notices, "seen", lambda: False)
    before = set(threading.enumerate())
    with progress.announced("step", devices(0)):
        assert set(threading.enumerate()) <= before
    assert said == []
