# SPDX-License-Identifier: Apache-2.0
"""Starts `fairway gateway`, by which jaxlib's client, which speaks plain text, uses a controller with TLS.

The gateway listens on a socket that this user alone can connect to, and ends with this process: it
holds the read end of a pipe, of which this process alone has the write end.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import socket
import subprocess
import tempfile
import time

import _fairway_command

_WAIT = 30.0  # seconds for a gateway to end once it has said why
_GOES = 2.0  # seconds for a gateway to end once its socket is closed


class GatewayError(RuntimeError):
    """There is no gateway; the text is one line."""


class Gateway:
    """A gateway that serves. It ends with the process, or by `close`."""

    def __init__(self, path: str, held: int, pid: int):
        self.path = path  # of its socket
        self.pid = pid
        self._held = held
        # A child of a fork would keep it when this process has ended.
        os.register_at_fork(after_in_child=self.close)

    def close(self) -> None:
        held, self._held = self._held, -1
        if held >= 0:
            os.close(held)

    def end(self) -> str | None:
        """How its process ended, in words; None: it lives, or this is a child of the process that started it.

        A process that is killed closes its sockets before it is over, so one that takes no connections any
        more is waited for, two seconds at most.
        """
        until = time.monotonic() + _GOES
        try:
            while not (ended := os.waitpid(self.pid, os.WNOHANG))[0]:
                if self._listens() or time.monotonic() > until:
                    return None
                time.sleep(0.01)
        except ChildProcessError:
            return None
        _, status = ended
        code = os.waitstatus_to_exitcode(status)
        return f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"

    def _listens(self) -> bool:
        with socket.socket(socket.AF_UNIX) as probe:
            probe.setblocking(False)
            try:
                probe.connect(self.path)
            except BlockingIOError:  # more wait than it has taken
                return True
            except OSError:
                return False
        return True


def start(controller: str, tls_ca: str, token_file: str | None = None) -> Gateway:
    """Starts a gateway and waits until it serves.

    Args:
      controller: host:port.
      tls_ca: PEM file of the CA that has signed the controller's certificate.
      token_file: file of the token with which it makes all calls, or /dev/fd/N; None: none.

    Raises:
      GatewayError: the program is missing, or what the gateway says: it cannot be reached, a file
        or the controller's certificate is wrong, or the controller speaks no TLS.
    """
    command = _program()
    token = [f"--token-file={token_file}"] if token_file else []
    descriptor = re.fullmatch(r"/dev/fd/(\d+)", token_file or "")
    passed = (int(descriptor[1]),) if descriptor else ()
    folder = tempfile.mkdtemp(prefix="fairway-")  # mode 0700
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = os.path.join(folder, "gateway")
    life, held = os.pipe()
    try:
        process = subprocess.Popen(
            [command, "gateway", f"--controller={controller}", f"--tls-ca={tls_ca}", f"--listen=unix:{path}",
             f"--life-fd={life}", *token],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            pass_fds=(life, *passed), start_new_session=True)  # Ctrl-C at a terminal is for this process alone
    except OSError as error:
        os.close(held)
        raise GatewayError(f"cannot start {command}: {error.strerror}") from None
    finally:
        os.close(life)
    if not process.stdout.readline().startswith("listening on "):
        os.close(held)
        _, said = process.communicate(timeout=_WAIT)
        lines = said.strip().splitlines() or [f"{command} ended with code {process.returncode}"]
        raise GatewayError(lines[-1].removeprefix("fairway gateway: "))
    process.stdout.close()
    process.stderr.close()
    process.returncode = 0  # nobody waits for it here: it ends after this process
    return Gateway(path, held, process.pid)


def _program() -> str:
    try:
        return str(_fairway_command.prefix() / "bin" / "fairway")
    except _fairway_command.Missing as error:
        found = shutil.which("fairway")
        if found is None:
            raise GatewayError(str(error)) from None
        return found
