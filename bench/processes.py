# SPDX-License-Identifier: Apache-2.0
"""The resources that processes use, from /proc; and measured clients, with all that they start."""

import os
import pathlib
import re
import secrets
import select
import signal
import subprocess
import tempfile
import time

_MARK = "FAIRWAY_BENCH_CLIENT"


def cpu_seconds(pids):
    """CPU seconds of all threads of these processes that still live."""
    total = 0
    for pid in pids:
        for task in pathlib.Path(f"/proc/{pid}/task").glob("*"):
            try:
                total += int((task / "schedstat").read_text().split()[0])
            except OSError:  # the process has ended
                pass
    return total / 1e9


def peak_memory(pids):
    """Bytes: the sum of the most that each of these processes had resident (shared pages each)."""
    total = 0
    for pid in pids:
        try:
            status = pathlib.Path(f"/proc/{pid}/status").read_text()
        except OSError:
            continue
        found = re.search(r"VmHWM:\s+(\d+) kB", status)
        total += int(found.group(1)) * 1024 if found else 0
    return total


class ClientError(Exception):
    """An error that a client reported, or the way in which it ended."""


class Client:
    """A process that is asked over its streams (dispatch/serve.py), and all that it starts. Those
    are found by a variable in their environment; none is left after close()."""

    def __init__(self, command, environment, servers=(), seconds=200):
        """`servers`: a function that returns the ids of processes that work for it and that others
        started. Raises ClientError when it does not start within `seconds`."""
        self._mark = secrets.token_hex(16)
        self._servers = servers
        self._seconds = seconds
        self._errors = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            list(map(str, command)), env={**environment, _MARK: self._mark}, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=self._errors)
        try:
            word, *self.styles = self._hear().split(" ", 1)
            self.styles = self.styles[0].split(",")
            if word != "ready":
                raise ClientError(f"it said {word} {self.styles}")
        except BaseException:
            self.close()
            raise

    def measure(self, style):
        """Returns (steps, seconds)."""
        self.process.stdin.write(style.encode() + b"\n")
        self.process.stdin.flush()
        steps, seconds = self._hear().split()
        return int(steps), float(seconds)

    def pids(self):
        """The ids of the client, of all that it has started, and of its servers."""
        return sorted({*self._own(), *(self._servers() if self._servers else ())})

    def close(self):
        """Ends it; kills whatever is left after twenty seconds."""
        self.process.stdin.close()
        deadline = time.monotonic() + 20
        while self._own() and time.monotonic() < deadline:
            self.process.poll()
            time.sleep(0.05)
        for pid in self._own():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process.wait()
        self.process.stdout.close()

    def _own(self):
        wanted = f"{_MARK}={self._mark}".encode()
        found = []
        for entry in pathlib.Path("/proc").iterdir():
            try:
                if (entry.name.isdigit() and wanted in (entry / "environ").read_bytes().split(b"\0")
                        and (entry / "stat").read_text().rpartition(")")[2].split()[0] != "Z"):
                    found.append(int(entry.name))
            except OSError:
                pass
        return found

    def _hear(self):
        if not select.select([self.process.stdout], [], [], self._seconds)[0]:
            raise ClientError(f"no answer in {self._seconds} s{self._last_words()}")
        line = self.process.stdout.readline().decode().strip()
        if not line:
            raise ClientError(f"it ended{self._last_words()}")
        if line.startswith("error "):
            raise ClientError(line.removeprefix("error "))
        return line

    def _last_words(self):
        self._errors.seek(0)
        lines = [line.strip() for line in self._errors.read().decode(errors="replace").splitlines()]
        lines = [line for line in lines if line]
        return f": {lines[-1][:300]}" if lines else ""
