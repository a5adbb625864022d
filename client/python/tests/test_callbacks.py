# SPDX-License-Identifier: Apache-2.0
"""Host callbacks without a cluster: changed modules, and the stream that serves calls."""

import gc
import itertools
import logging
import os
import shutil
import signal
import subprocess
import sys
import threading

import grpc
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax.experimental import io_callback

from fairway import callback_messages, callback_stream, callbacks, wire
from fairway.connection import ControllerError

if shutil.which("protoc") is None:
    pytest.skip("no protoc", allow_module_level=True)
from callback_server import PB, Client, Controller, Server, array  # noqa: E402

INTERNAL, CANCELLED = 13, 1
LIMIT = 120


class FakeClient:
    """Stands in for jaxlib's client of a session; the lowered modules are real."""

    runtime_type = "proxy/fairway"

    def __init__(self, devices=()):
        self._devices = devices

    def devices(self):
        return self._devices


@pytest.fixture(scope="module", autouse=True)
def installed():
    callbacks.install()


@pytest.fixture
def controller():
    with Controller() as controller:
        yield controller


@pytest.fixture
def client(controller):
    client = FakeClient()
    callbacks.serve(client, controller.target, b"0123456789abcdef")
    yield client
    callbacks._sessions[client].stream.close()


def lowered(client, function, *arguments):
    """Returns (text of the module to be compiled, the functions that jaxlib would be given)."""
    lowering = jax.jit(function).lower(*arguments)
    module, left = callbacks.for_controller(
        client, lowering.compiler_ir("stablehlo"), lowering._lowering.compile_args["host_callbacks"])
    calls = [line.strip() for line in str(module).splitlines() if "custom_call" in line]
    return calls, left, lowering


def test_a_process_without_callbacks_does_not_import_grpc():
    code = "import sys, fairway, fairway.jax_plugin; fairway.jax_plugin.initialize(); import jax; "
    code += "jax.numpy.ones(3).sum(); print('grpc' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600,
                          env={**os.environ, "JAX_PLATFORMS": "cpu"})
    assert done.stdout == "False\n", done.stdout + done.stderr


def printed(x, **options):
    jax.debug.print("{}", x, **options)
    return x


@pytest.mark.parametrize("function, effect, token", [
    (lambda x: jax.pure_callback(np.sin, x, x), False, False),
    (lambda x: io_callback(np.sin, x, x), True, False),
    (lambda x: io_callback(np.sin, x, x, ordered=True), True, True),
    (printed, True, False),
    (lambda x: printed(x, ordered=True), True, True),
    (lambda x: printed(x, partitioned=True), True, False),
])
def test_every_kind_of_callback_becomes_a_call_by_number(client, controller, function, effect, token):
    (call,), left, lowering = lowered(client, function, jnp.float32(1))
    assert "@xla_ffi_python_cpu_callback(" in call and "{function = 1 : i64}" in call and left == ()
    assert ("has_side_effect = true" in call, "!stablehlo.token" in call) == (effect, token)
    assert "{index = 0 : ui64}" in lowering.as_text()  # JAX's own module is unchanged
    assert controller.channels == [b"0123456789abcdef"]


def test_each_callback_has_its_number_and_keeps_its_sharding(client):
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("x",))
    shard = jax.shard_map(printed, mesh=mesh, in_specs=jax.P("x"), out_specs=jax.P("x"))

    def both(x):
        return jax.pure_callback(np.sin, x, shard(x))

    calls, _, lowering = lowered(client, both, jnp.ones(4))
    assert sorted(f"function = {i} : i64" in call for call in calls for i in (1, 2)) == [
        False, False, True, True]
    theirs = [line for line in lowering.as_text().splitlines() if "custom_call" in line]
    for ours, one in zip(calls, theirs, strict=True):
        assert ours.partition("sdy.sharding")[2] == one.partition("sdy.sharding")[2] != ""


def test_the_same_module_twice_has_the_same_numbers(client):
    lowering = jax.jit(printed).lower(jnp.float32(1))
    functions = lowering._lowering.compile_args["host_callbacks"]
    texts = [str(callbacks.for_controller(client, lowering.compiler_ir("stablehlo"), functions)[0])
             for _ in range(2)]
    assert texts[0] == texts[1]


