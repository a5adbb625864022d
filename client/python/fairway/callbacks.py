# SPDX-License-Identifier: Apache-2.0
"""Host callbacks: functions of this process that programs on a controller call.

JAX lowers a callback to a custom call with the index of the function in a list that it gives to the
backend; jaxlib's proxy client takes no such list. So a module that JAX compiles for one of our clients
is changed on its way: the custom call gets a number of this process instead of the index, and the
function stays here, where a stream of the session calls it (docs/design/0046-callbacks.md).

If JAX does this differently nothing is changed, and jaxlib refuses callbacks with its own text.
"""

from __future__ import annotations

import atexit
import collections
import functools
import inspect
import os
import threading
import time
import traceback
import types
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from fairway.devices import is_ours

INITIALIZATION_KEY = "fairway_callbacks"

# JAX's own name, which XLA knows: for other names it forgets that only one device is to call them.
_TARGET = "xla_ffi_python_cpu_callback"
_PARTITIONED = "xla_ffi_partitioned_python_cpu_callback"
_TARGETS = (_TARGET, _PARTITIONED)
_ON_GPUS = tuple(name.replace("_cpu_", "_gpu_") for name in _TARGETS)
_KEPT_SECONDS = 120.0  # launches under way may still call functions of programs that are gone

_sessions: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()  # by client
_pure: dict[tuple, Any] = {}  # by runtime and device: the token of the last launch with pure ones only
_calling = threading.local()  # .island: of the device whose call this thread runs
_island: Any = None  # the same in JAX's cache keys, so that code compiled elsewhere is checked here


class Functions:
    """The functions of a session, by number. Thread-safe.

    A function that JAX has released is kept for a while, because launches under way may call it later.
    After that the next call of `number`, or the next release, drops it with all that it closes over.
    """

    def __init__(self, seconds: float = _KEPT_SECONDS,
                 clock: Callable[[], float] = time.monotonic):
        self._seconds, self._clock = seconds, clock
        self._lock = threading.RLock()  # a finalizer may run while it is held
        self._next = 1
        self._functions: dict[int, tuple[Callable, bool]] = {}
        self._numbers: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()
        self._let_go: collections.OrderedDict[int, float] = collections.OrderedDict()

    def number(self, function: Callable, with_token: bool) -> int:
        """Returns the function's number, valid until some time after the function dies."""
        with self._lock:
            if function in self._numbers:
                return self._numbers[function]
            self._forget()
            number, self._next = self._next, self._next + 1
            self._numbers[function] = number
            if isinstance(function, types.FunctionType):
                weakref.finalize(function, self._release, number).atexit = False
                function = types.FunctionType(  # a copy, so that the original can die
                    function.__code__, function.__globals__, function.__name__,
                    function.__defaults__, function.__closure__)
            self._functions[number] = (function, with_token)
            return number

    def find(self, number: int) -> tuple[Callable, bool] | None:
        """Returns (function, whether it takes and returns a token first)."""
        with self._lock:
            if number in self._let_go:
                self._let_go.move_to_end(number)
                self._let_go[number] = self._clock()
            return self._functions.get(number)

    def _release(self, number: int) -> None:
        with self._lock:
            self._let_go[number] = self._clock()
            self._forget()

    def _forget(self) -> None:
        """Drops old functions; the one released or called longest ago comes first."""
        while self._let_go:
            oldest, when = next(iter(self._let_go.items()))
            if self._clock() - when < self._seconds:
                return
            del self._let_go[oldest], self._functions[oldest]


class Session:
    """Callbacks of one client."""

    def __init__(self, target: str, channel: bytes):
        from fairway.callback_stream import Stream

        self.functions = Functions()
        self.islands: dict[int, int] = {}  # by device id
        self.stream = Stream(target, channel, self.answer)
        atexit.register(_end, weakref.ref(self))

    def answer(self, call: Any) -> list[np.ndarray]:
        """Runs a call. Raises CallError."""
        from fairway.callback_stream import CallError

        found = self.functions.find(call.function)
        if found is None:
            raise CallError(
                f"{call.program} calls a function that this process no longer has: keep the jitted "
                "function until its results are there")
        function, with_token = found
        _calling.island = island = self.islands.get(call.device)
        try:
            with _island(island):
                results = function(*([None] if with_token else []), *call.arguments)
                results = [np.asarray(x) for x in (results[1:] if with_token else results)]
        except BaseException as error:  # the program fails with it, as on JAX's CPU backend
            text = "".join(traceback.format_exception(error)).rstrip("\n")
            raise CallError(f"CpuCallback error calling callback: {text}") from None
        finally:
            _calling.island = None
        found = [(x.shape, x.dtype) for x in results]
        if found != call.wanted:
            raise CallError(f"a callback of {call.program} returned {found}; expected {call.wanted}")
        return results


