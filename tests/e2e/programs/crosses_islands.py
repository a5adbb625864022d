# SPDX-License-Identifier: Apache-2.0
"""A jit over devices of two islands is refused; the session must live on afterwards."""

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

from places import islands

left, right = islands()
mesh = Mesh(np.array(left[:2] + right[:2]), ("x",))
value = jax.device_put(np.arange(8, dtype=np.float32), NamedSharding(mesh, P("x")))
np.testing.assert_array_equal(value, np.arange(8))  # it can be held, not computed with
try:
    jax.block_until_ready(jax.jit(lambda v: v + 1)(value))
except Exception as error:
    print("REFUSED:", " ".join(str(error).split()))
else:
    print("RAN")

fine = jax.device_put(np.float32(1), left[0]) + 1
assert float(fine) == 2
