# SPDX-License-Identifier: Apache-2.0
"""One island of many executors on this machine, on the sim runtime: what the real controller holds, and how soon it is up.

64 executors of 4 devices each; a client makes 10,000 arrays over all devices, then calls 1,000 gangs over all of them that
wait for a value (hosts_client.cc). Memory is the controller's own, without what files back. Up: from `fairway up` until all
executors are registered; back: from the kill of the controller, while nothing runs, until all are registered with the next one.
`fairway status` is asked 200 times while all of it is held, each time by a new process, and its whole time counts.

Expected: an array over 256 devices on 64 executors is a group of shards, and each executor hears of it in one entry of the
log. The processes start one after the other on the cores that there are, some 50 ms of processor time each.
"""

import json
import math
import pathlib
import signal
import subprocess
import sys
import time

from measure import bar, mad, median, row

HERE = pathlib.Path(__file__).resolve().parent
CLIENT = HERE.parent / "build" / "release" / "bench" / "hosts_client"
MIB = 1 << 20


def measure(executors, devices, arrays, gangs, asked):
    from accounting import anonymous_memory
    from cluster import Cluster, clean_environment, wait_for, wait_for_count

    with Cluster(islands=1, devices=executors * devices,
                 flags=("--runtime=sim", f"--workers-per-island={executors}")) as cluster:
        def controller():
            return next(p.pid for p in cluster.processes() if p.program == "fairway-controller")

        found = {"up": cluster.seconds_to_start}
        killed = time.monotonic()
        old = controller()
        next(p for p in cluster.processes() if p.pid == old).signal(signal.SIGKILL)

        def back():
            done = cluster.cli("status", "--controller", cluster.address, "-o", "json", check=False)
            if done.returncode != 0:
                return False
            status = json.loads(done.stdout)
            there = [executor for executor in status["executors"] if executor["up"]]
            return status["controller_pid"] != old and len(there) == executors

        wait_for(back, "all executors at the next controller")
        found["back"] = time.monotonic() - killed
        found["start"] = anonymous_memory(controller()) / MIB
        with subprocess.Popen([str(CLIENT), cluster.address, str(arrays), str(gangs)], text=True, stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, env=clean_environment()) as client:
            def go_on(word):
                print(file=client.stdin, flush=True)
                assert client.stdout.readline().strip() == word, "the client of the benchmark has failed"

            go_on("arrays")
            found["arrays"] = anonymous_memory(controller()) / MIB
            go_on("gangs")
            waiting = lambda: cluster.metrics().total("fairway_nodes_unfinished")
            wait_for_count(waiting, lambda n: n >= gangs, "gangs that wait")
            found["gangs"] = anonymous_memory(controller()) / MIB
            found["status"] = 1e3 * p99(seconds_of_status(cluster, asked))
            client.kill()
    return found


def seconds_of_status(cluster, times):
    """Of `fairway status`, from the start of the process to its end."""
    found = []
    for _ in range(times):
        began = time.monotonic()
        cluster.cli("status", "--controller", cluster.address)
        found.append(time.monotonic() - began)
    return found


def p99(values):
    return sorted(values)[math.ceil(0.99 * len(values)) - 1]


def grown(found, before, after):
    """Bytes; 0 if the controller gave more back to the system meanwhile than it took, as with few arrays."""
    return max(0.0, (found[after] - found[before]) * MIB)


def run(quick):
    sys.path[:0] = [str(HERE.parent / "tests" / "e2e"), str(HERE.parent / "tests" / "support")]
    executors, devices, arrays, gangs, asked, rounds = \
        (4, 2, 50, 10, 5, 1) if quick else (64, 4, 10000, 1000, 200, 3)
    rounds = [measure(executors, devices, arrays, gangs, asked) for _ in range(rounds)]

    def of(value):
        return [value(found) for found in rounds]

    def measured(value):
        return median(of(value)), mad(of(value))

    name = f"{executors} executors of {devices} devices"
    rows = [
        row(f"{name}: up", of(lambda f: f["up"]), "s"),
        row(f"{name}: back at a new controller", of(lambda f: f["back"]), "s"),
        row(f"{name}: the controller's memory", of(lambda f: f["start"]), "MiB"),
        row(f"... and {arrays} arrays over all devices", of(lambda f: f["arrays"]), "MiB"),
        row(f"... and {gangs} waiting gangs over all devices", of(lambda f: f["gangs"]), "MiB"),
        row("memory of an array", of(lambda f: grown(f, "start", "arrays") / arrays), "bytes"),
        row("memory of a waiting gang", of(lambda f: grown(f, "arrays", "gangs") / gangs), "bytes"),
        row("`fairway status` of all that, p99", of(lambda f: f["status"]), "ms"),
    ]
    return rows, [
        bar("the controller's memory with all of it, MiB", measured(lambda f: f["gangs"]), at_most=300),
        bar("p99 of `fairway status`, ms", measured(lambda f: f["status"]), at_most=50),
        bar("all executors are up after, s", measured(lambda f: f["up"]), at_most=10),
        bar("all executors are back at a new controller after, s", measured(lambda f: f["back"]), at_most=10),
    ]
