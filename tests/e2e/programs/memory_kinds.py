# SPDX-License-Identifier: Apache-2.0
"""The memories of a device, and arrays in them: put, moved, and as arguments and results of a jit."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P, SingleDeviceSharding

from places import islands

KINDS = ["device", "pinned_host", "unpinned_host"]
HERE, THERE = (NamedSharding(Mesh(np.array(group), "x"), P("x")) for group in islands())
X = np.arange(32, dtype=np.float32).reshape(8, 4)

for device in jax.devices():
    assert [m.kind for m in device.addressable_memories()] == KINDS
    assert device.default_memory().kind == "device"
    assert device.memory("device") == device.default_memory()
    assert all(m.addressable_by_devices() == [device] for m in device.addressable_memories())
try:
    jax.devices()[0].memory("nonsense")
    raise SystemExit("a memory kind that does not exist was found")
except (ValueError, RuntimeError) as error:
    assert "nonsense" in str(error), error

assert jax.device_put(X, HERE).sharding.memory_kind == "device"
for kind in KINDS:
    there = HERE.with_memory_kind(kind)
    arrays = [
        jax.device_put(X, there),
        jax.device_put(jax.device_put(X, HERE), there),
        jax.make_array_from_callback(X.shape, there, lambda index: X[index]),
        jax.device_put(X, SingleDeviceSharding(islands()[0][0], memory_kind=kind)),
        jax.device_put(jax.device_put(X, HERE), THERE.with_memory_kind(kind)),
    ]
    for array in arrays:
        assert array.sharding.memory_kind == kind, (array.sharding, kind)
        np.testing.assert_array_equal(array, X)
    assert [s.data.sharding.memory_kind for s in arrays[0].addressable_shards] == [kind] * 4
    np.testing.assert_array_equal(jax.device_put(arrays[0], HERE), X)
    np.testing.assert_array_equal(jax.device_put(arrays[0], THERE), X)
    # An argument brings its memory along; XLA knows one kind of host memory.
    result = jax.jit(lambda v: v * 2)(arrays[0])
    assert result.sharding.memory_kind == ("pinned_host" if kind == "pinned_host" else "device")
    np.testing.assert_array_equal(result, X * 2)
    np.testing.assert_array_equal(jax.device_put(result, HERE), X * 2)
    np.testing.assert_array_equal(jax.jit(lambda v: v + 1)(jax.device_put(result, HERE)), X * 2 + 1)
    compiled = jax.jit(lambda v: v * 2, in_shardings=there).lower(X)
    assert compiled.compile().input_shardings[0][0].memory_kind == kind
    # Results in another memory than the arguments'.
    placed = jax.jit(lambda v: (v * 2, v + 1), out_shardings=(there, HERE))
    for array in (X, arrays[1], jax.device_put(X, HERE)):
        one, other = placed(array)
        assert one.sharding.memory_kind == kind, (one.sharding, kind)
        assert other.sharding.memory_kind == "device"
        np.testing.assert_array_equal(one, X * 2)
        np.testing.assert_array_equal(other, X + 1)
        np.testing.assert_array_equal(jax.device_put(one, THERE), X * 2)
        np.testing.assert_array_equal(placed(one)[0], X * 4)


@jax.jit
def through_host_memory(v):
    w = jax.device_put(v * 2, jax.memory.Space.Host)
    return jax.device_put(w, jax.memory.Space.Device) + 1, w


for array in (X, jax.device_put(X, HERE)):
    back, host = through_host_memory(array)
    np.testing.assert_array_equal(back, X * 2 + 1)
    np.testing.assert_array_equal(host, X * 2)
    assert (back.sharding.memory_kind, host.sharding.memory_kind) == ("device", "pinned_host")
step = jax.jit(lambda v: v + 1, donate_argnums=0, out_shardings=HERE.with_memory_kind("pinned_host"))
state = jax.device_put(X, HERE.with_memory_kind("pinned_host"))
for _ in range(3):
    state = step(state)
np.testing.assert_array_equal(state, X + 3)
print("OK")