def test_what_workers_cannot_call_is_left_to_jaxlib_or_refused(client):
    lowering = jax.jit(printed).lower(jnp.float32(1))
    module = lowering.compiler_ir("stablehlo")
    functions = lowering._lowering.compile_args["host_callbacks"]
    more = [*functions, print]  # no custom call names the last one
    assert callbacks.for_controller(client, module, more) == (module, more)
    assert callbacks.for_controller(FakeClient(), module, functions) == (module, functions)
    lowering = jax.jit(lambda x: printed(x, partitioned=True)).lower(jnp.float32(1))
    module = lowering.compiler_ir("stablehlo")
    with module.context:
        from jax._src.lib.mlir import ir

        module.operation.attributes["mhlo.num_partitions"] = ir.IntegerAttr.get(
            ir.IntegerType.get_signless(32), 2)
    with pytest.raises(NotImplementedError, match="partitioned=True.*jax.shard_map"):
        callbacks.for_controller(client, module, lowering._lowering.compile_args["host_callbacks"])


def test_calls_run_the_function_and_return_what_it_returns(client, controller):
    lowered(client, lambda x: io_callback(lambda a: a * 2, x, x, ordered=True), jnp.float32(1))
    number = controller.call(1, [np.float32(21)], [np.float32(0)])
    assert controller.returns() == (number, 0, "", [((), 11, np.float32(42).tobytes())])


def test_what_it_raises_arrives_with_its_traceback(client, controller, caplog):
    def this_one_raises(x):
        raise ValueError("of no use")

    with caplog.at_level(logging.CRITICAL):
        lowered(client, lambda x: jax.pure_callback(this_one_raises, x, x), jnp.float32(1))
        controller.call(1, [np.float32(1)], [np.float32(0)])
        _, code, text, results = controller.returns()
    assert (code, results) == (INTERNAL, [])
    assert text.startswith("CpuCallback error calling callback: Traceback (most recent call last):\n")
    assert "in this_one_raises" in text and text.endswith("\nValueError: of no use")


@pytest.mark.parametrize("wrong, text", [
    (lambda x: (x, x), "Mismatched number of outputs from callback. Expected: 1, Actual: 2"),
    (lambda x: np.zeros(3, np.float32), r"Incorrect output shape for return value #0: Expected: \(\), Actual: \(3,\)"),
    (lambda x: np.int32(1), "Incorrect output dtype for return value #0: Expected: float32, Actual: int32"),
    (lambda x: sys.exit(3), "SystemExit: 3"),
])
def test_a_wrong_result_is_named(client, controller, wrong, text, caplog):
    with caplog.at_level(logging.CRITICAL):
        lowered(client, lambda x: jax.pure_callback(wrong, x, x), jnp.float32(1))
        controller.call(1, [np.float32(1)], [np.float32(0)])
        _, code, found, _ = controller.returns()
    assert code == INTERNAL
    import re

    assert re.search(text, found.splitlines()[-1])


def test_a_number_that_is_not_known_fails_and_the_stream_goes_on(client, controller):
    lowered(client, lambda x: jax.pure_callback(np.sin, x, x), jnp.float32(1))
    controller.call(7, [np.float32(1)], [np.float32(0)])
    assert "p calls a function that this process no longer has" in controller.returns()[2]
    controller.call(1, [np.float32(0)], [np.float32(0)])
    assert controller.returns()[1] == 0


def test_a_callback_that_compiles_for_the_island_that_waits_for_it_is_refused(client, controller):
    class Device:
        slice_index = 3

    callbacks._sessions[client].islands = {5: 3}

    def function(x):
        callbacks.refuse_held([Device()])
        return x

    def other(x):
        Device.slice_index = 2
        callbacks.refuse_held([Device()])
        return x

    number = callbacks._sessions[client].functions.number
    assert (number(lambda *a: (function(*a),), False), number(lambda *a: (other(*a),), False)) == (1, 2)
    controller_open(client)
    controller.call(1, [np.float32(1)], [np.float32(0)], device=5)
    assert "a callback computes on island 3" in controller.returns()[2].splitlines()[-1]
    controller.call(2, [np.float32(1)], [np.float32(0)], device=5)
    assert controller.returns()[1] == 0
    callbacks.refuse_held([Device()])  # outside of a callback nothing is refused


def controller_open(client):
    callbacks._sessions[client].stream.ensure_open()


