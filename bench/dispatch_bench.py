# SPDX-License-Identifier: Apache-2.0
"""Gang computations a second (experiment E1 of docs/benchmarks.md), by the number of devices.

A step is an all-reduce of one scalar a device and a scaling; its result is the next one's argument.
OpByOp: a call for each. Chained: a call for a program that is a chain of 128. Fused: a call for one
computation that does it 128 times. Fairway: the C++ SDK and the host runtime, one island of one
executor, or of two, which sum over a socket. JAX: its CPU backend in one process, which waits for the step before the last (it locks up
with hundreds of queued gangs). Measured in turns; CPU is that of all processes concerned.

Not here: Ray, Monarch, JAX in several processes.

Expected: OpByOp costs some 20 us of CPU for messages and nodes, whatever the number of devices, and
each device's share of the step in the executor; chains cost the executor alone.
"""

import contextlib
import pathlib
import subprocess
import sys
import time

from jax_bench import cpu_seconds
from measure import bar, paired, row

HERE = pathlib.Path(__file__).resolve().parent
CLIENT = HERE.parent / "build" / "release" / "bench" / "dispatch_client"
DEVICES = (1, 2, 4, 8, 16, 32)
TWO = "Fairway, two executors"
ROUNDS, CHAIN = 5, 128
STEPS = {"OpByOp": 2048, "Chained": 64 * CHAIN, "Fused": 256 * CHAIN}
JAX_STEPS = {"OpByOp": 300, "Fused": 20 * CHAIN}


class Client:
    """Seconds for a style, asked over its pipes."""

    def __init__(self, command, environment):
        self.process = subprocess.Popen(list(map(str, command)), env=environment, text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.pid = self.process.pid

    def measure(self, style):
        self.process.stdin.write(style + "\n")
        self.process.stdin.flush()
        seconds = float(self.process.stdout.readline())
        if seconds < 0:
            raise RuntimeError(f"{style} failed")
        return seconds

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def serve_jax(devices, scale):
    import jax
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

    mesh = Mesh(np.array(jax.devices()[:devices]), ("x",))
    step = jax.shard_map(lambda v: jax.lax.psum(v, "x") / devices, mesh=mesh, in_specs=P("x"),
                         out_specs=P("x"), check_vma=False)
    styles = {"OpByOp": jax.jit(step),
              "Fused": jax.jit(lambda v: jax.lax.fori_loop(0, CHAIN, lambda _, x: step(x), v))}
    start = jax.device_put(np.ones(devices, np.float32), NamedSharding(mesh, P("x")))
    for function in styles.values():
        function(start).block_until_ready()
    for line in sys.stdin:
        style = line.strip()
        calls = JAX_STEPS[style] // (CHAIN if style == "Fused" else 1) // scale
        value = start
        began = time.perf_counter()
        for _ in range(max(1, calls)):
            last, value = value, styles[style](value)
            last.block_until_ready()
        value.block_until_ready()
        print(time.perf_counter() - began, flush=True)


def processes(cluster):
    return [p.pid for p in cluster.processes() if p.flag("role") != "supervisor"]


def measure(devices, scale, rounds, samples):
    from cluster import Cluster, clean_environment, cpu_environment

    host = ("--runtime=host",)
    with (Cluster(islands=1, devices=devices, flags=host) as cluster,
          contextlib.ExitStack() as stack):
        fairway = Client([CLIENT, cluster.address, devices, scale], clean_environment())
        clients = {"Fairway": (fairway, STEPS, processes(cluster))}
        if devices >= 8:
            pair = stack.enter_context(
                Cluster(islands=1, devices=devices, flags=(*host, "--workers-per-island=2")))
            clients[TWO] = (Client([CLIENT, pair.address, devices, scale], clean_environment()),
                            STEPS, processes(pair))
        jax = Client([sys.executable, __file__, devices, scale],
                     {**cpu_environment(devices), "TF_CPP_MIN_LOG_LEVEL": "2"})
        clients["JAX"] = (jax, JAX_STEPS, [])
        for client, styles, _ in clients.values():
            for style in styles:
                client.measure(style)
        for _ in range(rounds):
            for name, (client, styles, servers) in clients.items():
                pids = [client.pid, *servers]
                for style, steps in styles.items():
                    before = cpu_seconds(pids)
                    per_step = client.measure(style) / (steps / scale)
                    used = (cpu_seconds(pids) - before) / (steps / scale)
                    samples.setdefault((name, style, devices), []).append(1 / per_step)
                    samples.setdefault((name, style, devices, "CPU"), []).append(used * 1e6)
        for client, _, _ in clients.values():
            client.close()


def run(quick):
    sys.path.insert(0, str(HERE.parent / "tests" / "e2e"))
    samples = {}
    for devices in (1, 8) if quick else DEVICES:
        measure(devices, 8 if quick else 1, 2 if quick else ROUNDS, samples)
    rows = []
    for (name, style, devices, *cpu), values in samples.items():
        against = None if name == "JAX" else f"{style}, {devices} devices, JAX"
        if against and ("JAX", style, devices) not in samples:
            against = None
        title = f"{style}, {devices} devices, {name}"
        rows.append(row(f"CPU of all processes: {title}", values, "us/step") if cpu
                    else row(title, values, "steps/s", against))

    def rate(name, style, devices):
        values = samples.get((name, style, devices))
        return None if values is None else paired(values, values, lambda a, _: a)

    bars = [bar(f"{style} steps/s, {devices} devices, {name}", rate(name, style, devices),
                at_least=least)
            for name in ("Fairway", TWO)
            for style, devices, least in (("OpByOp", 8, 5000), ("OpByOp", 16, 2500),
                                          ("OpByOp", 32, 1500), ("Chained", 8, 20000),
                                          ("Fused", 8, 50000))]
    for style, most in (("OpByOp", 30), ("Chained", 5)):
        used = samples.get(("Fairway", style, 8, "CPU"))
        bars.append(bar(f"{style}: CPU for a device's share of a step, us, 8 devices",
                        paired(used, used, lambda a, _: a / 8), at_most=most))
    return rows, bars


if __name__ == "__main__":
    serve_jax(int(sys.argv[1]), int(sys.argv[2]))
