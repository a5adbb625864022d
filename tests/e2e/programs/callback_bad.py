# SPDX-License-Identifier: Apache-2.0
"""Runs programs on device 0 whose functions do forbidden things. Each runs many times, none is waited
for, until a line is read. Then prints the first failure of each kind."""

import logging
import re
import sys

import jax
import jax.numpy as jnp
import numpy as np

logging.disable(logging.CRITICAL)  # JAX logs exceptions of callbacks

scalar = jax.ShapeDtypeStruct((), np.float32)
x = jax.device_put(np.float32(1), jax.devices()[0])
more = jax.jit(lambda v: v + 1)
more(x).block_until_ready()


def raises(a):
    raise ValueError("of no use")


FUNCTIONS = {
    "raises": raises,
    "shape": lambda a: np.zeros(3, np.float32),
    "type": lambda a: np.int32(3),
    "count": lambda a: (np.float32(1), np.float32(2)),
    "text": lambda a: "no array",
    "jax": lambda a: np.float32(more(x)),
    "exits": lambda a: sys.exit(3),
}
programs = {name: jax.jit(lambda v, f=f: jax.pure_callback(f, scalar, v)) for name, f in FUNCTIONS.items()}
first = {name: program(x) for name, program in programs.items()}
print("CALLED", flush=True)
kept = [program(x) for _ in range(20) for program in programs.values()]
sys.stdin.readline()
for name, y in first.items():
    try:
        jax.block_until_ready(y)
        print(name, "DID NOT FAIL", flush=True)
    except jax.errors.JaxRuntimeError as error:
        print(name, *re.findall(r"^\w*(?:Error|Exit): .*", str(error), re.M)[-1:], flush=True)
print("AFTER", float(more(x)), flush=True)