@functools.cache
def install() -> None:
    """Wraps jaxlib's maker of clients and JAX's compiler, once."""
    global _island
    try:
        import jax
        from jax._src import compiler, traceback_util
        from jax._src.interpreters import mlir, pxla
        from jax.extend.backend import ifrt_proxy

        known = ["backend", "module", "executable_devices", "options", "host_callbacks"]
        if list(inspect.signature(compiler.backend_compile_and_load).parameters)[:5] != known:
            return
        _island = jax.make_user_context(None)
        compiler.backend_compile_and_load = _compile_for(compiler.backend_compile_and_load)
        ifrt_proxy.get_client = _serve_clients(ifrt_proxy.get_client)
        mlir.ModuleContext.get_backend = _ours_first(mlir.ModuleContext.get_backend)
        execute = pxla.ExecuteReplicated
        execute._handle_token_bufs = _told_by_results(execute._handle_token_bufs)
        traceback_util.register_exclusion(__file__)  # JAX's errors name the user's line
    except (ImportError, AttributeError):
        pass


def _serve_clients(inner: Callable) -> Callable:
    @functools.wraps(inner)
    def get_client(proxy_server_address, options, *rest):
        channel = os.urandom(16)  # the session's secret, which its stream will show
        given = options.initialization_data or {}
        options.initialization_data = {**given, INITIALIZATION_KEY: channel}
        client = inner(proxy_server_address, options, *rest)
        if is_ours(client):
            serve(client, proxy_server_address.removeprefix("grpc://"), channel)
        return client

    return get_client


def _ours_first(inner: Callable) -> Callable:
    """Returns our backend: JAX would look it up by platform, and islands of GPUs are not "gpu"."""

    @functools.wraps(inner)
    def get_backend(self, *args, **kwargs):
        if is_ours(self.backend) and len(self.platforms) == 1:
            return self.backend
        return inner(self, *args, **kwargs)

    return get_backend


def serve(client: Any, target: str, channel: bytes) -> None:
    """Serves the callbacks that are compiled for `client` from now on."""
    session = Session(target, channel)
    session.islands = {d.id: getattr(d, "slice_index", 0) for d in client.devices()}
    _sessions[client] = session
    weakref.finalize(client, session.stream.close).atexit = False


def _compile_for(inner: Callable) -> Callable:
    @functools.wraps(inner)
    def compile_and_load(backend, module, executable_devices, options, host_callbacks, *rest):
        if is_ours(backend):
            refuse_held(executable_devices)
            if host_callbacks:
                module, host_callbacks = for_controller(backend, module, host_callbacks)
        return inner(backend, module, executable_devices, options, host_callbacks, *rest)

    return compile_and_load


def _told_by_results(inner: Callable) -> Callable:
    """Drops the tokens of pure callbacks. JAX keeps the last launch with callbacks for its barrier, and
    reports its error at exit; if all its callbacks are pure, its results have reported that."""

    @functools.wraps(inner)
    def handle_token_bufs(self, token_bufs, sharded_token):
        from jax._src import dispatch

        inner(self, token_bufs, sharded_token)
        if not (self.ordered_effects or self.has_unordered_effects):
            for device in self._local_devices:
                _pure[device.client.runtime_type, device.id] = (
                    dispatch.runtime_tokens.output_runtime_tokens.get(device))

    return handle_token_bufs


def refuse_held(devices: Iterable) -> None:
    """Within a callback, refuses to compile for devices of the island that waits for it.

    Raises:
      RuntimeError: one of the devices is of that island.
    """
    island = getattr(_calling, "island", None)
    if island is not None and any(getattr(d, "slice_index", 0) == island for d in devices):
        raise RuntimeError(
            f"a callback computes on island {island}, which waits for this callback: use numpy there, "
            "or arrays of jax.devices('cpu')")


