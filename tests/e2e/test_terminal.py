# SPDX-License-Identifier: Apache-2.0
"""The contents of a user's terminal: the program's own output, and one line where there is news."""

import re
import signal

import pytest

from cluster import clean_environment, run_python, wait_for
from terminal import SlowConnection, Terminal, without_client_log, without_progress

START = """
import os, sys
import jax, jax.numpy as jnp, numpy as np
f = jax.jit(lambda x: x * 2 + 1)
x = jnp.arange(8.)
assert float(f(x).sum()) == 64
@jax.jit
def slow(x, n):
    return jax.lax.fori_loop(0, n, lambda i, x: jnp.tanh(x @ x) * 0.5, x)
w = jnp.ones((256, 256))
"""


# Follows START: a program whose callback returns once `gate` is set.
HELD_CALLBACK = """
import threading
from jax.experimental import io_callback
gate, called = threading.Event(), threading.Event()
def held(a):
    called.set()
    gate.wait(100)
    return np.asarray(a)
y = jax.jit(lambda v: io_callback(held, v, v))(np.float32(1))
assert called.wait(100)
"""


@pytest.mark.parametrize("end, status, last", [
    ("", 0, ""),
    ("y = slow(w, 3000)", 0, ""),
    ("y = slow(w, 3000); sys.exit(3)", 3, ""),
    ("os._exit(4)", 4, ""),
    ("y = slow(w, 3000); raise ValueError('mine')", 1, "ValueError: mine\n"),
])
def test_a_program_prints_what_it_prints_and_nothing_else(cluster, end, status, last):
    with Terminal("-c", START + "print('out', flush=True)\n" + end,
                  env=cluster.jax_environment()) as terminal:
        code, text = terminal.end()
    text = without_progress(text)
    assert code == status, text
    if last:
        assert text.startswith("out\nTraceback") and text.endswith(last), text
        without_client_log(text)
    else:
        assert text == "out\n"


def test_a_process_ends_well_over_a_slow_connection(cluster):
    """When the interpreter ends, the buffer of the last fetch has yet to be deleted."""
    with SlowConnection(cluster.port, 0.1) as slow:
        env = cluster.jax_environment() | {"FAIRWAY_CONTROLLER": f"127.0.0.1:{slow.port}"}
        for _ in range(4):
            done = run_python("-c", START, env=env, check=False)
            assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("how", ["killed", "ended"])
def test_a_controller_that_goes_away_is_one_line(new_cluster, how):
    cluster = new_cluster(islands=1, devices=2)
    code = START + "print('ready')\nwhile True: x = f(x); np.asarray(x)\n"
    with Terminal("-c", code, env=cluster.jax_environment()) as terminal:
        terminal.until("ready")
        if how == "killed":
            next(p for p in cluster.processes()
                 if p.program == "fairway-controller").signal(signal.SIGKILL)
        else:
            cluster.down()
        status, text = terminal.end()
    assert status == 1
    without_client_log(text)
    assert "JaxRuntimeError: UNAVAILABLE" in text
    lines = [line for line in without_progress(text).splitlines() if line.startswith("fairway: ")]
    assert len(lines) == 1, text
    assert re.match(
        rf"fairway: the controller at {re.escape(cluster.address)} ended this session at "
        r"\d\d:\d\d:\d\d.*; its arrays are gone. .*start this program.* again", lines[0])


def test_a_controller_that_goes_away_while_it_calls_back_leaves_no_trace_at_exit(new_cluster):
    cluster = new_cluster(islands=1, devices=2)
    code = START + HELD_CALLBACK + """
print('ready')
try:
    np.asarray(y)
except jax.errors.JaxRuntimeError as error:
    print('caught', str(error)[:11])
    gate.set()
"""
    with Terminal("-c", code, env=cluster.jax_environment()) as terminal:
        terminal.until("ready")
        cluster.down()
        status, text = terminal.end()
    assert status == 0 and "caught UNAVAILABLE" in text, text
    without_client_log(text)
    assert "Traceback" not in text and without_progress(text).count("fairway: ") <= 1, text  # the exit may be faster


def test_ctrl_c_ends_a_wait_and_a_compilation_and_the_session_goes_on(cluster):
    code = START + """
import signal
def attempt(name, what):
    try:
        print('start', name)
        what()
        print('not interrupted', name)
    except KeyboardInterrupt:
        print('interrupted', name)
n = int(sys.argv[1])
def large(x):
    for i in range(1500): x = jnp.sin(x * i) @ (x + i)
    return x
lowered = jax.jit(large).lower(w)
attempt('block', lambda: slow(w, n).block_until_ready())
attempt('fetch', lambda: np.asarray(slow(w, n)))
attempt('large', lambda: lowered.compile())
print('sum', float(f(jnp.arange(8.)).sum()))
"""
    busy = lambda: cluster.metrics().total("fairway_nodes_unfinished") >= 1  # noqa: E731
    with Terminal("-c", code, 6000, env=cluster.jax_environment()) as terminal:
        for name in ("block", "fetch"):
            terminal.until(f"start {name}\n")
            wait_for(busy, "the work to be under way")
            terminal.interrupt()
            terminal.until(f"interrupted {name}\n")
        terminal.until("compiling large for island 0, 1 device")
        terminal.interrupt()
        terminal.until("interrupted large\n")
        status, text = terminal.end()
    assert status == 0 and "not interrupted" not in text, text
    assert "sum 64.0" in text
    assert text.count("fairway: compiling large for island 0, 1 device ") == 1, text
    assert "fairway: " not in without_progress(text), text
    without_client_log(text)


