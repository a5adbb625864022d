# SPDX-License-Identifier: Apache-2.0
"""How soon a client hears that what it waits for is lost: an executor or its worker was killed, or a host went silent.

JAX waits for a computation without end on the second of two islands (faults_client.py). Its executor is killed, or its worker,
and both clocks are the machine's: from the kill until the client has the error. The silent host is a network namespace whose
cable is pulled, which takes root.

Expected: the end of a process is seen by its parent and by the other ends of its connections at once. A silent host shows
only by what it does not acknowledge for 3 s (docs/design/0057-liveness.md).
"""

import contextlib
import json
import os
import pathlib
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
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
            wait_for(lambda: all(e["up"] for e in cluster.status()["executors"]), "the executor's return")
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


@contextlib.contextmanager
def daemons(namespace, folder):
    """(address of a controller that other hosts reach, environment for its clients): worker near on this host, with
    island0, and far in the namespace, with island1. Other hosts take certificates."""
    from cluster import BIN, clean_environment, free_ports

    import xla_plugins.xla_cpu_pjrt as plugin  # where the package is

    port, link = free_ports(2)
    environment = clean_environment(FAIRWAY_PJRT_PLUGIN=str(next(pathlib.Path(plugin.__path__[0]).glob("*.so"))))
    started = []

    def command(*words):
        subprocess.run([str(BIN / "fairway"), *words], check=True, env=environment, stdout=subprocess.DEVNULL)

    def start(*words):
        started.append(subprocess.Popen(list(map(str, words)), env=environment, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))

    def worker(name, island, address, *before):
        command("issue", name, "--from", folder)
        start(*before, BIN / "fairway-worker", f"--name={name}", f"--island={island}", "--devices=1",
              f"--controller={ADDRESS}:{link}", f"--data-bind={address}:0", f"--tls-ca={folder}/ca.pem",
              f"--tls-certificate={folder}/{name}/worker.pem", f"--tls-key={folder}/{name}/worker.key")

    command("init", folder)
    command("token", "create", "--role=user", "--tenant=bench", f"--to={folder}/user.token",
            f"--data-directory={folder}/data")
    try:
        start(BIN / "fairway-controller", f"--config={folder}/fairway.toml", f"--bind={ADDRESS}", f"--port={port}",
              "--http-port=0", f"--link-port={link}", "--data-port=0")
        worker("near", "island0", ADDRESS)
        worker("far", "island1", OTHER, "ip", "netns", "exec", namespace)
        yield f"{ADDRESS}:{port}", clean_environment(
            JAX_PLATFORMS="fairway,cpu", FAIRWAY_CONTROLLER=f"{ADDRESS}:{port}", FAIRWAY_TLS_CA=f"{folder}/ca.pem",
            FAIRWAY_TOKEN_FILE=f"{folder}/user.token",
            PATH=f"{BIN}:{os.environ['PATH']}")
    finally:
        for process in reversed(started):
            process.terminate()
            process.wait(30)


def silent(rounds):
    from cluster import BIN, wait_for

    found = []
    with tempfile.TemporaryDirectory() as state, other_host() as (namespace, device), daemons(
            namespace, f"{state}/cluster") as (address, environment):
        def up():
            done = subprocess.run([str(BIN / "fairway"), "status", "--controller", address, "-o", "json"],
                                  env=environment, text=True, capture_output=True)
            executors = json.loads(done.stdout)["executors"] if done.returncode == 0 else []
            return sum(e["up"] for e in executors) == 2

        wait_for(up, "both workers")
        with client_of(environment) as client:
            for _ in range(rounds):
                found.append(told_after(client, lambda: ip("link", "set", device, "down")))
                ip("link", "set", device, "up")
                wait_for(up, "the host's return")
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
