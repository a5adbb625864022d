# SPDX-License-Identifier: Apache-2.0
"""The cost of one run of Arg -> A -> B -> Result by the number of shards N (experiment E6 of
docs/benchmarks.md): nodes in the controller's graph, messages, commands and bytes on the links to
executors, and the controller's memory for a bound program.

A and B run on N devices each of the host runtime: both on one island, as one sequence; or on two
islands of one executor each, with a transfer between them. Runs are waited for one by one, so no two
share a message. The controller counts (/metrics), without heartbeats. Memory is the growth of the
controller's resident memory for each of some hundred programs bound, kept and never run.

Expected: nodes and messages do not depend on N; bytes grow by a shard reference, an address and a
completion for each shard.
"""

import pathlib
import re
import sys

from measure import bar, row
from processes import Client

HERE = pathlib.Path(__file__).resolve().parent
CLIENT = HERE.parent / "build" / "release" / "bench" / "stages_client"
DEVICES = (1, 2, 4, 8, 16, 32)
RUNS, ROUNDS = 200, 5


def counters(cluster):
    metrics = cluster.metrics()

    def link(what, direction):
        return metrics.total(f"fairway_link_{what}_total", direction=direction)

    return {
        ("graph nodes", "nodes"): metrics.total("fairway_nodes_total"),
        ("messages to executors", "messages"): link("messages", "to_executors"),
        ("messages from executors", "messages"): link("messages", "from_executors"),
        ("commands", "commands"): metrics.total("fairway_commands_total"),
        ("bytes to executors", "bytes"): link("bytes", "to_executors"),
        ("bytes from executors", "bytes"): link("bytes", "from_executors"),
    }


def resident(pid):
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+) kB", status).group(1)) * 1024


def measure(islands, devices, runs, rounds, samples):
    from cluster import Cluster, clean_environment

    where = f"{devices} devices on {islands} island{'s' if islands > 1 else ''}"
    with Cluster(islands=islands, devices=devices, flags=("--runtime=host",)) as cluster:
        client = Client([CLIENT, cluster.address, 2, devices, 0, runs], clean_environment())
        client.measure("parallel")  # loads the code
        for _ in range(rounds):
            before = counters(cluster)
            client.measure("parallel")
            for key, value in counters(cluster).items():
                samples.setdefault((where, *key), []).append((value - before[key]) / runs)
        controller = next(p.pid for p in cluster.processes() if p.program == "fairway-controller")
        client.measure("bind")  # allocates what is allocated once
        for _ in range(rounds):
            before = resident(controller)
            client.measure("bind")
            samples.setdefault((where, "controller's memory for a program", "bytes"), []).append(
                max(resident(controller) - before, 0) / runs)
        client.close()


def run(quick):
    sys.path.insert(0, str(HERE.parent / "tests" / "e2e"))
    samples = {}
    for devices in (1, 8) if quick else DEVICES:
        for islands in (1, 2):
            measure(islands, devices, 5 if quick else RUNS, 2 if quick else ROUNDS, samples)
    rows = [row(f"{what}: {where}", values, unit)
            for (where, what, unit), values in samples.items()]
    bars = []
    for islands, text in ((1, "1 island"), (2, "2 islands")):
        nodes = {devices: values for devices in DEVICES
                 if (values := samples.get((f"{devices} devices on {text}", "graph nodes", "nodes")))}
        most = max(max(values) for values in nodes.values())
        bars.append(bar(f"graph nodes of a run at any N, {text}", (most, 0), at_most=4))
    return rows, bars
