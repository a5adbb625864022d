# SPDX-License-Identifier: Apache-2.0
"""The cost that a callback adds to a call of a jit: `jax.pure_callback` of a scalar against the same jit
without it. Each call is waited for, in turns; on a cluster and on JAX's CPU backend."""

import json
import pathlib
import subprocess
import sys

from measure import bar, paired, row

HERE = pathlib.Path(__file__).resolve().parent
CLIENT = """
import json, statistics, sys, time
import jax, numpy as np
rounds, calls = map(int, sys.argv[1:])
x = jax.device_put(np.float32(1))
kinds = {"without": jax.jit(lambda v: v + 1),
         "with": jax.jit(lambda v: jax.pure_callback(lambda a: np.asarray(a), v, v) + 1)}
found = {name: [] for name in kinds}
for turn in range(rounds + 1):
    for name, f in kinds.items():
        times = []
        for _ in range(calls):
            began = time.perf_counter()
            f(x).block_until_ready()
            times.append(time.perf_counter() - began)
        if turn:  # the first compiles
            found[name].append(statistics.median(times) * 1e3)
print(json.dumps(found))
"""


def samples(environment, rounds, calls):
    done = subprocess.run([sys.executable, "-c", CLIENT, str(rounds), str(calls)], env=environment,
                          text=True, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def run(quick):
    sys.path.insert(0, str(HERE.parent / "tests" / "e2e"))
    from cluster import Cluster, cpu_environment

    rounds, calls = (2, 5) if quick else (9, 200)
    with Cluster(islands=1, devices=1) as cluster:
        there = samples(cluster.jax_environment(), rounds, calls)
    here = samples(cpu_environment(1), rounds, calls)
    rows = [row(f"{name} a callback, {where}", found[name], "ms")
            for where, found in (("cluster", there), ("CPU backend", here)) for name in found]
    added = paired(there["with"], there["without"], lambda this, that: this - that)
    return rows, [bar("added by a callback, ms", added, at_most=1.0)]
