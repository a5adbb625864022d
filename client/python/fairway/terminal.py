# SPDX-License-Identifier: Apache-2.0
"""Limits what jaxlib's proxy client writes to a terminal, and ends a process with a session safely.

By default the client logs its plain-text connection, the end of the connection with a C++ stack
trace, and at every later use the requests that it could not send. Exceptions report all of that.
Only which controller went away, and when, is in none of them, so that is a notice.

At exit the client must not be destroyed. Its destructor does not wait for its own threads: it
crashes on a buffer whose deletion is under way (seen as SIGABRT and SIGSEGV over a slow
connection), and the interpreter runs it after the last handler of atexit. So the process keeps the
client to its end. The connection closes with the process, and then the controller frees everything.

A thread of jaxlib reports the end of a session. If it enters Python while the interpreter ends, the
process aborts (up to Python 3.13). So a process that has seen the error of an ended session, or whose
connection is gone, waits for that thread first.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import socket
import sys
import threading
import time
import weakref
from typing import Any

from fairway import gateway, notices, progress

_FATAL = 3  # absl's level; lower levels are not logged
_TELL_SECONDS = 3.0
_TRACEBACK_SECONDS = 0.5
_RETURN_SECONDS = 0.05
_ENDED = "UNAVAILABLE"  # each error of an ended session begins with this

_clients: list[weakref.ref] = []
_sessions: list[_Session] = []
_prepared = False
_unavailable = False  # an error of an ended session was raised, even if it was caught
_leaving = threading.Event()


def prepare() -> None:
    """Makes this process quiet. Called before a session is opened. Idempotent."""
    global _prepared
    if _prepared:
        return
    _prepared = True
    hide_client_log()
    _note_errors()
    name_xla_flags()
    progress.install()
    atexit.register(_at_exit)  # registered after JAX's handler, so it runs first
    os.register_at_fork(after_in_child=_in_child)


def hide_client_log() -> None:
    """Lets jaxlib log only fatal errors, unless the user chose another level.

    Other errors are hidden too: the client also raises them, and at exit it logs failures to clean
    up. TF_CPP_MIN_LOG_LEVEL=0 or 2 in the environment, and JAX's jax_logging_level, are left as
    they are; 1 is the value that JAX itself sets.
    """
    import jax

    if os.environ.get("TF_CPP_MIN_LOG_LEVEL", "1") != "1":
        return
    if (getattr(jax.config, "jax_logging_level", None) or "NOTSET") != "NOTSET":
        return
    try:
        from jaxlib import utils

        utils.absl_set_min_log_level(_FATAL)
    except (ImportError, AttributeError):  # another jaxlib, which then is only less quiet
        pass


def _note_errors() -> None:
    """From now on, remembers an error that says that a session has ended."""
    from jax.errors import JaxRuntimeError

    inner = JaxRuntimeError.__init__

    def init(self, *arguments):
        global _unavailable
        _unavailable |= bool(arguments) and str(arguments[0]).startswith(_ENDED)
        inner(self, *arguments)

    JaxRuntimeError.__init__ = init


def name_xla_flags() -> None:
    """Notes that XLA_FLAGS do not reach the cluster, if any but those for the local CPU are set."""
    flags = [f for f in os.environ.get("XLA_FLAGS", "").split() if f]
    lost = [f for f in flags if not f.startswith("--xla_force_host_platform_device_count")]
    if lost:
        notices.say(
            "xla_flags",
            f"XLA_FLAGS ({' '.join(lost)[:200]}) act on this process's local CPU devices, not on "
            "the cluster; options of one program: jax.jit(f, compiler_options={...})")


def watch(options: Any, where: str, by: gateway.Gateway | None = None) -> _Session:
    """Reports an end of the session that comes from outside, in one line.

    Args:
      options: jaxlib's ClientConnectionOptions, before they are used.
      where: the controller's address, for the line.
      by: the gateway through which this process reaches it; None: it connects to `where` itself.

    Returns:
      The argument for `keep`.
    """
    session = _Session(where, by)
    try:
        options.on_disconnect = session.ended
    except AttributeError:
        pass
    return session


class _Session:
    """The address and state of a client's connection. The client keeps it alive."""

    def __init__(self, where: str, by: gateway.Gateway | None):
        self.where = where
        self.gateway = by
        self.peers = {by.path} if by else _addresses(where)  # as `_peer` returns them
        _sessions.append(self)
        self.client: weakref.ref | None = None
        self.seen = False  # whether its connection was found when it began
        self.ending = False
        self.told = threading.Event()

    def ended(self, status: str) -> None:
        """Called by a thread of jaxlib, once: the session has ended, for whatever reason."""
        self.ending = True
        # jaxlib 0.8.2 crashes when it tells the controller that an array or executable is gone.
        if self.client is not None and (client := self.client()) is not None:
            _keep_with_contents(client)
        try:
            self._tell(status)
        finally:
            self.told.set()

    def _tell(self, status: str) -> None:
        at = time.strftime("%H:%M:%S")
        # A client that is destroyed ends its session itself; that needs no notice.
        if self.client is None or self.client() is None or sys.is_finalizing():
            return
        # The error is raised at the same time: its traceback should come before this line.
        _leaving.wait(_TRACEBACK_SECONDS)
        reason = status.partition(": ")[2]
        reason = "" if reason in ("", "CANCELLED") else f" ({reason})"
        if self.gateway is not None and (end := self.gateway.end()) is not None:
            notices.write(
                f"`fairway gateway` (pid {self.gateway.pid}), by which this process reached {self.where}, {end}; "
                f"so this session ended at {at}, and its arrays are gone. Start this program (or notebook kernel) again")
            return
        notices.write(
            f"the controller at {self.where} ended this session at {at}{reason}; its arrays are "
            f"gone. See `fairway status --controller {self.where}`, then start this program "
            "(or notebook kernel) again")

    def let_tell(self) -> None:
        """At exit: waits for the thread that calls `ended`, if it is there or about to come."""
        if self.client is None or self.client() is None:
            return
        # The session may be ending at this very moment.
        until = time.monotonic() + _RETURN_SECONDS
        while not (ended := self.ending or _unavailable or (self.seen and not self.connected())):
            if time.monotonic() > until:
                break
            time.sleep(0.005)
        if ended:
            self.told.wait(_TELL_SECONDS)
            time.sleep(_RETURN_SECONDS)  # the thread still has to return to jaxlib

    def connected(self) -> bool:
        """Whether this process has a connection to it; one through a proxy is not seen."""
        return any(_peer(name) in self.peers for name in os.listdir("/proc/self/fd"))


