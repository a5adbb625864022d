# SPDX-License-Identifier: Apache-2.0
"""A client with a token that opens connection after connection, and makes a call on each: its neighbours, the workers and
those who look at the cluster go on."""

import contextlib
import pathlib
import re
import subprocess

import pytest

from cluster import BIN, clean_environment, wait_for
from large_requests import LargeRequests
from test_flood import Steps, held
from test_large_requests import bearer
from test_tokens import ADMIN, PROGRAM, Cluster

FILES = 400
LET_IN = FILES // 2


class FewFiles(Cluster):
    """Its controller may have few open files, so clients few connections."""

    CONTROLLER = ("/usr/bin/prlimit", f"--nofile={FILES}", str(BIN / "fairway-controller"))


@pytest.fixture
def cluster(tmp_path):
    out = FewFiles(tmp_path)
    yield out
    for daemon in reversed(out.daemons):
        daemon.stop()


class Hostile:
    """Connections from two addresses."""

    def __init__(self, cluster, token):
        self.port, self.token, self.clients = cluster.port, bearer(cluster, token), []

    def connect(self, path, size):
        """Begins a call on one more."""
        client = LargeRequests(self.port, host=f"127.0.0.{2 + len(self.clients) % 2}")
        self.clients.append(client)
        client.begin(path, size, self.token)
        return client

    def refused(self):
        """What was said to those that were refused."""
        for client in self.clients:
            client.read()
        said = (bytes(client.said.get(1, b"")) for client in self.clients)
        return [text for text in said if b"this one is refused" in text]

    def close(self):
        for client in self.clients:
            client.close()


@pytest.mark.parametrize("calls", ["with calls", "without"])
def test_who_opens_connection_after_connection_keeps_nobody_out(cluster, calls):
    cluster.island()
    user, _ = cluster.make("user", "--tenant=red")
    greedy, number = cluster.make("user", "--tenant=blue")
    flags = cluster.flags(cluster.directory / user)
    long = subprocess.Popen([str(BIN / "fairway"), "run", str(PROGRAM), "--arg", "x=1.5", "--repeat", "1000000", *flags],
                            env=clean_environment(), stdout=subprocess.DEVNULL)
    steps = Steps(f"127.0.0.1:{cluster.port}", *flags[2:])
    hostile = Hostile(cluster, greedy)
    try:
        steps.goes_on(1)
        if calls == "with calls":
            # The session's first message never comes.
            for _ in range(LET_IN + 20):
                hostile.connect("/fairway.v1.Client/Session", 1000)
            said = wait_for(lambda: len(hostile.refused()) > 10 and hostile.refused()[0], "those beyond are refused")
            assert b"token %s has" % number.encode() in said, said
            assert b"of the %d connections that clients may have, nobody has more" % LET_IN in said
        else:
            for _ in range(LET_IN + 100):
                client = hostile.connect(ADMIN + "GetStatus", 0)
                client.send()
                assert client.ended and b"is refused" not in client.said[1]
            cluster.controller.wait("it has no calls and makes room for another: token " + number)
        steps.goes_on(3)
        files = len(list(pathlib.Path(f"/proc/{cluster.controller.process.pid}/fd").iterdir()))
        assert files < LET_IN + 100
        assert cluster.do("status").returncode == 0
        assert long.poll() is None
        assert not cluster.controller.said("cannot accept a connection")
    finally:
        steps.stop()
        long.kill()
        long.wait()
        hostile.close()
    # Whoever has closed them is let in again.
    done = cluster.do("run", str(PROGRAM), "--arg", "x=1.5", token=greedy)
    assert done.returncode == 0, done.stderr


def test_where_few_files_may_be_open_strangers_of_all_ports_leave_others_theirs(cluster):
    cluster.island()
    user, _ = cluster.make("user", "--tenant=red")
    http = int(re.search(r"HTTP (\d+)", cluster.controller.said("listening on"))[1])
    steps = Steps(f"127.0.0.1:{cluster.port}", *cluster.flags(cluster.directory / user)[2:])
    with contextlib.ExitStack() as all_ports:
        try:
            steps.goes_on(1)
            for number, port in enumerate((cluster.port, http, cluster.link, cluster.data)):
                all_ports.enter_context(held(port, FILES, 2 + 3 * number))
            steps.goes_on(3)
        finally:
            steps.stop()
        # Whoever is proven connects anew.
        assert cluster.do("restart", "w0").returncode == 0
        wait_for(lambda: cluster.do("run", str(PROGRAM), "--arg", "x=1.5", token=user).returncode == 0, "a program")
    assert not cluster.controller.said("cannot accept a connection")
