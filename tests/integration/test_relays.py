# SPDX-License-Identifier: Apache-2.0
"""Relays of an island's log in real processes (docs/design/0066-relays.md).

TEST_RELAY_EXECUTORS sets the size of the island; 8 by default, 64 needs some GB of memory.
"""

import os
import pathlib
import signal
import socket
import struct
import subprocess
import time

import pytest

from cluster import BIN, clean_environment, wait_for
from hindered import slow, stopped

PROGRAM = BIN.parent / "tests" / "islands_program"
EXECUTORS = int(os.environ.get("TEST_RELAY_EXECUTORS", "8"))
FAN_OUT = 2 if EXECUTORS <= 8 else 4


class Island:
    """A cluster of one island with relays, and a program that runs gangs there."""

    def __init__(self, cluster):
        self.cluster = cluster
        wait_for(self.settled, "every executor to have a relay")
        self.before = {e["worker"]: e["incarnation"] for e in cluster.status()["executors"]}
        self.program = subprocess.Popen(
            [str(PROGRAM), cluster.address, "steps", "0"], env=clean_environment(), text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.said = []
        self.goes_on()

    def settled(self):
        status = self.cluster.status()
        return (len(status["relays"]) == EXECUTORS
                and all(e["up"] and e["log_from"] for e in status["executors"]))

    def goes_on(self):
        """Waits until gangs that begin now have ended."""
        for _ in range(2):
            line = self.program.stdout.readline()
            self.said.append(line)
            assert line.startswith("steps"), "".join(self.said) + self.program.stdout.read()

    def parents(self):
        return {e["worker"]: e["log_from"] for e in self.cluster.status()["executors"]}

    def relay_with(self, children):
        """A worker whose relay has children of this kind, "executors" or "relays"."""
        return next(r["worker"] for r in self.cluster.status()["relays"] if r[children] > 0)

    def process(self, worker):
        return next(p for p in self.cluster.processes()
                    if p.flag("role") == "relay" and p.flag("name") == worker)

    def log(self, worker):
        return (pathlib.Path(self.cluster.status()["log_dir"]) / f"{worker}.log").read_text()

    def total(self, metric):
        return self.cluster.metrics().total(metric)

    def ends_well(self):
        """The program has lost nothing, and no executor was lost."""
        self.goes_on()
        rest = self.program.communicate("\n", timeout=240)[0]
        assert self.program.returncode == 0, rest
        executors = self.cluster.status()["executors"]
        assert {e["worker"]: e["incarnation"] for e in executors} == self.before
        assert not any(e["last_error"] for e in executors)


@pytest.fixture
def island(new_cluster):
    made = Island(new_cluster(
        1, EXECUTORS, ("--runtime=host", f"--workers-per-island={EXECUTORS}"),
        {"FAIRWAY_RELAY_BIND": "127.0.0.1:0", "FAIRWAY_RELAY_FAN_OUT": str(FAN_OUT)}))
    yield made
    made.program.kill()
    made.program.wait()


def test_a_relay_that_is_killed_under_load_costs_no_data_and_no_launch(island):
    for children in ("executors", "relays"):
        moves = island.total("fairway_relay_moves_total")
        worker = island.relay_with(children)
        killed = island.process(worker)
        killed.signal(signal.SIGKILL)
        if children == "executors":
            wait_for(lambda: island.total("fairway_relay_moves_total") > moves, "other parents")
        island.goes_on()
        # Its supervisor starts another one.
        wait_for(lambda: any(p.flag("role") == "relay" and p.flag("name") == worker
                             and p.pid != killed.pid for p in island.cluster.processes()),
                 "another relay")
        wait_for(island.settled, "every executor to have a relay")
        island.goes_on()
    island.ends_well()


def test_children_of_a_stopped_relay_get_another_parent(island):
    worker = island.relay_with("executors")
    children = [w for w, parent in island.parents().items() if parent == worker]
    assert children
    with stopped(island.process(worker)):
        wait_for(lambda: all(island.parents()[child] != worker for child in children),
                 "another parent of its children")
        assert island.total("fairway_relay_troubles_total") >= 1
        island.goes_on()
    island.ends_well()


def test_children_of_a_relay_that_is_late_again_and_again_get_another_parent_and_no_others(island):
    for _ in range(4):  # a relay that does not get a processor for a second is replaced, too; not each time
        wait_for(island.settled, "every executor to have a relay")
        before = island.parents()
        worker = island.relay_with("executors")
        children = [w for w, parent in before.items() if parent == worker]
        with slow(island.process(worker)):
            wait_for(lambda: all(island.parents()[child] != worker for child in children),
                     "another parent of its children")
            after = island.parents()
            island.goes_on()
        if all(after[w] == parent for w, parent in before.items() if w not in children):
            break
    else:
        raise AssertionError(island.cluster.logs()[-4000:])
    island.ends_well()


def test_status_shows_the_tree(island):
    def text():
        return island.cluster.cli("status", "--controller", island.cluster.address, "-o", "wide").stdout

    worker = island.relay_with("executors")
    wait_for(lambda: f"commands come from the relay of {worker}\n" in text()
             and f"  relay of {worker}: below " in text(), "the tree in `fairway status`")
    wait_for(lambda: island.total("fairway_relay_messages_total") > 100
             and island.total("fairway_relay_bytes_total") > 1000, "messages of relays")
    island.ends_well()


# ---- strangers at a relay's port

CRC_TABLE = []
for byte in range(256):
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    CRC_TABLE.append(byte)


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ CRC_TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def varint(number):
    return bytes([number]) if number < 128 else bytes([number & 127 | 128]) + varint(number >> 7)


def log_ask(version, incarnation, secret, controller=0):
    """The frame with which a child begins (link.proto, LogAsk)."""
    ask = b"\x08" + varint(version) + b"\x11" + struct.pack("<Q", incarnation)
    ask += b"\x22" + bytes([len(secret)]) + secret + b"\x29" + struct.pack("<Q", controller)
    payload = b"\x5a" + bytes([len(ask)]) + ask
    return struct.pack("<IBBHQQII", 0x59575246, 1, 1, 0, 0, 0, len(payload), crc32c(payload)) + payload


def address(island, worker):
    endpoint = next(r["endpoint"] for r in island.cluster.status()["relays"] if r["worker"] == worker)
    host, _, port = endpoint.rpartition(":")
    return host, int(port)


def answer(where, data):
    """What comes until the other end closes the connection."""
    with socket.create_connection(where, timeout=120) as sock:
        sock.sendall(data)
        got = b""
        try:
            while more := sock.recv(1 << 16):
                got += more
        except ConnectionResetError:
            pass
        return got


def moves_nobody(island, strangers):
    """Fails if executors get other parents each time that strangers() runs. A relay that does not get a processor for
    a second loses its children, too; not each time."""
    for _ in range(4):
        wait_for(island.settled, "every executor to have a relay")
        moves = island.total("fairway_relay_moves_total")
        strangers()
        if island.total("fairway_relay_moves_total") == moves:
            return
    raise AssertionError(island.cluster.logs()[-4000:])


def test_a_child_with_a_wrong_proof_is_named_in_one_line_and_gets_nothing(island):
    def asks():
        worker = island.relay_with("executors")
        child = next(w for w, parent in island.parents().items() if parent == worker)
        line = f"it says that it is the executor of worker {child}, but its proof is wrong"
        before = island.log(worker).count(line)
        controller = island.cluster.status()["incarnation"]

        def named():
            for version in range(1, 200):  # another one than the present is refused without a word
                ask = log_ask(version, island.before[child], b"?" * 16, controller)
                assert answer(address(island, worker), ask) == b""
                if island.log(worker).count(line) > before:
                    return True
            return False

        wait_for(named, "the line about a wrong proof")
        assert island.log(worker).count(line) == before + 1

    moves_nobody(island, asks)
    island.ends_well()


def test_garbage_at_a_relays_port_disturbs_nobody(island):
    begun = time.monotonic()
    moves_nobody(island, lambda: say_garbage(island))
    # Bounded lines: some 300 links were refused, and ten lines in ten seconds say so.
    most = 10 * (2 + (time.monotonic() - begun) / 10)
    for worker in island.before:
        assert island.log(worker).count("the relay refuses a link") <= most
    island.ends_well()


def say_garbage(island):
    worker = island.relay_with("executors")
    where = address(island, worker)
    for data in (b"GET / HTTP/1.1\r\n\r\n" * 10, os.urandom(4096), bytes(4096),
                 log_ask(1, 1, b"")[:-1] + b"x",  # a wrong checksum
                 struct.pack("<IBBHQQII", 0x59575246, 1, 1, 0, 0, 0, 1 << 30, 0)):  # too long
        assert answer(where, data) == b""
    silent = [socket.create_connection(where, timeout=120) for _ in range(300)]
    fds = pathlib.Path(f"/proc/{island.process(worker).pid}/fd")
    wait_for(lambda: len(list(fds.iterdir())) < 64 + 2 * FAN_OUT + 40, "the links of strangers to end")
    island.goes_on()
    for sock in silent:
        sock.close()
