# SPDX-License-Identifier: Apache-2.0
"""Compiled code that no session holds: it takes memory mappings of its executor, and the kernel
allows a process 65,530."""

from cluster import wait_for

FEW = 1000  # mappings; an executor has some 350 without programs

PROGRAMS = """
import jax, numpy as np
x = jax.device_put(np.arange(64, dtype=np.float32))
for c in range(5):
    many = jax.jit(lambda x: [(x[k:] * (c + k)).sum() for k in range(40)])  # some 220 mappings
    got = np.array(many(x))
    np.testing.assert_allclose(got, [sum(range(k, 64)) * (c + k) for k in range(40)])
"""


def mappings(executor):
    with open(f"/proc/{executor.pid}/maps") as lines:
        return sum(1 for _ in lines)


def test_code_of_ended_sessions_is_unloaded_and_comes_back_without_compiling(new_cluster):
    cluster = new_cluster(1, 1, environment={"FAIRWAY_MAX_MAPPINGS": str(FEW)})
    (executor,) = cluster.executors()
    cluster.python("-c", PROGRAMS)
    compilations = cluster.status()["counts"]["compilations"]
    wait_for(lambda: mappings(executor) < FEW, f"{mappings(executor)} mappings to be below {FEW}")
    cluster.python("-c", PROGRAMS)
    assert cluster.status()["counts"]["compilations"] == compilations
    assert [process.pid for process in cluster.executors()] == [executor.pid]
    assert "unloaded" in cluster.cli("logs", "controller", "--controller", cluster.address).stdout


def test_code_of_a_program_that_is_being_bound_stays(new_cluster):
    # Code is unloaded at each heartbeat, every half second; the second computation compiles longer.
    cluster = new_cluster(2, 1, environment={"FAIRWAY_MAX_MAPPINGS": "1"})
    cluster.python(
        "-c",
        "import fairway, jax, jax.numpy as jnp\n"
        "(a,), (b,) = fairway.islands()\n"
        "double = fairway.on(a, lambda x: x * 2)\n"
        "many = fairway.on(b, lambda x: sum((x[k:] * (k + 0.5)).sum() for k in range(120)))\n"
        "f = fairway.program(lambda x: (double(x), many(x)))\n"
        "x = jnp.arange(200.0)\n"
        "for _ in range(3):\n"
        "    doubled, total = f(jax.device_put(x, a))\n"
        "    assert doubled.tolist() == (x * 2).tolist()\n"
        "    wanted = sum(sum(range(k, 200)) * (k + 0.5) for k in range(120))\n"
        "    assert abs(float(total) / wanted - 1) < 1e-5, total\n"
    )
