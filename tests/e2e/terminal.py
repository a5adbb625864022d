# SPDX-License-Identifier: Apache-2.0
"""A Python program on a terminal of its own, and a slow connection."""

import os
import pty
import re
import select
import signal
import socket
import subprocess
import sys
import threading
import time

_LONG = re.compile(r"(?m)^fairway: compiling .* \(over [\d.]+ s so far\)\n")
_LOG = re.compile(r"(?m)^[IWEF]\d{4} |stack trace|Stack trace|^WARNING: All log messages")


def without_client_log(text):
    """Fails if `text` has a line of jaxlib's log or a C++ stack trace. Returns `text`."""
    assert not _LOG.search(text), text[-4000:]
    return text


def without_progress(text):
    """Without the lines about compilations that take long, as any may on a busy machine."""
    return _LONG.sub("", text)


def _in_child(slave):
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell makes its background programs ignore it
    os.close(os.open(os.ttyname(slave), os.O_RDWR))


class Terminal:
    """Runs a program as a user does: standard input, output and error are one terminal."""

    def __init__(self, *arguments, env):
        self._master, slave = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-u", *map(str, arguments)], env=env, stdin=slave, stdout=slave,
            stderr=slave, start_new_session=True,
            preexec_fn=lambda: _in_child(slave))
        os.close(slave)
        self.text = ""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait(120)
        os.close(self._master)

    def _read(self, deadline):
        """Reads more of the output; false at its end."""
        ready, _, _ = select.select([self._master], [], [], max(0, deadline - time.monotonic()))
        assert ready, f"nothing more came; so far:\n{self.text[-4000:]}"
        try:
            data = os.read(self._master, 65536)
        except OSError:  # the last process has closed its side
            return False
        self.text += data.decode(errors="replace").replace("\r\n", "\n")
        return bool(data)

    def until(self, text, seconds=300):
        """Waits until `text` has been printed."""
        deadline = time.monotonic() + seconds
        while text not in self.text:
            assert self._read(deadline), f"ended without {text!r}:\n{self.text[-4000:]}"

    def interrupt(self):
        """Presses Ctrl-C."""
        os.write(self._master, b"\x03")

    def enter(self):
        os.write(self._master, b"\n")

    def end(self, seconds=300):
        """Waits for the program's end. Returns (exit status, all of its output)."""
        deadline = time.monotonic() + seconds
        while self._read(deadline):
            pass
        return self.process.wait(120), self.text


class SlowConnection:
    """A port that forwards to another one and delays each byte by some seconds."""

    def __init__(self, port, seconds):
        self._seconds, self._target = seconds, port
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()

    def _accept(self):
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            target = socket.create_connection(("127.0.0.1", self._target))
            for one, other in ((client, target), (target, client)):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=self._pump, args=(one, other), daemon=True).start()

    def _pump(self, source, sink):
        def later(data):
            try:
                sink.sendall(data) if data else sink.shutdown(socket.SHUT_WR)
            except OSError:
                pass

        with _Line() as line:
            while True:
                try:
                    data = source.recv(65536)
                except OSError:
                    data = b""
                line.put(time.monotonic() + self._seconds, lambda data=data: later(data))
                if not data:
                    return


class _Line:
    """Runs functions in order, each at its time."""

    def __init__(self):
        self._things, self._some, self._closed = [], threading.Condition(), False
        threading.Thread(target=self._run, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with self._some:
            self._closed = True
            self._some.notify()

    def put(self, at, thing):
        with self._some:
            self._things.append((at, thing))
            self._some.notify()

    def _run(self):
        while True:
            with self._some:
                self._some.wait_for(lambda: self._things or self._closed)
                if not self._things:
                    return
                at, thing = self._things.pop(0)
                closed = threading.Event()
            closed.wait(max(0, at - time.monotonic()))
            thing()
