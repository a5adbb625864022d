# SPDX-License-Identifier: Apache-2.0
"""In a notebook's kernel: interrupts, restarts, and the destination of lines."""

import queue
import time

import pytest

from cluster import Cluster, wait_for
from terminal import without_progress

pytest.importorskip("jupyter_client", reason="it is in .venv-ecosystem: ./dev test ecosystem")

from jupyter_client.manager import KernelManager  # noqa: E402


@pytest.fixture(scope="module")
def cluster():
    with Cluster(islands=2, devices=2) as cluster:
        yield cluster


class Notebook:
    """Runs cells one after the other in a real kernel."""

    def __init__(self, environment):
        self.manager = KernelManager(kernel_name="python3")
        self.manager.start_kernel(env=environment)
        self._connect()

    def _connect(self):
        self._client = self.manager.blocking_client()
        self._client.start_channels()
        self._client.wait_for_ready(timeout=300)

    def restart(self):
        self._client.stop_channels()
        self.manager.restart_kernel(now=False)
        self._connect()

    def close(self):
        self._client.stop_channels()
        self.manager.shutdown_kernel(now=True)

    def start(self, code):
        return self._client.execute(code)

    def finish(self, cell, seconds=300, until=None):
        """Waits for the end of a cell. Returns (its output on both streams, error or None).

        With `until` it returns as soon as the output is `until`; the cell runs on.
        """
        printed, error, deadline = "", None, time.monotonic() + seconds
        while True:
            try:
                message = self._client.get_iopub_msg(timeout=max(0.1, deadline - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"the cell did not end; it printed:\n{printed}") from None
            if message["parent_header"].get("msg_id") != cell:
                continue
            kind, content = message["header"]["msg_type"], message["content"]
            if kind == "stream":
                printed = without_progress(printed + content["text"])
                if printed == until:
                    return printed, None
            elif kind == "error":
                error = content["ename"]
            elif kind == "status" and content["execution_state"] == "idle":
                return printed, error

    def run(self, code):
        return self.finish(self.start(code))


@pytest.fixture
def notebook(cluster):
    notebook = Notebook(cluster.jax_environment() | {"XLA_FLAGS": "--xla_cpu_use_thunk_runtime=true"})
    yield notebook
    notebook.close()


START = """
import jax, jax.numpy as jnp
@jax.jit
def slow(x, n):
    return jax.lax.fori_loop(0, n, lambda i, x: jnp.tanh(x @ x) * 0.5, x)
w = jnp.ones((256, 256))
kept = jax.device_put(jnp.ones(1 << 20), jax.devices()[2])
kept.block_until_ready()
print('ready')
"""


def test_a_kernel_is_interrupted_restarted_and_told_in_its_cells(cluster, notebook):
    printed, error = notebook.run(START)
    # The package's own line is in the cell; jaxlib's log is nowhere.
    assert error is None and printed.endswith("ready\n"), printed
    assert printed.startswith("fairway: XLA_FLAGS ") and printed.count("\n") == 2, printed

    cell = notebook.start("slow(w, 6000).block_until_ready()")
    wait_for(lambda: cluster.metrics().total("fairway_nodes_unfinished") >= 1, "the work to begin")
    notebook.manager.interrupt_kernel()
    assert notebook.finish(cell) == ("", "KeyboardInterrupt")
    assert notebook.run("print(float(slow(w, 2)[0, 0]) < 1, kept.shape)") == (
        "True (1048576,)\n", None)

    printed, error = notebook.run("import fairway; fairway.info()")
    assert error is None and printed.startswith("controller   "), printed

    assert cluster.metrics().total("fairway_arrays") >= 2
    notebook.restart()
    wait_for(lambda: cluster.metrics().total("fairway_sessions") == 0, "the session to be gone")
    wait_for(lambda: cluster.metrics().total("fairway_arrays") == 0
             and cluster.metrics().total("fairway_device_memory_used_bytes") == 0,
             "the session's arrays to be gone")
    assert notebook.run("'kept' in globals()") == ("", None)
    assert notebook.run(START.replace("kept", "again"))[1] is None


CALLBACKS = """
import threading
import jax, jax.numpy as jnp, numpy as np
jax.devices()
show = jax.jit(lambda x: jax.debug.print('x={}', x))
gate, called = threading.Event(), threading.Event()
def held(a):
    called.set()
    gate.wait(100)
    print('let go')
    return np.asarray(a)
held_up = jax.jit(lambda v: jax.pure_callback(held, v, v))
def raises(a):
    raise ValueError('of no use')
"""


def test_callbacks_print_and_raise_in_the_cell_that_waits_and_leave_the_session_usable(cluster, notebook):
    assert notebook.run(CALLBACKS)[1] is None
    for i in range(3):  # each in its own cell, though one thread may serve them all
        assert notebook.run(f"show(jnp.float32({i})); jax.effects_barrier()") == (f"x={i}.0\n", None)
    printed, error = notebook.run("jax.jit(lambda v: jax.pure_callback(raises, v, v))(1.).block_until_ready()")
    assert error == "JaxRuntimeError", printed

    # The interrupt must find the cell waiting: `y` has a value by then.
    cell = notebook.start("y = held_up(np.float32(7)); print('waits', flush=True); y.block_until_ready()")
    assert notebook.finish(cell, until="waits\n") == ("waits\n", None)
    wait_for(lambda: cluster.metrics().total("fairway_nodes_unfinished") >= 1, "the call to be made")
    notebook.manager.interrupt_kernel()
    assert notebook.finish(cell) == ("", "KeyboardInterrupt")
    assert notebook.run("called.wait(100); gate.set(); print(float(y))") == ("let go\n7.0\n", None)

    # A restart during a callback frees the device, whatever --callback-limit is.
    cell = notebook.start("gate.clear(); called.clear(); z = held_up(np.float32(1)); print(called.wait(100))")
    assert notebook.finish(cell) == ("True\n", None)
    notebook.restart()
    wait_for(lambda: cluster.metrics().total("fairway_nodes_unfinished") == 0, "the call to be given up")
    assert notebook.run(CALLBACKS)[1] is None
    assert notebook.run("show(jnp.float32(9)); jax.effects_barrier()") == ("x=9.0\n", None)
