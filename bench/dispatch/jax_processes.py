# SPDX-License-Identifier: Apache-2.0
"""Gang computations in JAX with a process for each shard (gloo), for dispatch_bench.py.

  jax_processes.py DEVICES SCALE

A step is one jit: an all-reduce, then a scaling. OpByOp: each process calls it for each step, with 4
calls in flight. Fused: one call does 128 steps. The time is that of the slowest process.
"""

import os
import socket
import subprocess
import sys
import time
from collections import deque

CHAIN, IN_FLIGHT = 128, 4


def make_run(devices):
    import jax
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

    mesh = Mesh(np.array(jax.devices()), ("x",))
    step = jax.shard_map(lambda v: jax.lax.psum(v, "x") / devices, mesh=mesh, in_specs=P("x"),
                         out_specs=P("x"), check_vma=False)
    functions = {"OpByOp": jax.jit(step),
                 "Fused": jax.jit(lambda v: jax.lax.fori_loop(0, CHAIN, lambda _, x: step(x), v))}
    start = jax.make_array_from_callback(
        (devices,), NamedSharding(mesh, P("x")), lambda _: np.ones(1, np.float32))

    def run(style, calls):
        value, waiting = start, deque()
        for _ in range(calls):
            value = functions[style](value)
            waiting.append(value)
            if len(waiting) == IN_FLIGHT:
                waiting.popleft().block_until_ready()
        value.block_until_ready()

    return run


def member(coordinator, devices, rank):
    import jax
    from serve import lines

    asked, answers = lines()  # gloo prints to standard output
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(coordinator, devices, rank)
    run = make_run(devices)
    print("up", file=answers)
    for line in asked:
        style, calls = line.split()
        began = time.perf_counter()
        run(style, int(calls))
        print(time.perf_counter() - began, file=answers)
    jax.distributed.shutdown()


def main():
    devices, scale = int(sys.argv[1]), int(sys.argv[2])
    from serve import calls_for, lines

    with socket.create_server(("127.0.0.1", 0)) as server:
        coordinator = f"127.0.0.1:{server.getsockname()[1]}"
    members = [subprocess.Popen([sys.executable, __file__, coordinator, str(devices), str(rank)],
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
               for rank in range(devices)]
    asked, answers = lines()

    def hear():
        said = [process.stdout.readline() for process in members]
        if not all(said):
            raise RuntimeError("a process ended; its output is above")
        return said

    def run(style, calls):
        for process in members:
            process.stdin.write(f"{style} {calls}\n")
            process.stdin.flush()
        return max(map(float, hear()))

    try:
        hear()
        print("ready OpByOp,Fused", file=answers)
        counts = {}
        for style in asked:
            if style not in counts:
                counts[style] = calls_for(lambda calls: run(style, calls), 0.4 / scale)
            took = run(style, counts[style])
            steps = counts[style] * (CHAIN if style == "Fused" else 1)
            print(steps, f"{took:.9f}", file=answers)
    except Exception as error:  # reported to the bench
        print("error", " ".join(str(error).split()), file=answers)
    for process in members:
        process.stdin.close()
    for process in members:
        process.wait()


if __name__ == "__main__":
    if len(sys.argv) == 4:
        os.environ.update(JAX_PLATFORMS="cpu", TF_CPP_MIN_LOG_LEVEL="2")
        member(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
    else:
        main()
