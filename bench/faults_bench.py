# SPDX-License-Identifier: Apache-2.0
"""How soon a client hears that what it waits for is lost: an executor or its worker was killed, or a host went silent.

JAX waits for a computation without end on the second of two islands (faults_client.py). Its executor is killed, or its worker,
and both clocks are the machine's: from the kill until the client has the error. The silent host is a network namespace whose
cable is pulled, which takes root.

Expected: the end of a process is seen by its parent and by the other ends of its connections at once. A silent host shows
only by what it does not acknowledge for 3 s (docs/design/0057-liveness.md).
"""

import contextlib
import os
import pathlib
import secrets
import shutil
import signal
import subprocess
import sys
import time

from measure import bar, mad, median, row

HERE = pathlib.Path(__file__).resolve().parent
CLIENT = HERE / "faults_client.py"
ADDRESS, OTHER = "10.231.78.1", "10.231.78.2"


def told_after(client, fault):
    """Seconds from the fault until the client has the error."""
    print(file=client.stdin, flush=True)
    assert client.stdout.readline() == "waits\n", "the client of the benchmark has failed"
    time.sleep(0.3)  # its computation is running
    begun = time.monotonic()
    fault()
    at, code = client.stdout.readline().split()
    assert code == "DATA_LOSS", f"the client was told {code}"
    return float(at) - begun


def of_island(cluster, role):
    worker = next(e["worker"] for e in cluster.status()["executors"] if e["island"] == "island1")
    return next(p for p in cluster.processes() if p.program == "fairway-worker"
                and p.flag("name") == worker and p.flag("role") == role)


def killed(role, rounds):
    from cluster import Cluster, wait_for

    found = []
    with Cluster(islands=2, devices=1) as cluster, client_of(cluster.jax_environment()) as client:
        for _ in range(rounds):
            process = of_island(cluster, role)
            found.append(told_after(client, lambda: process.signal(signal.SIGKILL)))
            wait_for(lambda: all(e["up"] for e in cluster.status()["executors"]), "the executor's return", 60)
    return found


@contextlib.contextmanager
def client_of(environment):
    with subprocess.Popen([sys.executable, str(CLIENT), "1"], env=environment, text=True, stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE) as client:
        try:
            yield client
        finally:
            client.kill()


def ip(*arguments):
    return subprocess.run(["ip", *arguments], capture_output=True).returncode == 0


@contextlib.contextmanager
def other_host():
    """(name of a network namespace, this side's device)"""
    name = "fw" + secrets.token_hex(3)
    here, there = name + "h", name + "t"
    assert ip("netns", "add", name)
    try:
        assert (ip("link", "add", here, "type", "veth", "peer", "name", there, "netns", name)
                and ip("addr", "add", f"{ADDRESS}/30", "dev", here) and ip("link", "set", here, "up")
                and ip("-n", name, "addr", "add", f"{OTHER}/30", "dev", there)
                and ip("-n", name, "link", "set", there, "up") and ip("-n", name, "link", "set", "lo", "up"))
        yield name, here
    finally:
        ip("netns", "delete", name)


def silent(rounds):
    from cluster import BIN, Cluster, wait_for

    found = []
    with other_host() as (namespace, device), Cluster(islands=1, devices=1, flags=(f"--bind={ADDRESS}",)) as cluster:
        cluster.address = f"{ADDRESS}:{cluster.port}"
        like = next(p for p in cluster.processes() if p.program == "fairway-worker" and p.flag("role") is None)
        port = cluster.status()["link_address"].rpartition(":")[2]
        worker = subprocess.Popen(
            ["ip", "netns", "exec", namespace, str(BIN / "fairway-worker"), "--name=far", "--island=island1", "--devices=1",
             f"--controller={ADDRESS}:{port}", f"--data-bind={OTHER}:0",
             *(a for a in like.arguments if a.startswith(("--plugin", "--preload=")))],
            env=cluster.environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            def up():
                return sum(e["up"] for e in cluster.status()["executors"]) == 2

            wait_for(up, "the far worker", 60)
            with client_of(cluster.jax_environment()) as client:
                for _ in range(rounds):
                    found.append(told_after(client, lambda: ip("link", "set", device, "down")))
                    ip("link", "set", device, "up")
                    wait_for(up, "the host's return", 90)
        finally:
            worker.terminate()
            worker.wait(30)
    return found


def run(quick):
    sys.path[:0] = [str(HERE.parent / "tests" / "e2e"), str(HERE.parent / "tests" / "support")]
    rounds = 1 if quick else 7
    cases = [("an executor was killed", lambda: killed("executor", rounds), 0.2),
             ("a worker was killed", lambda: killed(None, rounds), 0.2)]
    left_out = []
    if os.geteuid() == 0 and shutil.which("ip"):
        cases.append(("a host went silent", lambda: silent(rounds), 3))
    else:
        left_out.append(("a host went silent", "network namespaces need root and iproute2"))
    rows, bars = [], []
    for name, measure, most in cases:
        found = measure()
        rows.append(row(f"{name}: its client is told after", found, "s"))
        bars.append(bar(f"{name}: told after, s", (median(found), mad(found)), at_most=most))
    return rows, bars, left_out