def test_functions_live_as_long_as_jax_has_them_and_some_time_longer():
    now = [0.0]
    functions = callbacks.Functions(seconds=10, clock=lambda: now[0])
    alive = [(lambda i: lambda: i)(i) for i in range(5)]
    numbers = [functions.number(f, False) for f in alive]
    assert numbers == [1, 2, 3, 4, 5] == [functions.number(f, False) for f in alive]
    del alive[:4]
    gc.collect()
    assert [functions.find(n)[0]() for n in numbers] == [0, 1, 2, 3, 4]  # released only now
    now[0] = 20.0
    assert functions.find(1)[0]() == 0  # called a moment ago, so it is kept
    alive.clear()
    gc.collect()
    assert [n for n in numbers if functions.find(n) is None] == [2, 3, 4]
    now[0] = 40.0
    functions.number(lambda: None, False)
    assert [n for n in numbers if functions.find(n) is None] == numbers


# The stream by itself.


def open_stream(target, answer, channel=b"c" * 16):
    stream = callback_stream.Stream(target, channel, answer)
    stream.ensure_open()
    return stream


@pytest.fixture
def echo(controller):
    """A stream whose calls return their arguments."""
    stream = open_stream(controller.target, lambda call: call.arguments)
    yield controller
    stream.close()


