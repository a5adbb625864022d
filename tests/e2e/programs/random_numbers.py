# SPDX-License-Identifier: Apache-2.0
"""jax.random gives the same numbers as on the local CPU."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

from places import islands

local = jax.devices("cpu")[0]


def draw():
    key = jax.random.key(42)
    keys = jax.random.split(key, 6)
    return {
        "bits": jax.random.bits(keys[0], (17,)),
        "uniform": jax.random.uniform(keys[1], (5, 3)),
        "normal": jax.random.normal(keys[2], (101,)),
        "integers": jax.random.randint(keys[3], (13,), -5, 99),
        "permutation": jax.random.permutation(keys[4], 50),
        "choice": jax.random.categorical(keys[5], jnp.zeros((7,)), shape=(9,)),
        "folded": jax.random.key_data(jax.random.fold_in(key, 7)),
    }


with jax.default_device(local):
    expected = jax.tree.map(np.asarray, draw())
for name, value in draw().items():
    if np.issubdtype(expected[name].dtype, np.floating):
        np.testing.assert_allclose(value, expected[name], rtol=1e-5, atol=1e-6, err_msg=name)
    else:
        np.testing.assert_array_equal(value, expected[name], err_msg=name)

mesh = Mesh(np.array(islands()[1]), ("x",))
spread = jax.jit(
    lambda: jax.random.uniform(jax.random.key(3), (64, 8)),
    out_shardings=NamedSharding(mesh, P("x")),
)()
with jax.default_device(local):
    np.testing.assert_array_equal(spread, jax.random.uniform(jax.random.key(3), (64, 8)))
