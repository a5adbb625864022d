# SPDX-License-Identifier: Apache-2.0
"""JAX's facts about compiled programs, one JSON line each. A test compares the lines with those of
JAX's CPU backend. The cost of matrix products on one device is left out: jaxlib's XLA counts their
bytes differently from the plugin's."""

import json
import warnings

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

from places import islands

MESH = Mesh(np.array(islands()[0]), "x")
SQUARE = Mesh(np.array(islands()[0]).reshape(2, 2), ("a", "b"))
CUT, WHOLE = NamedSharding(MESH, P("x")), NamedSharding(MESH, P())
X = jnp.arange(32, dtype=jnp.float32).reshape(8, 4)
ON_FOUR = jax.device_put(X, CUT)
PROGRAMS = {
    "add": (lambda x: x + 1, (X,), {}),
    "sharded": (lambda x: x @ x.T, (ON_FOUR,), {}),
    "two axes": (lambda x: x @ x.T, (jax.device_put(X, NamedSharding(SQUARE, P("a", "b"))),), {}),
    "all-reduce": (lambda x: x.sum(), (ON_FOUR,), {}),
    "replicated": (lambda x: x * 2, (jax.device_put(X, WHOLE),), {}),
    "cut in two": (lambda x: x[::2], (ON_FOUR,), {"out_shardings": CUT}),
    "scan": (lambda x: jax.lax.scan(lambda c, y: (c + y, c * y), x[0], x), (X,), {}),
    "while": (lambda x: jax.lax.fori_loop(0, 5, lambda i, y: y * 2, x), (X,), {}),
    "donated": (lambda x: x * 2, (X,), {"donate_argnums": 0}),
    "second donated": (lambda x, y: (x + y, y * 2), (X, X), {"donate_argnums": 1}),
    "donated in vain": (lambda x: x.sum(), (X,), {"donate_argnums": 0}),
    "donated and cut": (lambda x: x * 2, (ON_FOUR,), {"donate_argnums": 0}),
    "unused": (lambda x, y: y * 2, (X, X), {}),
    "constant": (lambda: jnp.ones((4, 4)), (), {}),
    "convolution": (lambda x, k: jax.lax.conv(x, k, (1, 1), "SAME"),
                    (jnp.ones((1, 3, 16, 16)), jnp.ones((4, 3, 3, 3))), {}),
    "fft": (jnp.fft.fft, (X,), {}),
    "bfloat16": (lambda x: x + x, (X.astype(jnp.bfloat16),), {}),
    "transcendental": (lambda x: jnp.sin(x) + jnp.cos(x), (X,), {}),
    "random": (lambda k: jax.random.normal(k, (100,)), (jax.random.key(0),), {}),
}


def tell(name, what, value):
    print(json.dumps([name, what, value], sort_keys=True))


def sharding(s):
    spec = getattr(s, "spec", None)
    return [str(spec), sorted(d.id for d in s.device_set), s.memory_kind]


for name, (function, arguments, options) in PROGRAMS.items():
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        compiled = jax.jit(function, **options).lower(*arguments).compile()
    tell(name, "warnings", [str(w.message).splitlines()[0] for w in warned])
    tell(name, "cost", compiled.cost_analysis())
    memory = compiled.memory_analysis()
    tell(name, "memory", {f: getattr(memory, f) for f in dir(memory) if f.endswith("_in_bytes")})
    tell(name, "inputs", [sharding(s) for s in jax.tree.leaves(compiled.input_shardings)])
    tell(name, "outputs", [sharding(s) for s in jax.tree.leaves(compiled.output_shardings)])
    formats = jax.tree.leaves(compiled.input_formats) + jax.tree.leaves(compiled.output_formats)
    tell(name, "layouts", [str(f.layout) for f in formats])
    executable = compiled.runtime_executable()
    tell(name, "name", executable.hlo_name if hasattr(executable, "hlo_name") else None)
    tell(name, "devices", [d.id for d in executable.local_devices()])
    tell(name, "parameter layouts", [str(l) for l in executable.get_parameter_layouts()])
    tell(name, "output layouts", [str(l) for l in executable.get_output_layouts()])
    tell(name, "output memories", executable.get_output_memory_kinds())
    tell(name, "text", compiled.as_text().startswith("HloModule jit_"))

# One code is for any device; the other is for the devices that it was compiled for.
double = jax.jit(lambda x: x * 2)
for device in jax.devices():
    y = double(jax.device_put(X, device))
    tell("portable", device.id, [float(y.sum()), sorted(d.id for d in y.devices())])
compiled = double.lower(jax.device_put(X, jax.devices()[2])).compile()
tell("compiled", "here", sorted(d.id for d in compiled(jax.device_put(X, jax.devices()[2])).devices()))
try:
    compiled(jax.device_put(X, jax.devices()[3]))
    tell("compiled", "elsewhere", "ran")
except ValueError as error:
    tell("compiled", "elsewhere", type(error).__name__)
with jax.default_device(jax.devices()[6]):
    tell("default device", 6, [sorted(d.id for d in a.devices())
                               for a in (jnp.ones(3), double(np.ones(3)))])
