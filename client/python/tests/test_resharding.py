# SPDX-License-Identifier: Apache-2.0
"""Which arrays are sent as a reshard, and in how many requests. Asks JAX's CPU backend, whose
client pretends to be a controller's. tests/e2e tests on a cluster what the request does."""

import os
import subprocess
import sys

PRELUDE = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P, SingleDeviceSharding
from fairway import arguments, devices, resharding
import jaxlib._pathways as pathways
d = np.array(jax.devices())
rows, columns = (NamedSharding(Mesh(d[:4], "x"), s) for s in (P("x"), P(None, "x")))
there = NamedSharding(Mesh(d[4:], "x"), P("x"))
turned = NamedSharding(Mesh(d[[1, 0, 2, 3]], "x"), P("x"))
value = np.arange(64.0, dtype=np.float32).reshape(8, 8)
x = jax.device_put(value, rows)
"""

# JAX's own way, and a record of it.
RECORDED = PRELUDE + """
calls = []
def transfer(arrays, shardings, donate=False):
    calls.append((len(arrays), donate))
    return [jax.device_put(np.asarray(a), s) for a, s in zip(arrays, shardings)]
pathways._transfer_to_shardings = transfer
import jaxlib.version
jaxlib.version.__version_info__ = (0, 10, 2)
devices.RUNTIMES = (d[0].client.runtime_type,)
arguments.install()
def calls_of(f):
    calls.clear()
    f()
    return list(calls)
"""


def run(code):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("JAX_", "FAIRWAY_", "XLA_"))}
    env |= {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=8"}
    done = subprocess.run([sys.executable, "-c", code], env=env, text=True, capture_output=True,
                          timeout=300)
    assert done.returncode == 0, done.stderr[-4000:]


def test_another_cut_is_one_request_for_all_arrays_and_the_same_cut_is_none():
    run(RECORDED + """
assert calls_of(lambda: jax.device_put(x, columns)) == [(1, False)]
copies = NamedSharding(columns.mesh, P())
assert calls_of(lambda: jax.device_put([x, x + 1, value, x, 3.0], copies)) == [(3, False)]
assert calls_of(lambda: jax.device_put(x, d[0])) == [(1, False)]
assert calls_of(lambda: jax.device_put(jax.device_put(value, d[0]), rows)) == [(1, False)]
assert calls_of(lambda: jax.device_put(x, there)) == []
assert calls_of(lambda: jax.device_put(x, rows)) == []
assert calls_of(lambda: jax.device_put(value, columns)) == []
assert calls_of(lambda: jax.jit(lambda v: jax.device_put(v, columns))(x)) == []
loose = jnp.zeros((8, 8))
loose.block_until_ready()
assert calls_of(lambda: jax.jit(lambda v, w: v + w)(loose, x)) == [(1, False)]
""")


def test_only_what_reorders_devices_donates_as_jax_does():
    run(RECORDED + """
assert calls_of(lambda: jax.device_put(x, columns, donate=True)) == [(1, False)]
assert calls_of(lambda: jax.device_put(x, turned)) == [(1, False)]
assert calls_of(lambda: jax.device_put(x, turned, donate=True)) == [(1, True)]
""")


def test_a_weak_type_stays_weak():
    run(RECORDED + """
weak = jnp.asarray(2.0)
everywhere = NamedSharding(rows.mesh, P())
assert weak.weak_type
made = []
assert calls_of(lambda: made.append(jax.device_put(weak, everywhere))) == [(1, False)]
assert made[0].weak_type and made[0].committed and float(made[0]) == 2
""")


def test_many_shards_go_in_several_requests_in_order():
    run(RECORDED + """
resharding._PAIRS_PER_REQUEST = 40  # each array has 16
made = []
assert calls_of(lambda: made.extend(jax.device_put([x + i for i in range(5)], columns))) == [
    (2, False), (2, False), (1, False)]
for i, y in enumerate(made):
    np.testing.assert_array_equal(np.asarray(y), value + i)
resharding._PAIRS_PER_REQUEST = 1
assert calls_of(lambda: jax.device_put([x, x], columns)) == [(1, False)] * 2
""")


def test_a_jaxlib_that_refuses_to_send_the_request_has_programs_do_it():
    run(RECORDED.replace("(0, 10, 2)", "(0, 8, 2)").replace("arguments.install()", """
resharding._by_program = transfer
resharding._on_one_island = lambda s: len({device.id // 4 for device in s.device_set}) == 1
arguments.install()""") + """
everywhere = NamedSharding(Mesh(d, "x"), P(None, "x"))
assert calls_of(lambda: jax.device_put([x, x], columns)) == [(2, False)]
assert calls_of(lambda: jax.device_put(x, NamedSharding(there.mesh, P(None, "x")))) == [(1, False)]
assert calls_of(lambda: jax.device_put(x, everywhere)) == [(1, False)]
assert calls_of(lambda: jax.device_put(x, turned)) == []
""")


def test_a_deleted_array_is_refused_in_jax_own_words():
    run(RECORDED + """
for target in columns, turned:
    gone = jax.device_put(value, rows)
    gone.delete()
    try:
        jax.device_put(gone, target)
    except RuntimeError as error:
        assert "deleted" in str(error), error
    else:
        raise AssertionError("moved")
assert calls == []
""")


def test_arrays_of_other_backends_and_a_jaxlib_without_the_request_are_left_alone():
    run(PRELUDE + """
pathways._transfer_to_shardings = None  # to be called by nobody
arguments.install()
np.testing.assert_array_equal(np.asarray(jax.device_put(x, columns)), value)
np.testing.assert_array_equal(np.asarray(jax.device_put(x, turned)), value)
""")
    run(PRELUDE + """
del pathways._transfer_to_shardings
from jax._src import dispatch
reorder = dispatch._different_device_order_reshard
arguments.install()
assert dispatch._different_device_order_reshard is reorder
np.testing.assert_array_equal(np.asarray(jax.device_put(x, columns)), value)
np.testing.assert_array_equal(np.asarray(jax.device_put(value[::-1], columns)), value[::-1])
""")