def test_a_forked_child_harms_nobody_and_is_told_what_to_do(cluster):
    code = START + """
import multiprocessing, traceback
with multiprocessing.get_context('fork').Pool(1) as pool:
    print(pool.map(abs, [-1, -2]))
for what in (lambda: f(x), lambda: np.asarray(x), lambda: jax.device_put(np.ones(3)), lambda: x + 3):
    pid = os.fork()
    if pid == 0:
        try:
            print('child', what())
        except RuntimeError as error:
            print('child', error)
        sys.stdout.flush()
        sys.exit(3)
    assert os.waitpid(pid, 0)[1] == 3 << 8
    assert float(f(x).sum()) == 64
print('unharmed')
"""
    done = run_python("-W", "ignore", "-c", code, env=cluster.jax_environment())
    without_client_log(done.stderr)
    assert done.stdout.startswith("[1, 2]\n") and done.stdout.endswith("unharmed\n"), done.stdout
    assert done.stdout.count("child this process was forked from one that has a session with a "
                             "Fairway controller, which it cannot use; start it with "
                             "multiprocessing.get_context('spawn')\n") == 4, done.stdout


def test_a_forked_child_ends_while_the_parent_waits_for_a_callback(cluster):
    code = START + HELD_CALLBACK + """
pid = os.fork()
if pid == 0: sys.exit(3)
assert os.waitpid(pid, 0)[1] == 3 << 8
gate.set()
assert float(y) == 1
"""
    done = run_python("-W", "ignore", "-c", code, env=cluster.jax_environment())
    assert (done.stdout, done.stderr) == ("", "")


def test_info_prints_islands_versions_and_the_round_trip(cluster):
    code = "import fairway\nfairway.info()\nassert fairway.info() is None"
    done = run_python("-c", code, env=cluster.jax_environment())
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    first, again = lines[:len(lines) // 2], lines[len(lines) // 2:]
    assert re.fullmatch(
        rf"controller   {re.escape(cluster.address)}, round trip \d+\.\d\d ms", first[0])
    # The answer is not one that jaxlib kept from the first time.
    assert " 0.00 ms" not in again[0]
    assert re.fullmatch(r"island 0     4 x cpu with [\d.]+ [GT]iB each \(island0\): devices 0..3",
                        first[1])
    assert first[2].startswith("island 1     4 x cpu") and first[2].endswith("devices 4..7")
    assert re.fullmatch(r"versions     fairway [\d.]+, jax [\d.]+, jaxlib [\d.]+, controller [\d.]+,"
                        r" runtime cpu; PJRT .*", first[3])
    assert len(first) == len(again) == 4


def test_a_package_of_another_version_than_the_controller_is_told_in_one_line(cluster):
    code = "from fairway import connection; connection.package_version = lambda: '0.0.9'\n" + START
    with Terminal("-c", code, env=cluster.jax_environment()) as terminal:
        status, text = terminal.end()
    assert (status, without_progress(text)) == (0, (
        f"fairway: the controller at {cluster.address} is 0.1.0, this package 0.0.9; if something fails "
        "that should not, install the package of the controller's version\n"))


@pytest.mark.parametrize("environment, reason", [
    ({}, "call fairway.connect('host:port') first"),
    ({"JAX_PLATFORMS": "fairway,cpu", "FAIRWAY_CONTROLLER": "127.0.0.1:1"},
     "no Fairway controller at 127.0.0.1:1"),
])
def test_info_without_a_controller_is_one_line(environment, reason):
    done = run_python("-c", "import fairway\nfairway.info()", env=clean_environment(**environment))
    assert done.stdout.startswith("fairway: not connected: ") and reason in done.stdout
    assert done.stdout.count("\n") == 1 and done.stderr == ""


@pytest.mark.parametrize("flags, named", [
    ("--xla_force_host_platform_device_count=2", ""),
    ("--xla_force_host_platform_device_count=2 --xla_cpu_use_thunk_runtime=true",
     "--xla_cpu_use_thunk_runtime=true"),
])
def test_xla_flags_are_named_once_where_they_do_not_act(cluster, flags, named):
    env = cluster.jax_environment() | {"XLA_FLAGS": flags}
    done = run_python("-c", "import jax; jax.devices(); jax.devices('cpu')", env=env)
    if not named:
        assert done.stderr == ""
    else:
        assert done.stderr.startswith(f"fairway: XLA_FLAGS ({named}) ")
        assert done.stderr.count("\n") == 1
        assert run_python("-c", "import jax; jax.devices()",
                          env=env | {"FAIRWAY_QUIET": "1"}).stderr == ""


def test_the_level_of_the_log_that_a_user_chose_stays(cluster):
    env = cluster.jax_environment() | {"TF_CPP_MIN_LOG_LEVEL": "0"}
    done = run_python("-c", "import jax; jax.devices()", env=env)
    assert "Connected to IFRT proxy server" in done.stderr
