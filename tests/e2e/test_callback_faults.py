# SPDX-License-Identifier: Apache-2.0
"""Functions that never return, and clients that stop or die while theirs are called. They end only
their own work."""

import signal

import pytest

from cluster import PROGRAMS
from test_faults import start  # noqa: F401  a fixture

WAITS = PROGRAMS / "callback_waits.py"
BAD = PROGRAMS / "callback_bad.py"
MANY = PROGRAMS / "callback_many.py"
LOOPS = PROGRAMS / "callback_loops.py"
NEIGHBOUR = PROGRAMS / "callback_neighbour.py"


def test_a_function_that_never_returns_fails_at_the_limit(new_cluster, start):  # noqa: F811
    cluster = new_cluster(islands=1, devices=1, flags=("--callback-limit", "10s"))
    script = start(cluster, WAITS, 1)
    line = script.read_until("FAILED")
    assert "DEADLINE_EXCEEDED" in line and "did not return within 10 s (--callback-limit): make it return sooner, or raise" in line, line
    assert script.end() == 0, script.text
    # The device is free for others.
    assert "RIGHT" in cluster.python(NEIGHBOUR, 0).stdout


def test_a_function_that_waits_for_its_own_device_fails_at_the_limit(new_cluster, start):  # noqa: F811
    """The function waits for a computation that its device would do after the calling program."""
    cluster = new_cluster(islands=1, devices=1, flags=("--callback-limit", "10s"))
    script = start(cluster, WAITS, 1, "own")
    line = script.read_until("FAILED")
    assert "did not return within 10 s (--callback-limit)" in line, line
    assert script.end() == 0, script.text
    assert "RIGHT" in cluster.python(NEIGHBOUR, 0).stdout


def test_functions_that_do_wrong_fail_alone_and_say_what_is_wrong(new_cluster, start):  # noqa: F811
    cluster = new_cluster(islands=2, devices=2)
    script = start(cluster, BAD)
    script.read_until("CALLED")
    # Programs queue on their device, on another one of the executor, and on another island.
    assert "RIGHT" in cluster.python(NEIGHBOUR, 0, 1, 2).stdout
    script.go_on()
    for name, part in (("raises", "ValueError: of no use"),
                       ("shape", "Incorrect output shape for return value #0: Expected: (), Actual: (3,)"),
                       ("type", "Incorrect output dtype for return value #0: Expected: float32, Actual: int32"),
                       ("count", "Mismatched number of outputs from callback. Expected: 1, Actual: 2"),
                       ("text", "is not a valid JAX array type"),
                       ("jax", "a callback computes on island 0, which waits for this callback: use numpy there"),
                       ("exits", "SystemExit: 3")):
        line = script.read_until(name)
        assert part in line, line
    assert "AFTER 2.0" in script.read_until("AFTER")
    assert script.end() == 0, script.text


def test_neighbours_do_not_notice_and_a_killed_client_frees_its_device(new_cluster, start):  # noqa: F811
    cluster = new_cluster(islands=2, devices=2, flags=("--callback-limit", "0"))
    script = start(cluster, WAITS, 3)
    script.read_until("CALLED")
    # Another device of the executor, and another island.
    assert "RIGHT" in cluster.python(NEIGHBOUR, 1, 2, 3).stdout
    script.process.send_signal(signal.SIGKILL)
    assert "RIGHT" in cluster.python(NEIGHBOUR, 0).stdout


def test_many_callbacks_of_a_program_hold_no_thread_that_others_need(new_cluster, start):  # noqa: F811
    """The devices of an executor share XLA's threads; no callback may hold one."""
    cluster = new_cluster(islands=1, devices=2)
    script = start(cluster, MANY)
    script.read_until("CALLED")
    assert "RIGHT" in cluster.python(NEIGHBOUR, 1).stdout
    script.process.kill()
    assert (script.text + script.process.stdout.read()).count("CALLED") == 1


def test_a_stopped_client_holds_its_device_for_the_limit_and_not_for_each_launch(new_cluster, start):  # noqa: F811
    cluster = new_cluster(islands=1, devices=1, flags=("--callback-limit", "10s"))
    script = start(cluster, WAITS, 1000)  # 10,000 s, if each call were waited for
    script.read_until("CALLED")
    script.process.send_signal(signal.SIGSTOP)
    try:
        assert "RIGHT" in cluster.python(NEIGHBOUR, 0).stdout
    finally:
        script.process.send_signal(signal.SIGCONT)


@pytest.mark.parametrize("how", ["raise", "wait", "killed", "stopped"])
def test_a_loop_over_several_devices_ends_when_its_callback_fails(new_cluster, start, how):  # noqa: F811
    """The loop waits for a value that no callback ever gives, between sums over all its devices."""
    cluster = new_cluster(islands=1, devices=5, flags=("--callback-limit", "10s"))
    script = start(cluster, LOOPS, "raise" if how == "raise" else "wait")
    script.read_until("CALLED")
    if how == "killed":
        script.process.send_signal(signal.SIGKILL)
    elif how == "stopped":
        script.process.send_signal(signal.SIGSTOP)
    try:
        # A device outside of the gang, then those of the gang.
        assert "RIGHT" in cluster.python(NEIGHBOUR, 4, 0, 1, 2, 3).stdout
        if how in ("raise", "wait"):
            line = script.read_until("FAILED")
            assert ("the third round" if how == "raise" else "did not return within 10 s") in line, line
            assert script.end() == 0, script.text
    finally:
        if how == "stopped":
            script.process.send_signal(signal.SIGCONT)
