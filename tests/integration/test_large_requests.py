# SPDX-License-Identifier: Apache-2.0
"""Requests of half a gigabyte from clients without a token: none is read, and nobody else waits."""

import re

import pytest

from large_requests import LargeRequests
from test_flood import Steps
from test_tokens import ADMIN, IFRT, MAY, Cluster

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
