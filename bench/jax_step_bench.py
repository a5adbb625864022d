# SPDX-License-Identifier: Apache-2.0
"""A JAX step through the front door against the same step on JAX's own CPU backend.

Each backend runs in a process of its own, in turns, so that both see the same machine. JAX's own
CPU backend locks up with hundreds of queued gangs, so there each gang waits for the one before the
last; a wait in one process is cheap. Included:
dispatch in Python, the protocol, launch, compute, and the wait for the last result; not included:
compiling and the first call. Asynchronous steps depend on each other and only the last is waited
for; fetched steps bring a scalar to the host each time.

Expected: the small steps are slower here than in one process, which makes no network round trip
(performance bars for them are against a null front door, which does not exist yet); a step of
10 ms and more must hide the whole cost.
"""

import json
import os
import pathlib
import subprocess
import sys

from measure import bar, ratio, row

ROUNDS = 5
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests" / "e2e"))


def measure():
    """In the child: prints {case: microseconds per step}."""
    import time

    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

    first = jax.devices()[0]
    island = [d for d in jax.devices()
              if getattr(d, "slice_index", None) == getattr(first, "slice_index", None)][:4]
    split = NamedSharding(Mesh(np.array(island), ("x",)), P("x"))
    copied = NamedSharding(Mesh(np.array(island), ("x",)), P())

    in_one_process = jax.config.jax_platforms == "cpu"

    def per_step(step, value, steps):
        value = step(step(value))
        jax.block_until_ready(value)
        began = time.perf_counter()
        for _ in range(steps):
            last, value = value, step(value)
            if in_one_process and len(value.sharding.device_set) > 1:
                last.block_until_ready()
        jax.block_until_ready(value)
        return (time.perf_counter() - began) / steps * 1e6

    def fetched(step, value, steps):
        value = step(step(value))
        float(value)
        began = time.perf_counter()
        for _ in range(steps):
            value = step(value)
            float(value)
        return (time.perf_counter() - began) / steps * 1e6

    add = jax.jit(lambda v: v + 1)
    gang = jax.jit(lambda v: v + v.sum() * 1e-9, out_shardings=split)
    matrix = jax.device_put(np.random.default_rng(0).random((1024, 1024), np.float32) / 512, copied)
    heavy = jax.jit(lambda v: jnp.tanh(v @ matrix @ matrix), out_shardings=split)
    print(json.dumps({
        "async, 1 device": per_step(add, jax.device_put(np.float32(0), first), 2000),
        "fetched, 1 device": fetched(add, jax.device_put(np.float32(0), first), 300),
        "async, gang of 4": per_step(gang, jax.device_put(np.zeros(16, np.float32), split), 500),
        "heavy gang of 4": per_step(
            heavy, jax.device_put(np.ones((1024, 1024), np.float32), split), 12),
    }))


def run():
    from cluster import Cluster, cpu_environment

    samples = {"fairway": [], "jax": []}
    with Cluster(islands=1, devices=4) as cluster:
        environments = {"fairway": cluster.jax_environment(), "jax": cpu_environment(4)}
        for _ in range(ROUNDS):
            for name, environment in environments.items():
                done = subprocess.run(
                    [sys.executable, __file__], env=environment, text=True, check=True,
                    stdout=subprocess.PIPE,
                )
                samples[name].append(json.loads(done.stdout.splitlines()[-1]))
    rows = []
    for case in samples["jax"][0]:
        local = f"{case}, JAX in one process"
        rows.append(row(f"{case}, fairway", [s[case] for s in samples["fairway"]], "us/step", local))
        rows.append(row(local, [s[case] for s in samples["jax"]], "us/step"))
    heavy_us = next(r["value"] for r in rows if r["name"] == "heavy gang of 4, JAX in one process")
    relative = ratio(rows, "heavy gang of 4, JAX in one process", "heavy gang of 4, fairway")
    return rows, [
        bar("speed of a step of >= 10 ms compute, of JAX in one process",
            relative if heavy_us >= 10_000 else None, at_least=0.98),
        bar("speed of an async step, of a null front door", None, at_least=0.7),
        bar("added by fetching, over a null front door, ms", None, at_most=0.5),
    ]


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
    measure()
