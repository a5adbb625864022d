# SPDX-License-Identifier: Apache-2.0
"""One hundred common calls of `jax.numpy` without `jit`, in groups, for eager_bench.py.

A call is an expression over the names from `values`: `x`, `y`, `a` are 8 x 8, `v` and `w` have 8
elements, `s` and `i` are scalars, `rows` indices, `mask` booleans, `n` integers, `key` a PRNG key,
`host` an array of NumPy, and `d` the place of all. A call costs its conversation with the device, and
little arithmetic. An array keeps fetched values, so a call that reads a value computes it first.
"""

GROUPS = {
    "making": """
        jnp.zeros((8, 8), device=d)
        jnp.ones((8, 8), device=d)
        jnp.full((8, 8), 2.0, device=d)
        jnp.arange(8, device=d)
        jnp.linspace(0.0, 1.0, 8, device=d)
        jnp.eye(8, device=d)
        jnp.array([1.0, 2.0, 3.0], device=d)
        jnp.asarray(host, device=d)
        jax.device_put(host, d)
        jnp.zeros_like(x)
    """,
    "indexing": """
        x[0, 0]
        x[0]
        x[-1]
        x[1:3]
        x[:, 0]
        x[1:3, 2:4]
        x[::2]
        x[i]
        x[i, i]
        x[rows]
        x[None]
        v[mask]
        jnp.take(x, rows, axis=0)
        list(v)
    """,
    "updating": """
        x.at[0, 0].set(1.0)
        x.at[0].set(v)
        x.at[1:3].add(1.0)
        x.at[i].set(0.0)
        x.at[rows].add(1.0)
        x.at[:, 0].multiply(2.0)
    """,
    "arithmetic": """
        x + 1
        2 * x
        x + y
        x * y
        x / 2
        x ** 2
        x % 2
        -x
        abs(x)
        s + 1
        s * s
        x @ y
        x @ v
    """,
    "functions": """
        jnp.exp(x)
        jnp.sqrt(x)
        jnp.tanh(x)
        jnp.maximum(x, 0)
        jnp.clip(x, 0, 1)
        jnp.where(x > 0, x, 0)
        jax.nn.relu(x)
        jax.nn.softmax(x)
    """,
    "comparing": """
        x > 0
        x == y
        s < 1
        (x > 0) & (x < 1)
        jnp.isnan(x)
        jnp.logical_not(mask)
        jnp.allclose(x, y)
    """,
    "reducing": """
        x.sum()
        x.sum(axis=0)
        x.mean()
        x.std()
        x.max()
        x.min(axis=1)
        x.argmax()
        jnp.any(x > 0)
        jnp.cumsum(v)
        jnp.median(v)
    """,
    "shaping": """
        x.T
        x.reshape(-1)
        jnp.concatenate([x, y])
        jnp.stack([v, w])
        jnp.split(x, 2)
        jnp.pad(x, 1)
        jnp.roll(v, 1)
        jnp.repeat(v, 2)
        jnp.sort(v)
        jnp.argsort(v)
    """,
    "casting": """
        x.astype(jnp.int32)
        x.astype(jnp.bfloat16)
        n.astype(jnp.float32)
        jnp.asarray(s, jnp.float16)
    """,
    "random": """
        jax.random.split(key)
        jax.random.fold_in(key, 1)
        jax.random.normal(key, (8,))
        jax.random.uniform(key, (8,))
        jax.random.randint(key, (8,), 0, 10)
        jax.random.permutation(key, v)
    """,
    "linear algebra": """
        jnp.dot(v, w)
        jnp.linalg.norm(v)
        jnp.linalg.inv(a)
        jnp.linalg.solve(a, v)
        jnp.linalg.cholesky(a)
    """,
    "reading": """
        float(x[0, 0])
        float(x.sum())
        int(x.argmax())
        bool(s > 0)
        np.asarray(x + 1)
        str(x + 1)
    """,
    "transformed": "jit_add(x)",
}

CALLS = {source: group for group, text in GROUPS.items() for source in map(str.strip, text.splitlines())
         if source}


def values(devices):
    """The names in the calls: on one device, or on several, over which `x` and `y` are split by rows
    and the others are copied, as training on a batch does it."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

    everywhere = split = SingleDeviceSharding(devices[0])
    if len(devices) > 1:
        mesh = Mesh(np.array(devices), ("batch",))
        everywhere = NamedSharding(mesh, PartitionSpec())
        split = NamedSharding(mesh, PartitionSpec("batch"))

    random = np.random.default_rng(0)
    square = random.standard_normal((8, 8), np.float32)
    made = {
        "x": square,
        "y": random.standard_normal((8, 8), np.float32),
        "a": square @ square.T + 8 * np.eye(8, dtype=np.float32),
        "v": random.standard_normal(8, np.float32),
        "w": random.standard_normal(8, np.float32),
        "s": np.float32(0.5),
        "i": np.int32(2),
        "rows": np.array([3, 1, 2], np.int32),
        "mask": np.arange(8) % 2 == 0,
        "n": np.arange(8, dtype=np.int32),
        "key": jax.random.PRNGKey(0),
    }
    put = {name: jax.device_put(value, split if name in ("x", "y") else everywhere)
           for name, value in made.items()}
    return {"jax": jax, "jnp": jnp, "np": np, "d": everywhere, "host": square,
            "jit_add": jax.jit(lambda value: value + 1), **put}


def function_of(source, namespace):
    return eval(f"lambda: {source}", namespace)  # pylint: disable=eval-used