def for_controller(client: Any, module: Any, functions: Sequence[Callable]) -> tuple[Any, Sequence]:
    """Replaces a module whose custom calls name `functions` by their index.

    Returns:
      (module, the functions that jaxlib is to refuse: none, or all).

    Raises:
      ControllerError: the controller serves no callbacks.
      NotImplementedError: workers cannot call a callback of this kind.
    """
    from jax._src.interpreters import mlir
    from jax._src.lib.mlir import ir

    from fairway import loops

    session = _sessions.get(client)
    if session is None:
        return module, functions
    with module.context:
        copy = ir.Module.parse(mlir.module_to_bytecode(module))
        _refuse_on_gpus(copy)
        calls = _calls(copy)
        if {index for _, _, index in calls} != set(range(len(functions))):
            return module, functions  # an unknown kind of callback
        _open(session)
        for op, config, index in calls:
            with_token = any(str(x.type) == "!stablehlo.token" for x in op.operands)
            _refuse_partitioned(copy, op)
            number = session.functions.number(functions[index], with_token)
            i64 = ir.IntegerType.get_signless(64)
            op.attributes["call_target_name"] = ir.StringAttr.get(_TARGET)
            op.attributes[config] = ir.DictAttr.get({"function": ir.IntegerAttr.get(i64, number)})
        loops.guard(copy, calls[0][1])
    return copy, ()


def _custom_calls(module: Any) -> list[tuple[Any, str]]:
    """The custom calls of a module with their targets, including those in loops and functions."""
    from jax._src.lib.mlir import ir

    found = []

    def look(op):
        if op.name == "stablehlo.custom_call":
            found.append((op, ir.StringAttr(op.attributes["call_target_name"]).value))
        return ir.WalkResult.ADVANCE

    module.operation.walk(look)
    return found


def _calls(module: Any) -> list[tuple[Any, str, int]]:
    """Custom calls of callbacks: the operation, its attribute with the index, and the index."""
    from jax._src.lib.mlir import ir

    found = []
    for op, target in _custom_calls(module):
        for config in ("mhlo.backend_config", "backend_config") if target in _TARGETS else ():
            if config in op.attributes and isinstance(op.attributes[config], ir.DictAttr):
                found.append((op, config, ir.IntegerAttr(op.attributes[config]["index"]).value))
    return found


def _refuse_on_gpus(module: Any) -> None:
    if any(target in _ON_GPUS for _, target in _custom_calls(module)):
        raise NotImplementedError(
            "functions of this process (jax.debug.print, pure_callback, io_callback) are not called "
            "from GPU islands yet: compute what needs them on an island of CPUs, or on "
            "jax.devices('cpu')")


def _refuse_partitioned(module: Any, op: Any) -> None:
    from jax._src.lib.mlir import ir

    attributes = module.operation.attributes
    partitions = "mhlo.num_partitions" in attributes and ir.IntegerAttr(
        attributes["mhlo.num_partitions"]).value
    if partitions > 1 and ir.StringAttr(op.attributes["call_target_name"]).value == _PARTITIONED:
        raise NotImplementedError(
            "callbacks with partitioned=True are not served over several devices: call it in a "
            "jax.shard_map, where each device has its part")


def _open(session: Session) -> None:
    from fairway.callback_stream import StreamError
    from fairway.connection import ControllerError

    try:
        session.stream.ensure_open()
    except StreamError as error:
        raise ControllerError(f"the controller cannot call functions of this process: {error}") from None
    except ImportError as error:
        raise ControllerError(
            f"callbacks (jax.debug.print, jax.pure_callback) need grpcio: {error}; "
            "pip install grpcio") from None


def _end(session: weakref.ref) -> None:
    """At exit: lets the launches that JAX waits for end with their callbacks, ends the stream."""
    if (found := session()) is None or not found.stream.serving_here:
        return
    from jax._src import dispatch

    problem, waits = None, dispatch.runtime_tokens
    for token in [*waits.current_tokens.values(), *waits.output_runtime_tokens.values()]:
        try:
            token.block_until_ready()
        except Exception as error:
            pure = any(token is other for other in _pure.values())
            if not pure and not str(error).startswith("UNAVAILABLE"):  # terminal.py reports that
                problem = problem or error
    waits.clear()  # otherwise JAX would report each failure twice more
    found.stream.close()
    if problem is not None:
        raise problem
