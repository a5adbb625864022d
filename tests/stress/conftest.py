# SPDX-License-Identifier: Apache-2.0
"""Fixtures: a cluster that must be as before when a test ends, and programs for it.

These tests run in the environment .venv-ecosystem, which has grpc: ./dev test ecosystem.
"""

import functools
import os
import pathlib
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "e2e"), str(HERE.parent / "support")]
os.environ["JAX_PLATFORMS"] = "cpu"  # this process uses JAX only to make programs

from accounting import Accounts  # noqa: E402
from cluster import BIN, Cluster  # noqa: E402


@pytest.fixture(scope="session")
def shared_cluster(tmp_path_factory):
    for name in ("fairway", "fairway-controller", "fairway-worker"):
        assert (BIN / name).is_file(), f"{BIN / name} is missing; run ./dev build"
    state = tmp_path_factory.mktemp("state")
    # Tests stop executors for a while; these must not be declared lost.
    environment = {"XDG_STATE_HOME": str(state), "FAIRWAY_EXECUTOR_DEADLINE": "120s"}
    with Cluster(2, 2, environment=environment) as cluster:
        # The threads of gRPC and the compilers' first use must not count as the first test's leak.
        from raw_client import Session

        with Session(cluster.address) as session:
            session.compile(program("add"))
        yield cluster


@pytest.fixture
def cluster(shared_cluster):
    """Two islands of two devices. No process may die, and nothing may be left."""
    accounts = Accounts(shared_cluster)
    before = {process.pid for process in shared_cluster.processes()}
    yield shared_cluster
    assert before <= {process.pid for process in shared_cluster.processes()}, shared_cluster.logs()
    accounts.check()


@functools.cache
def program(name):
    """A StableHLO artifact over f32[4]: "add" adds 1, "slow" takes ms, "wide" has 500 results."""
    import jax
    import jax.numpy as jnp

    functions = {
        "add": lambda v: v + 1,
        "slow": lambda v: jax.lax.fori_loop(
            0, 2000, lambda i, c: jnp.tanh(c @ c.T) / 8, jnp.outer(v, v))[0],
        "wide": lambda v: [v] * 500,
    }
    shape = jax.ShapeDtypeStruct((4,), jnp.float32)
    return jax.export.export(jax.jit(functions[name]), platforms=["cpu"])(
        shape).mlir_module_serialized
