# SPDX-License-Identifier: Apache-2.0
"""Ten thousand connections that prove nothing, at each port of a cluster with certificates, and of one without."""

import contextlib
import pathlib
import re
import resource
import socket
import subprocess
import threading

import pytest

from cluster import BIN, clean_environment, wait_for
from test_plain_text import children
from test_settings import Daemon, run
from test_tls import PROGRAM, make, tls_of, user_of

MANY = 10_000
HELLO = bytes.fromhex("16030102000100 01fc0303".replace(" ", "")) + bytes(20)  # the beginning of one of TLS


class Steps:
    """A client that runs a program again and again, and counts."""

    def __init__(self, address, *flags):
        self.words = ["run", str(PROGRAM), "--controller", address, "--arg", "x=1.5", "--repeat", "20", *flags]
        self.count, self.failure, self._stop = 0, None, threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self):
        while not self._stop.is_set():
            done = subprocess.run([str(BIN / "fairway"), *self.words], env=clean_environment(), capture_output=True,
                                  text=True, check=False)
            if done.returncode != 0:
                self.failure = done.stdout + done.stderr
                return
            self.count += 1

    def goes_on(self, more=3):
        """Waits for more steps; each is a client of its own, with connections of its own."""
        begun = self.count
        wait_for(lambda: self.failure is not None or self.count >= begun + more, "more steps", 240)
        assert self.failure is None, self.failure

    def stop(self):
        self._stop.set()
        self._thread.join()
        assert self.failure is None, self.failure


@contextlib.contextmanager
def held(port, many, first_host):
    """Opens so many connections to a port of 127.0.0.1 from three addresses, holds them, and says how many are gone."""
    peers = []
    try:
        for number in range(many):
            peer = socket.socket()
            peers.append(peer)
            peer.bind((f"127.0.0.{first_host + number % 3}", 0))
            peer.settimeout(240)
            peer.connect(("127.0.0.1", port))
            if number % 2:
                with contextlib.suppress(OSError):
                    peer.send(HELLO)
        yield peers
    finally:
        for peer in peers:
            peer.close()


def closed(peers):
    def is_closed(peer):
        peer.setblocking(False)
        try:
            while peer.recv(4096):
                pass
            return True
        except BlockingIOError:
            return False
        except OSError:
            return True

    return sum(map(is_closed, peers))


@pytest.fixture
def many():
    """The number of connections: fewer where this process may not have as many descriptors."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
    yield min(MANY, before[1] - 500)
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.fixture(params=["with certificates", "plain"])
def flooded(request, tmp_path):
    """(ports of controller and an executor by name, flags of clients, a function that starts worker w2) of a cluster of
    two islands."""
    tls = request.param == "with certificates"
    folder, daemons = tmp_path / "cluster", []
    if tls:
        make(folder, "w0", "w1", "w2")
    daemons.append(Daemon(tmp_path / "controller.log", "fairway-controller",
                          *(["--config", str(folder / "fairway.toml")] if tls else []), "--port=0", "--http-port=0",
                          "--link-port=0", "--data-port=0"))
    said = daemons[0].wait("listening on")
    names = ("clients", "HTTP", "workers", "data")
    ports = dict(zip(names, map(int, re.search(", ".join(rf"{name} (\d+)" for name in names), said).groups())))

    def worker(number):
        daemons.append(Daemon(
            tmp_path / f"w{number}.log", "fairway-worker", f"--name=w{number}", f"--island=island{number}", "--runtime=host",
            "--devices=2", f"--controller=127.0.0.1:{ports['workers']}", *(tls_of(folder, f"w{number}") if tls else [])))

    for number in (0, 1):
        worker(number)
    daemons[0].wait("islands up: 2")
    pid = next(pid for pid in children(daemons[1].process.pid)
               if b"--role=executor" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes())
    listening = subprocess.run(["ss", "-Hltnp"], capture_output=True, text=True, check=True).stdout
    ports["data of w0"] = int(re.search(rf"127.0.0.1:(\d+) .*pid={pid},", listening)[1])
    yield ports, user_of(folder) if tls else [], lambda: (worker(2), daemons[0].wait("islands up: 3"))
    assert all(daemon.process.poll() is None for daemon in daemons)
    for daemon in reversed(daemons):
        daemon.stop()


def test_those_who_prove_nothing_stop_nobody(flooded, many):
    ports, flags, worker = flooded
    address = f"127.0.0.1:{ports['clients']}"
    steps = Steps(address, *flags)
    try:
        steps.goes_on(1)
        for number, (name, port) in enumerate(ports.items()):
            with held(port, many, 2 + 3 * number) as peers:
                steps.goes_on()
                assert run("fairway", "status", "--controller", address, *flags).returncode == 0
                # A port closes them as fast as the machine lets it accept them.
                wait_for(lambda: closed(peers) > many - 2000, f"{name} closes all but 2,000 of {many}", 240)
                if name == "workers":
                    worker()
    finally:
        steps.stop()
