# SPDX-License-Identifier: Apache-2.0
"""Tests how a process waits at exit for the thread that reports the end of a session."""

import threading
import time

import pytest
from jax.errors import JaxRuntimeError

from fairway import terminal


class Client:
    def live_arrays(self):
        return []

    live_executables = live_arrays


@pytest.fixture
def session(monkeypatch):
    monkeypatch.setattr(terminal, "_sessions", [])
    monkeypatch.setattr(terminal, "_unavailable", False)
    monkeypatch.setattr(JaxRuntimeError, "__init__", JaxRuntimeError.__init__)
    terminal._note_errors()
    session, client = terminal._Session("127.0.0.1:1", None), Client()
    terminal.keep(session, client)
    session.kept = client
    return session


def test_a_process_that_caught_the_error_waits_for_a_late_thread(session, monkeypatch):
    said = []
    monkeypatch.setattr(terminal.notices, "write", said.append)
    monkeypatch.setattr(terminal, "_TELL_SECONDS", 120.0)  # however late it is
    waits = threading.Event()

    def late():
        waits.wait()
        time.sleep(10 * terminal._RETURN_SECONDS)
        session.ended("UNAVAILABLE: the controller is shutting down")

    thread = threading.Thread(target=late)
    thread.start()
    with pytest.raises(JaxRuntimeError):
        raise JaxRuntimeError("UNAVAILABLE: the controller is shutting down")
    waits.set()
    session.let_tell()
    assert session.told.is_set() and len(said) == 1
    thread.join()


def test_other_errors_make_no_exit_wait(session):
    with pytest.raises(JaxRuntimeError):
        raise JaxRuntimeError("INVALID_ARGUMENT: not this one")
    assert not terminal._unavailable
    session.let_tell()
    assert not session.told.is_set()
