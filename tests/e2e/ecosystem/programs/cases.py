# SPDX-License-Identifier: Apache-2.0
"""Programs of many cases: plain JAX with assertions, whose results are also compared between JAX's
CPU backend and the cluster.

A program defines its cases with @case and ends with main(). `program.py FILE` runs them all, prints
one line per case, "ok NAME (seconds)" or "failed NAME: text", and writes what the cases returned, any tree of
arrays, to FILE (npz; keys "NAME/number of the leaf").
"""

import sys
import time
import traceback

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

_cases = []


def case(function):
    _cases.append(function)
    return function


def islands():
    """Two lists of four devices: two islands, or the halves of JAX's own CPU backend."""
    groups = {}
    for device in jax.devices():
        groups.setdefault(getattr(device, "slice_index", None), []).append(device)
    if len(groups) >= 2:
        return [groups[index][:4] for index in sorted(groups)][:2]
    return [jax.devices()[:4], jax.devices()[4:8]]


def split(devices, *spec):
    """A sharding over a one-dimensional mesh "x"; P("x") by default."""
    return NamedSharding(Mesh(np.array(devices), ("x",)), P(*(spec or ("x",))))


def replicated(devices):
    return NamedSharding(Mesh(np.array(devices), ("x",)), P())


def rows(count, width, seed=0):
    """A standard normal float32[count, width]."""
    return np.random.default_rng(seed).standard_normal((count, width)).astype(np.float32)


def main():
    results, failed = {}, False
    for function in _cases:
        name, started = function.__name__, time.monotonic()
        try:
            leaves = jax.tree.leaves(function())
            results |= {f"{name}/{i}": np.asarray(leaf) for i, leaf in enumerate(leaves)}
        except Exception as error:
            traceback.print_exc()
            text = " ".join(f"{type(error).__name__}: {error}".split())
            print(f"failed {name}: {text[:2000]}", flush=True)
            failed = True
        else:
            print(f"ok {name} ({time.monotonic() - started:.1f} s)", flush=True)
    np.savez(sys.argv[1], **results)
    sys.exit(failed)
