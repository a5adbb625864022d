# SPDX-License-Identifier: Apache-2.0
"""The client of device_put_bench.py: moves one array on request, and tells how long it took.

Arguments: bytes, comma-separated names of moves. Prints "ready NAMES", then reads one name a line
and answers "1 SECONDS": from the start of the move until all of the array is there.
"""

import sys
import time

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

SIZE = int(sys.argv[1])
NAMES = sys.argv[2].split(",")
DEVICES = np.array(jax.devices())
HERE, THERE = (Mesh(part, ("x",)) for part in (DEVICES[:4], DEVICES[4:8]))
ROWS, COLUMNS, COPIES = P("x"), P(None, "x"), P()
TARGETS = {
    "another cut": NamedSharding(HERE, COLUMNS),
    "copies": NamedSharding(HERE, COPIES),
    "another island": NamedSharding(THERE, ROWS),
    "another island and cut": NamedSharding(THERE, COLUMNS),
    "copies on another island": NamedSharding(THERE, COPIES),
}
VALUE = np.arange(SIZE // 4, dtype=np.float32).reshape(-1, 1024)
SOURCE = jax.device_put(VALUE, NamedSharding(HERE, ROWS)).block_until_ready()


def mover(name):
    """Returns a function that moves it. A detour does what JAX itself does for a new cut. Each detour
    begins with a copy of its own, since the client keeps what it has fetched."""
    if not name.startswith("detour "):
        return lambda: jax.device_put(SOURCE, TARGETS[name])
    fresh = jax.device_put(SOURCE, SOURCE.sharding, may_alias=False).block_until_ready()
    return lambda: jax.device_put(np.asarray(fresh), TARGETS[name.removeprefix("detour ")])


for name in NAMES:
    moved = mover(name)().block_until_ready()
    if SIZE <= 1 << 20:
        np.testing.assert_array_equal(np.asarray(moved), VALUE)
    del moved
print("ready", ",".join(NAMES), flush=True)
for line in sys.stdin:
    move = mover(line.strip())
    began = time.perf_counter()
    moved = move().block_until_ready()
    print(1, time.perf_counter() - began, flush=True)
    del move, moved
