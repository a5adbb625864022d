# SPDX-License-Identifier: Apache-2.0
"""The table of releases in docs/jax-compatibility.md: what each one offers, gets and sends.

Read from the bytes between a client and the controller, which a relay sees: gRPC's messages are in
them unchanged, after a zero and four bytes of length.
"""

import re
import socket
import subprocess
import threading

import pytest

from cluster import ROOT, clean_environment
from conftest import NEXT_SUITE, VERSIONS, python_of
from smoke_results import CALLING, CASES

PAGE = ROOT / "docs" / "jax-compatibility.md"
# A version of the protocol: {1: protocol, 2: serdes}, both below 128; serdes 0 is left out.
VERSION = rb"[\x02\x04]\x08(.)(?:\x10(.))?"
OFFER = re.compile(rb"\0\0\0\0.\x0a" + VERSION + rb"\x12" + VERSION, re.DOTALL)
ANSWER = re.compile(rb"\0\0\0\0[\x04\x06]\x0a" + VERSION, re.DOTALL)


class Relay:
    """Passes bytes on, and keeps them."""

    def __init__(self, port):
        self.sent, self.answered = bytearray(), bytearray()
        self._port = port
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self._server.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:  # closed
                return
            there = socket.create_connection(("127.0.0.1", self._port))
            for a, b, kept in (client, there, self.sent), (there, client, self.answered):
                threading.Thread(target=self._pump, args=(a, b, kept), daemon=True).start()

    @staticmethod
    def _pump(a, b, kept):
        try:
            while data := a.recv(1 << 16):
                kept += data
                b.sendall(data)
            b.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def close(self):
        self._server.close()


def rows():
    """{jaxlib: the other cells of its row}."""
    found = {}
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 6 and re.fullmatch(r"\d+\.\d+\.\d+(\.\d+)?", cells[0]):
            found[cells[0]] = cells[1:]
    return found


def outcomes():
    """{jaxlib: outcomes of the smoke matrix on CPUs and on the stand-in for GPUs}, by the page."""
    return {m[0]: m[1:] for m in re.findall(r"^\| ([\d.]+) \| (\d+ passed) \| (\d+ passed, \d+ refused by name) \|$",
                                            PAGE.read_text(), re.MULTILINE)}


@pytest.mark.skipif(bool(NEXT_SUITE), reason="the table is about the releases in their own environments")
def test_the_table_of_outcomes_is_what_the_tests_demand():
    """test_versions.py and tests/gpu fail if a case ends differently."""
    on_gpus = f"{len(CASES) - len(CALLING)} passed, {len(CALLING)} refused by name"
    assert outcomes() == {version: (f"{len(CASES)} passed", on_gpus) for version in VERSIONS}
    assert f"the {len(CASES)} cases of the smoke matrix" in PAGE.read_text()


def number(group):
    return group[0] if group else 0


@pytest.mark.skipif(bool(NEXT_SUITE), reason="the table is about the releases in their own environments")
def test_the_table_has_the_tested_releases():
    assert sorted(rows()) == sorted(VERSIONS)


@pytest.mark.skipif(bool(NEXT_SUITE), reason="the table is about the releases in their own environments")
@pytest.mark.parametrize("version", VERSIONS)
def test_a_row_of_the_table(version, cluster):
    relay = Relay(cluster.port)
    code = "import sys, jax; print('%d.%d' % sys.version_info[:2], float(jax.numpy.ones(3).sum()))"
    done = subprocess.run(
        [*python_of(version), "-c", code], text=True, stdin=subprocess.DEVNULL, capture_output=True,
        timeout=600, env=clean_environment(JAX_PLATFORMS="fairway,cpu", FAIRWAY_CONTROLLER=relay.address),
    )
    relay.close()
    assert done.returncode == 0, done.stdout + done.stderr
    python, total = done.stdout.split()
    assert total == "3.0"
    low, low_serdes, high, high_serdes = map(number, OFFER.search(relay.sent).groups())
    chosen, serdes = map(number, ANSWER.search(relay.answered).groups())
    (marked,) = set(re.findall(rb"StableHLO_v([\d.]+)", relay.sent))
    assert rows()[version] == [
        python, f"{low} to {high}", f"{low_serdes} to {high_serdes}", f"{chosen} and {serdes}",
        marked.decode(),
    ]
