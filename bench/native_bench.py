# SPDX-License-Identifier: Apache-2.0
"""One C++ client of a cluster of the host runtime, one island of one device: native_client.cc.

Rows: a ping (the stream and the controller's loop alone), a no-op called and waited for, a no-op
called and fetched, the client's own time for a call that nobody waits for, and calls a second: of a
chain, and of independent calls. A value is the median of the rounds; a latency is the p50 (or p99)
of a round.
of a round (or p99).

Expected: a ping is two hops of gRPC and two of the controller's loop, 60 to 100 us; a call adds a
round trip to the executor. Many calls share messages, so their rate is limited by the work of the
controller and of the executor per node, some 10 us each (./dev bench core), in parallel on two
cores.
"""

import json
import pathlib
import subprocess
import sys

from measure import bar, mad, median, row

HERE = pathlib.Path(__file__).resolve().parent
CLIENT = HERE.parent / "build" / "release" / "bench" / "native_client"
ROUNDS, STEPS = 7, 2000
ROWS = {
    "ping": ("ping, p50", "us"),
    "ping_p99": ("ping, p99", "us"),
    "call": ("no-op called and waited for, p50", "us"),
    "call_p99": ("no-op called and waited for, p99", "us"),
    "fetch": ("no-op called and fetched, p50", "us"),
    "dispatch": ("call that nobody waits for, in the client", "us/call"),
    "chain": ("no-ops of a chain", "calls/s"),
    "apart": ("no-ops that need nothing of each other", "calls/s"),
}


def run(quick):
    sys.path.insert(0, str(HERE.parent / "tests" / "e2e"))
    from cluster import Cluster, clean_environment

    rounds, steps = (2, 20) if quick else (ROUNDS, STEPS)
    with Cluster(islands=1, devices=1, flags=("--runtime=host",)) as cluster:
        done = subprocess.run([str(CLIENT), cluster.address, str(rounds), str(steps)], text=True,
                              stdout=subprocess.PIPE, check=True, env=clean_environment())
    samples = [json.loads(line) for line in done.stdout.splitlines()]
    values = {key: [sample[key] for sample in samples] for key in ROWS}
    rows = [row(name, values[key], unit) for key, (name, unit) in ROWS.items()]

    def of(key):
        return median(values[key]), mad(values[key])

    return rows, [
        bar("p50 of a no-op's round trip, us", of("call"), at_most=120),
        bar("asynchronous no-ops a second from one client", of("apart"), at_least=30000),
    ]
