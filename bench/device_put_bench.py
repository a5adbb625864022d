# SPDX-License-Identifier: Apache-2.0
"""The cost of `device_put` of an array on devices: to another cut, another island, copies.

Two islands of 4 CPU devices. The source is cut by rows over the first island. `detour` is the same
move through the client's memory, as JAX does it by itself; `JAX` is JAX's CPU backend with 8
devices. All are measured in turns. Processor time is that of the client, the controller and the
executors; controller and executors count the bytes.
"""

import pathlib
import sys

from measure import bar, row
from processes import Client, cpu_seconds

HERE = pathlib.Path(__file__).resolve().parent
MOVES = ("another cut", "copies", "another island", "another island and cut",
         "copies on another island")
DETOURS = ("another cut", "copies on another island")
ROUNDS = 7
SIZES = "64,256"  # MiB


def options(parser):
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--sizes", default=SIZES, help="MiB, with commas between; default %(default)s")


def counters(cluster):
    metrics = cluster.metrics()
    return (metrics.total("fairway_uploaded_bytes_total") +
            metrics.total("fairway_fetched_bytes_total"),
            sum(v for n, _, v in metrics.samples if n == "fairway_transferred_bytes_total"))


def settled(cluster, pulled):
    """Returns the counters once executors have reported that much, which they do in heartbeats."""
    from cluster import wait_for

    wait_for(lambda: counters(cluster)[1] >= pulled, f"{pulled:g} bytes pulled between executors")
    return counters(cluster)


def measure(size, rounds, samples):
    from cluster import Cluster, cpu_environment

    mib = f"{size >> 20} MiB"
    client_of = [sys.executable, HERE / "device_put_client.py", size]
    detours = [f"detour {name}" for name in DETOURS]
    with Cluster(islands=2, devices=4) as cluster:
        ours = Client([*client_of, ",".join([*MOVES, *detours])], cluster.jax_environment())
        theirs = Client([*client_of, ",".join(MOVES)], cpu_environment())
        executors = {p.pid for p in cluster.executors()}
        controller = {p.pid for p in cluster.processes() if p.program == "fairway-controller"}
        parts = {"client": ours.pids(), "controller": controller, "executors": executors}
        for _ in range(rounds):
            for name in [*MOVES, *detours]:
                before = {part: cpu_seconds(pids) for part, pids in parts.items()}
                through, pulled = counters(cluster)
                _, seconds = ours.measure(name)
                crosses = size if "island" in name and name in MOVES else 0
                after_through, after_pulled = settled(cluster, pulled + crosses)
                at = lambda what: samples.setdefault((mib, name, what), [])
                at("seconds").append(seconds)
                at("through the controller").append(after_through - through)
                at("between executors").append(after_pulled - pulled)
                for part, pids in parts.items():
                    at(f"CPU of {part}").append(max(cpu_seconds(pids) - before[part], 1e-6))
                if name in MOVES:
                    samples.setdefault((mib, name, "JAX"), []).append(theirs.measure(name)[1])
        ours.close()
        theirs.close()


def run(quick, rounds=ROUNDS, sizes=SIZES):
    sys.path.insert(0, str(HERE.parent / "tests" / "e2e"))
    samples = {}
    for size in ("1",) if quick else sizes.split(","):
        measure(int(size) << 20, 2 if quick else rounds, samples)
    rows = []
    for (mib, name, what), values in samples.items():
        unit = "bytes" if what in ("through the controller", "between executors") else "s"
        against = f"{mib}, {name}: JAX" if what == "seconds" and name in MOVES else None
        rows.append(row(f"{mib}, {name}: {what}", values, unit, against))
    bars = []
    for mib in dict.fromkeys(key[0] for key in samples):
        size = int(mib.split()[0]) << 20
        most = max(max(samples[mib, name, "through the controller"]) for name in MOVES)
        bars.append(bar(f"bytes through the controller, {mib}", (most, 0), at_most=0))
        most = max(max(samples[mib, name, "between executors"]) for name in MOVES) / size
        bars.append(bar(f"times each byte goes to an executor, {mib}", (most, 0), at_most=1))
    return rows, bars
