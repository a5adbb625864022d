# SPDX-License-Identifier: Apache-2.0
"""Arrays that are donated, deleted, or still in use."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

from places import islands


def refuses(function):
    try:
        np.asarray(function())
    except (RuntimeError, ValueError) as error:
        assert "delete" in str(error).lower() or "donate" in str(error).lower(), error
    else:
        raise AssertionError("use after the end of an array was not refused")


add = jax.jit(lambda v: v + 1, donate_argnums=0)
mesh = Mesh(np.array(islands()[0]), ("x",))

for place in (islands()[0][0], NamedSharding(mesh, P("x")), NamedSharding(mesh, P())):
    start = np.arange(1024, dtype=np.float32)
    first = jax.device_put(start, place)
    second = add(first)
    assert first.is_deleted() and not second.is_deleted()
    refuses(lambda: first)
    refuses(lambda: first + 1)
    for _ in range(50):
        second = add(second)
    np.testing.assert_array_equal(second, start + 51)

    # One argument is donated, one is kept.
    keep, give = jax.device_put(start, place), jax.device_put(start, place)
    both = jax.jit(lambda k, g: (k + g, g * 2), donate_argnums=1)(keep, give)
    np.testing.assert_array_equal(both[0], start * 2)
    np.testing.assert_array_equal(both[1], start * 2)
    np.testing.assert_array_equal(keep, start)
    assert give.is_deleted() and not keep.is_deleted()

    # A reader launched before the donation still sees the old bytes.
    value = jax.device_put(start, place)
    readers = [jax.jit(lambda v, k=k: v * k)(value) for k in range(8)]
    after = add(value)
    for k, reader in enumerate(readers):
        np.testing.assert_array_equal(reader, start * k)
    np.testing.assert_array_equal(after, start + 1)

    gone = jax.device_put(start, place)
    copy = gone + 0
    gone.delete()
    assert gone.is_deleted()
    refuses(lambda: gone)
    np.testing.assert_array_equal(copy, start)

# An array is donated while it crosses to the other island.
other = NamedSharding(Mesh(np.array(islands()[1]), ("x",)), P("x"))
value = jax.device_put(jnp.arange(4096.0), NamedSharding(mesh, P("x")))
for step in range(20):
    sent = jax.device_put(value, other)
    value = add(value)
    np.testing.assert_array_equal(sent, np.arange(4096.0) + step)