KINDS = sorted(wire.KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_arrays_of_every_element_type_come_and_go(echo, kind):
    x = np.array([[0, 1, 1], [1, 0, 1]]).astype(getattr(ml_dtypes, kind, None) or np.dtype(kind))
    for value in (x, x[0, 1], x[:, :0]):
        echo.call(1, [value], [value])
        _, code, text, results = echo.returns()
        assert (code, text) == (0, "")
        assert results == [(value.shape, wire.KINDS[kind], value.tobytes())]


@pytest.mark.parametrize("chunk", [1000, 1 << 20])
def test_large_arrays_come_and_go_in_chunks(echo, chunk):
    values = [np.arange(300_000, dtype=np.int32), np.float32(7), np.ones((3, 11), np.int8),
              np.arange(70_000, dtype=np.int64)[::-1]]
    echo.call(1, values, values, chunk=chunk)
    results = echo.returns()[3]
    assert [(shape, data) for shape, _, data in results] == [(v.shape, v.tobytes()) for v in values]


def test_messages_of_many_small_results_stay_small(echo):
    values = [np.full(60_000, i, np.int8) for i in range(100)]
    echo.call(1, values, values, chunk=1 << 20)
    assert [data for _, _, data in echo.returns()[3]] == [v.tobytes() for v in values]


def test_arguments_cannot_be_written(controller):
    def answer(call):
        assert not any(x.flags.writeable for x in call.arguments)
        return call.arguments

    stream = open_stream(controller.target, answer)
    for chunk in (None, 8):
        controller.call(1, [np.arange(5.0)], [np.arange(5.0)], chunk=chunk)
        assert controller.returns()[1:3] == (0, "")
    stream.close()


def test_a_result_that_changes_later_is_sent_as_it_was():
    buffers = [np.zeros(1 << 18, np.int64), np.zeros(8, np.int64)]
    call = callback_messages.Call(1, 1, 0, "p", [], [])
    messages = callback_messages.returned(call, buffers)
    for buffer in buffers:
        buffer[:] = -1
    first, *chunks = (Client.FromString(m) for m in messages)
    assert getattr(first, "return").results[1].data == bytes(64)
    assert b"".join(c.chunk.data for c in chunks) == bytes(1 << 21)


def test_one_that_blocks_stops_no_other_and_may_wait_for_others(controller):
    meeting = threading.Barrier(20)

    def answer(call):
        if call.function == 1:
            meeting.wait(LIMIT)
        return []

    stream = open_stream(controller.target, answer)
    waiting = {controller.call(1) for _ in range(19)}
    quick = controller.call(2)
    assert controller.returns()[:2] == (quick, 0)
    waiting.add(controller.call(1))
    assert {controller.returns()[:2] for _ in range(20)} == {(n, 0) for n in waiting}
    stream.close()


def test_the_pool_reuses_threads_and_keeps_its_limit():
    pool, ran = callback_stream.Pool(limit=2), []
    hold, done = threading.Event(), threading.Semaphore(0)

    def held():
        hold.wait(LIMIT)
        ran.append(threading.current_thread().name)
        done.release()

    for _ in range(5):
        pool.run(held)
    assert pool._threads == 2 and not ran
    hold.set()
    for _ in range(5):
        assert done.acquire(timeout=LIMIT)
    pool.run(held)
    assert done.acquire(timeout=LIMIT) and pool._threads == 2 and len(ran) == 6


def test_a_cancelled_call_returns_too(controller):
    stream = open_stream(controller.target, lambda call: [])
    message = PB["CallbackCall"](call=9, function=1)
    message.arguments.append(array(np.ones(5), inline=False))
    controller.send(call=message)
    controller.send(cancel=PB["CallbackCancel"](call=9, reason=b"too late"))
    assert controller.returns() == (9, CANCELLED, "too late", [])
    controller.send(chunk=PB["CallbackChunk"](call=9, data=b"12345678"))  # it was under way
    controller.call(1)
    assert controller.returns()[1] == 0
    stream.close()


def test_a_lost_stream_is_opened_again(controller):
    stream = open_stream(controller.target, lambda call: [])
    controller.end_stream()
    assert controller.opened.wait(LIMIT)
    controller.call(1)
    assert controller.returns()[1] == 0
    assert controller.channels == [b"c" * 16] * 2
    stream.close()


@pytest.mark.parametrize("code, text", [
    (grpc.StatusCode.UNIMPLEMENTED, "it does not serve callbacks; it is older than this package"),
    (grpc.StatusCode.RESOURCE_EXHAUSTED, "refused, as asked"),
])
def test_a_controller_that_refuses_is_told_in_one_line(code, text):
    with Controller(refuse=code) as controller:
        client = FakeClient()
        callbacks.serve(client, controller.target, b"0123456789abcdef")
        with pytest.raises(ControllerError) as caught:
            lowered(client, printed, jnp.float32(1))
        assert str(caught.value) == f"the controller cannot call functions of this process: {text}"


def test_bytes_that_are_no_messages_are_refused():
    good = Server(call=PB["CallbackCall"](call=1, function=2, arguments=[array(np.ones(3))],
                                          results=[array(np.ones(3), False)])).SerializeToString()
    assert callback_messages.decode(good).wanted == [((3,), np.dtype(np.float64))]
    assert callback_messages.decode(b"") is None
    for at in range(1, len(good)):  # any prefix or changed byte is read, or ValueError
        for data in (good[:at], good[:at] + b"\xff" + good[at + 1:]):
            try:
                callback_messages.decode(data)
            except ValueError:
                pass
    for bad in (array(np.ones(3)), array(np.ones(3)), array(np.ones(3))):
        bad.dims[:] = [4]
        with pytest.raises(ValueError, match="with 24 bytes"):
            callback_messages.decode(
                Server(call=PB["CallbackCall"](call=1, arguments=[bad])).SerializeToString())
    token = PB["CallbackArray"](dtype=17)
    with pytest.raises(ValueError, match="element type 17"):
        callback_messages.decode(
            Server(call=PB["CallbackCall"](call=1, arguments=[token])).SerializeToString())


def test_long_tracebacks_lose_their_middle():
    data = callback_messages.failed(3, INTERNAL, "begin" + "ä" * 100_000 + "end")
    text = getattr(Client.FromString(data), "return").text
    assert len(text) <= 64 << 10 and text.startswith(b"begin") and text.endswith(b"end")
    text.decode()


CODE = """
import os, sys, threading
sys.path[:0] = sys.argv[2:]
from fairway import callback_stream
def answer(call):
    print("called", flush=True)
    threading.Event().wait()
stream = callback_stream.Stream(sys.argv[1], b"c" * 16, answer)
stream.ensure_open()
print("open", flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize("more", ["", "sys.exit(3)", """
pid = os.fork()
if not pid:
    try:
        stream.ensure_open()
    except callback_stream.StreamError as error:
        print(error, flush=True)
    stream.close()
    sys.exit()
assert os.waitpid(pid, 0)[1] == 0
"""])
def test_a_process_ends_and_forks_while_a_callback_runs(controller, more):
    folder = os.path.dirname(os.path.dirname(callbacks.__file__))
    child = subprocess.Popen([sys.executable, "-W", "ignore", "-c", CODE + more, controller.target, folder],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, text=True)
    try:
        assert child.stdout.readline() == "open\n"
        controller.call(1)
        assert child.stdout.readline() == "called\n"
        out, _ = child.communicate("\n", timeout=LIMIT)
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
    assert child.returncode == (3 if "exit(3)" in more else 0)
    assert out == ("a forked process cannot serve callbacks; start it by spawning\n" if "fork" in more else "")
