# SPDX-License-Identifier: Apache-2.0
"""Gang computations in JAX, for dispatch_bench.py: in one process, or through Fairway's front door,
as the environment says.

  jax_client.py DEVICES SCALE

A step is an all-reduce over the devices of one island, then a scaling. OpByOp: a jit for each step.
"OpByOp without all-reduce": the scaling alone. Chained: one call of a traced program
(fairway.program) of 128 jits; front door only. Fused: a jit that does 128 steps.
"""

import sys

from serve import serve

CHAIN = 128


def main():
    devices, scale = int(sys.argv[1]), int(sys.argv[2])
    import jax
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

    in_one_process = jax.config.jax_platforms == "cpu"
    mesh = Mesh(np.array(jax.devices()[:devices]), ("x",))
    where = NamedSharding(mesh, P("x"))
    step = jax.shard_map(lambda v: jax.lax.psum(v, "x") / devices, mesh=mesh, in_specs=P("x"),
                         out_specs=P("x"), check_vma=False)
    placed = jax.jit(step, in_shardings=where, out_shardings=where)
    functions = {
        "OpByOp": (1, jax.jit(step)),
        "OpByOp without all-reduce": (1, jax.jit(lambda v: v / devices)),
        "Fused": (CHAIN, jax.jit(
            lambda v: jax.lax.fori_loop(0, CHAIN, lambda _, x: step(x), v))),
    }
    if not in_one_process:
        import fairway

        @fairway.program
        def chain(value):
            for _ in range(CHAIN):
                value = placed(value)
            return value

        functions["Chained"] = (CHAIN, chain)
    start = jax.device_put(np.ones(devices, np.float32), where)

    def runner(function):
        def run(calls):
            value = start
            for _ in range(calls):
                last, value = value, function(value)
                if in_one_process:  # it deadlocks with hundreds of queued gangs
                    last.block_until_ready()
            value.block_until_ready()

        return run

    serve({style: (steps, runner(function)) for style, (steps, function) in functions.items()},
          scale)


if __name__ == "__main__":
    main()
