# SPDX-License-Identifier: Apache-2.0
"""Serves the calls of one session's programs: a stream to the controller, and threads that run them.

grpcio is imported with the first stream, so only by processes that have callbacks.
"""

from __future__ import annotations

import collections
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from fairway import callback_messages as messages

_METHOD = "/fairway.v1.Callbacks/Serve"
_OPEN_SECONDS = 20.0
_TRIES = 5  # attempts to open again a stream that had served, after 0.1 s, 0.2 s, ...
_LASTED = 10.0  # a stream that served for so many seconds has all attempts again
_THREADS = 256
_CANCELLED, _INTERNAL = 1, 13


class StreamError(RuntimeError):
    """The stream cannot be opened; the text is one line."""


class CallError(Exception):
    """A call fails with exactly this text."""


class Pool:
    """Runs each function in a thread at once: starts another thread where none is idle, up to
    `limit`. Functions that wait for each other need a thread each."""

    def __init__(self, limit: int = _THREADS):
        self._limit = limit
        self._lock = threading.Lock()
        self._handed: queue.SimpleQueue = queue.SimpleQueue()  # one per idle thread taken
        self._waiting: collections.deque = collections.deque()
        self._threads = self._idle = 0

    def run(self, function: Callable[[], None]) -> None:
        with self._lock:
            if self._idle:
                self._idle -= 1
                self._handed.put(function)
                return
            if self._threads >= self._limit:
                self._waiting.append(function)
                return
            self._threads += 1
        try:
            threading.Thread(target=self._work, args=(function,), daemon=True,
                             name="fairway-callback").start()
        except RuntimeError:  # no thread can be started: the interpreter is ending
            with self._lock:
                self._threads -= 1
            function()

    def _work(self, function: Callable[[], None]) -> None:
        while True:
            function()
            function = None  # an idle thread must not keep objects alive
            with self._lock:
                if self._waiting:
                    function = self._waiting.popleft()
                    continue
                self._idle += 1
            function = self._handed.get()


class Stream:
    """The stream of one session. Thread-safe.

    Args:
      target: "host:port" of the controller.
      channel: the session's, 16 bytes.
      answer: runs a call, in a thread of its own, and returns its results in the wanted types. An
        exception ends the call; a CallError ends it with exactly its text.
    """

    def __init__(self, target: str, channel: bytes,
                 answer: Callable[[messages.Call], list[np.ndarray]]):
        self._target, self._secret, self._answer = target, channel, answer
        self._pool = Pool()
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._serving = False
        self._call: Any = None
        self._process = os.getpid()

    @property
    def serving_here(self) -> bool:
        """Whether this process serves calls: a child of a fork does not."""
        return self._serving and self._process == os.getpid()

    def ensure_open(self) -> None:
        """Returns once calls are served.

        Raises:
          StreamError: calls cannot be served.
        """
        if self._process != os.getpid():
            raise StreamError("a forked process cannot serve callbacks; start it by spawning")
        with self._lock:
            if self._serving or self._ended.is_set():
                return
            _import_grpc()
            tried: queue.SimpleQueue = queue.SimpleQueue()
            threading.Thread(target=self._serve, args=(tried,), daemon=True,
                             name="fairway-callbacks").start()
            problem = tried.get()
            if problem is not None:
                raise StreamError(problem)

    def close(self) -> None:
        """Ends the stream. Calls under way go on, and their results are dropped."""
        if self._process != os.getpid():
            return
        self._ended.set()
        call = self._call
        if call is not None:
            call.cancel()

    def _serve(self, tried: queue.SimpleQueue) -> None:
        """Runs the reading thread. Puts the first stream's opening error, or None, into `tried`."""
        def opened() -> None:  # called in this thread, because the waiting one may be interrupted
            self._serving = True
            tried.put(None)

        problem = self._one_stream(opened)
        tried.put(problem)  # nobody reads this if the stream had opened
        left = _TRIES
        while left and problem is None and not self._ended.wait(0.1 * 2 ** (_TRIES - left)):
            began = time.monotonic()
            self._one_stream(lambda: None)
            left = _TRIES if time.monotonic() - began > _LASTED else left - 1
        self._serving = False

    def _one_stream(self, when_open: Callable[[], None]) -> str | None:
        """Serves one stream until its end. Returns why it did not open, or None if it did."""
        import grpc

        outgoing: queue.SimpleQueue = queue.SimpleQueue()
        outgoing.put([messages.open_message(self._secret)])
        opened = False
        with grpc.insecure_channel(self._target, options=[
                ("grpc.max_receive_message_length", 64 << 20),
                ("grpc.enable_http_proxy", 0)]) as channel:
            late = threading.Timer(_OPEN_SECONDS, channel.close)
            late.daemon = True
            try:
                call = self._call = channel.stream_stream(_METHOD)(_outgoing(outgoing))
                late.start()
                coming: dict[int, messages.Call] = {}
                for data in call:
                    message = messages.decode(data)
                    if isinstance(message, messages.Opened):
                        opened = True
                        late.cancel()
                        when_open()
                    elif message is not None:
                        self._take(message, coming, outgoing)
                return None if opened else "it ended the stream"
            # The message is not of the protocol, or too large, or the connection failed.
            except (ValueError, OverflowError, MemoryError, grpc.RpcError) as error:
                return None if opened else self._why(error)
            finally:
                late.cancel()
                outgoing.put(None)

    def _why(self, error: Any) -> str:
        import grpc

        code = error.code() if isinstance(error, grpc.RpcError) else None
        if code == grpc.StatusCode.UNIMPLEMENTED:
            return "it does not serve callbacks; it is older than this package"
        if code == grpc.StatusCode.CANCELLED:
            return "no answer within %g s" % _OPEN_SECONDS
        return " ".join(str(error.details() if code else error).split())

    def _take(self, message: Any, coming: dict, outgoing: queue.SimpleQueue) -> None:
        if isinstance(message, messages.Cancel):
            if coming.pop(message.call, None) is not None:
                outgoing.put([messages.failed(message.call, _CANCELLED, message.reason)])
            return  # a function cannot be stopped; its Return is dropped
        if isinstance(message, messages.Chunk):
            call = coming.get(message.call)
            if call is None:
                return
            call.fill(message.data)
        else:
            call = coming[message.number] = message
        if not call.missing:
            del coming[call.number]
            self._pool.run(lambda: outgoing.put(self._returns(call)))

    def _returns(self, call: messages.Call) -> Any:
        try:
            return messages.returned(call, self._answer(call))
        except CallError as error:
            return [messages.failed(call.number, _INTERNAL, str(error))]
        except BaseException as error:  # any error: the caller waits for an answer
            return [messages.failed(call.number, _INTERNAL, f"{type(error).__name__}: {error}")]


def _import_grpc() -> None:
    if "grpc" not in sys.modules:  # otherwise it logs every lost connection and every fork
        os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    import grpc  # noqa: F401


def _outgoing(pieces: queue.SimpleQueue) -> Iterator[bytes]:
    for piece in iter(pieces.get, None):
        yield from piece