def _addresses(where: str) -> set[tuple[str, int]]:
    host, _, port = where.rpartition(":")
    try:
        found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
    except OSError:
        return set()
    return {(address[0], address[1]) for *_, address in found}


def latest() -> str | None:
    """The address of the controller of the latest session of this process."""
    return _sessions[-1].where if _sessions else None


def keep(session: _Session, client: Any) -> None:
    """Remembers the client that was made with the options of `watch`."""
    session.client = weakref.ref(client)
    session.seen = session.connected()
    _clients.append(session.client)


def _proxies() -> list[Any]:
    """The proxy clients of this process: ours, and those that other packages have registered."""
    found = [ref() for ref in _clients]
    found += [c for c in _backends() if str(getattr(c, "runtime_type", "")).startswith("proxy/")]
    return [c for c in found if c is not None]


def _backends() -> list[Any]:
    from jax._src import xla_bridge

    return list(getattr(xla_bridge, "_backends", {}).values())


def _keep(*things: Any) -> None:
    """Keeps these things alive until the process ends, even past the interpreter's end."""
    for thing in things:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


def _keep_with_contents(client: Any) -> None:
    _keep(client, *client.live_executables(), *client.live_arrays())


def _at_exit() -> None:
    _leaving.set()
    for session in _sessions:
        session.let_tell()
    _keep(*_proxies())


def _in_child() -> None:
    """In a child of a fork, disables its copies of the clients, which have no threads.

    Their messages would go into the parent's connection, between the parent's messages, and
    destroying a client waits for threads that do not exist. So both are prevented.
    """
    _keep(*_backends())
    for client in _proxies():
        _keep_with_contents(client)
    peers = {peer for session in _sessions for peer in session.peers}
    _sessions.clear()
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for name in os.listdir("/proc/self/fd"):
        if _peer(name) in peers:
            os.dup2(null, int(name), inheritable=False)
    os.close(null)
    _forget_waits()
    _refuse_use()


def _peer(descriptor: str) -> tuple[str, int] | str | None:
    """The remote address of a TCP descriptor of this process, or the path of a Unix socket's, or None."""
    try:
        if not os.readlink(f"/proc/self/fd/{descriptor}").startswith("socket:"):
            return None
        with socket.socket(fileno=os.dup(int(descriptor))) as copy:
            if copy.family == socket.AF_UNIX:
                return copy.getpeername()
            if copy.family not in (socket.AF_INET, socket.AF_INET6):
                return None
            host, port, *_ = copy.getpeername()
            return host.removeprefix("::ffff:"), port  # the form in which IPv6 writes IPv4
    except OSError:  # closed, or not connected
        return None


def _forget_waits() -> None:
    """Clears the launches that JAX waits for at exit: the child never hears of their end."""
    try:
        from jax._src import dispatch

        waits = dispatch.runtime_tokens
        _keep(waits.current_tokens, waits.output_runtime_tokens)
        waits.clear()
    except (ImportError, AttributeError):
        pass


def _refuse_use() -> None:
    """Raises where JAX's Python code would wait for those threads."""
    def refuse(*_: Any, **__: Any) -> Any:
        raise RuntimeError(
            "this process was forked from one that has a session with a Fairway controller, which "
            "it cannot use; start it with multiprocessing.get_context('spawn')")

    try:
        from jax._src import array, compiler, pjit
        from jax._src.interpreters import pxla
        from jax._src.lib import _jax

        array.ArrayImpl._value = property(refuse)
        array.ArrayImpl.block_until_ready = refuse
        pxla.ExecuteReplicated.__call__ = pxla.shard_args = refuse
        compiler.compile_or_get_cached = refuse
        pjit._cpp_pjit_cache_fun_only.clear()
        pjit._cpp_pjit_cache_explicit_attributes.clear()
        _jax.PjitFunctionCache.clear_all()
    except (ImportError, AttributeError):
        pass
