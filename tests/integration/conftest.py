# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the tests with real processes. Clusters come from tests/e2e/cluster.py."""

import pathlib
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "e2e"), str(HERE.parent / "support")]

from accounting import Accounts  # noqa: E402
from cluster import BIN, Cluster  # noqa: E402


@pytest.fixture(scope="session", autouse=True)
def binaries():
    for name in ("fairway", "fairway-controller", "fairway-worker"):
        assert (BIN / name).is_file(), f"{BIN / name} is missing; run ./dev build"


@pytest.fixture
def new_cluster(tmp_path):
    """Starts clusters: new_cluster(islands, devices, flags, environment). Their logs are in tmp_path."""
    started = []

    def start(islands=1, devices=2, flags=(), environment=None):
        started.append(
            Cluster(islands, devices, flags, {"XDG_STATE_HOME": str(tmp_path), **(environment or {})})
        )
        return started[-1]

    yield start
    for cluster in started:
        cluster.stop()
        assert not cluster.processes()


@pytest.fixture(scope="session")
def shared_cluster(tmp_path_factory):
    state = tmp_path_factory.mktemp("state")
    with Cluster(2, 2, environment={"XDG_STATE_HOME": str(state)}) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared_cluster):
    """Two islands of two devices, which must be as before when the test ends."""
    accounts = Accounts(shared_cluster)
    yield shared_cluster
    accounts.check()
