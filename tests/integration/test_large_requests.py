# SPDX-License-Identifier: Apache-2.0
"""Requests of half a gigabyte: of clients without a token none is read, those with one send so much at once, and nobody
else waits."""

import re

import pytest

from large_requests import LargeRequests
from test_flood import Steps
from test_tokens import ADMIN, IFRT, MAY, PROGRAM, Cluster

SIZE = 500 << 20
# gRPC's window of a call, and the frames that were on their way when the window ended.
WINDOW = (1 << 20) + (1 << 16)
HEALTH = ["/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch"]


@pytest.fixture
def cluster(tmp_path):
    out = Cluster(tmp_path)
    yield out
    for daemon in reversed(out.daemons):
        daemon.stop()


def most_memory(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        return int(re.search(r"VmHWM:\s+(\d+) kB", status.read())[1]) << 10


@pytest.mark.parametrize("path", [*sorted(MAY), *HEALTH, "/not.a.Service/Method"])
def test_no_method_reads_a_message_before_it_asks_who_calls(cluster, path):
    client = LargeRequests(cluster.port)
    call = client.begin(path, SIZE)
    client.send(most=4 * WINDOW)
    assert client.taken[call] <= WINDOW
    assert client.ended == {call}
    client.close()


def test_a_hundred_calls_without_a_token_take_no_memory_and_a_neighbour_goes_on(cluster):
    cluster.island()
    before = most_memory(cluster.controller.process.pid)
    user, _ = cluster.make("user", "--tenant=red")
    steps = Steps(f"127.0.0.1:{cluster.port}", *cluster.flags(cluster.directory / user)[2:])
    try:
        steps.goes_on(1)
        client = LargeRequests(cluster.port)
        for number in range(100):
            client.begin((ADMIN + "GetStatus", IFRT + "GetVersion", HEALTH[0])[number % 3], SIZE)
        client.send(most=2 << 30)
        steps.goes_on()
    finally:
        steps.stop()
    more = most_memory(cluster.controller.process.pid) - before
    print(f"the controller took {sum(client.taken.values()) >> 20} MiB, and grew by {more >> 20} MiB")
    client.close()
    assert more < 300 << 20


def bearer(cluster, token):
    return [(b"authorization", b"Bearer " + (cluster.directory / token).read_bytes().strip())]


@pytest.mark.parametrize("connections, calls", [(1, 100), (10, 10)])
@pytest.mark.parametrize("path", ["/fairway.v1.Client/Session", IFRT + "GetVersion"])
def test_what_a_token_sends_at_once_is_bounded_and_a_neighbour_goes_on(cluster, path, connections, calls):
    """A hundred calls with 500 MiB each, by one connection and by several."""
    cluster.island()
    before = most_memory(cluster.controller.process.pid)
    user, _ = cluster.make("user", "--tenant=red")
    greedy, number = cluster.make("user", "--tenant=blue")
    steps = Steps(f"127.0.0.1:{cluster.port}", *cluster.flags(cluster.directory / user)[2:])
    try:
        steps.goes_on(1)
        clients = [LargeRequests(cluster.port) for _ in range(connections)]
        for client in clients:
            for _ in range(calls):
                client.begin(path, SIZE, bearer(cluster, greedy))
        # In turns, 16 MiB each, until all have ended or 3 GiB have gone.
        for turn in range(1, (3 << 30) // (connections << 24)):
            for client in clients:
                client.send(most=turn << 24, patience=3)
            if all(client.ended for client in clients):
                break
        steps.goes_on()
    finally:
        steps.stop()
    more = most_memory(cluster.controller.process.pid) - before
    taken = sum(sum(client.taken.values()) for client in clients)
    print(f"the controller took {taken >> 20} MiB, and grew by {more >> 20} MiB")
    for client in clients:
        client.close()
    assert more < 900 << 20
    assert any(client.ended for client in clients)
    said = cluster.controller.wait("is ended: messages of")
    assert "MiB were on their way by this connection" in said
    # Whoever holds itself back goes on.
    done = cluster.do("run", str(PROGRAM), "--arg", "x=1.5", token=greedy)
    assert done.returncode == 0, done.stderr


def test_no_message_of_a_method_that_carries_little_is_large(cluster):
    client = LargeRequests(cluster.port)
    call = client.begin(ADMIN + "GetStatus", 8 << 20, bearer(cluster, "admin.token"))
    client.send()
    assert client.ended == {call}
    client.close()
    assert cluster.do("status").returncode == 0
