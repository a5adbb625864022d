# SPDX-License-Identifier: Apache-2.0
"""Fixtures: a cluster shared by tests that leave it as it was, and one for tests that do not."""

import os

import pytest

from cluster import BIN, Cluster, wait_for


def pytest_configure(config):
    config.addinivalue_line("markers", "on_demand: is slow and rarely breaks; ./dev test e2e_on_demand runs it")


def pytest_collection_modifyitems(config, items):
    if "FAIRWAY_TEST_ON_DEMAND" in os.environ:
        return
    left_out = [item for item in items if item.get_closest_marker("on_demand")]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if not item.get_closest_marker("on_demand")]


@pytest.fixture(scope="session", autouse=True)
def binaries():
    for name in ("fairway", "fairway-controller", "fairway-worker"):
        assert (BIN / name).is_file(), f"{BIN / name} is missing; run ./dev build"


@pytest.fixture(scope="session")
def shared_cluster(binaries):
    with Cluster(islands=2, devices=4) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared_cluster):
    """Two islands of four devices. In the end, all that the test's sessions owned must be gone."""
    before = shared_cluster.metrics()
    yield shared_cluster
    for name in ("fairway_sessions", "fairway_arrays", "fairway_shard_groups",
                 "fairway_nodes_unfinished", "fairway_device_memory_used_bytes"):
        wait_for(
            lambda: shared_cluster.metrics().total(name) <= before.total(name),
            f"{name} to return to {before.total(name):g}; "
            f"it is {shared_cluster.metrics().total(name):g}",
        )


@pytest.fixture
def new_cluster(binaries):
    """Starts clusters for one test: new_cluster(islands, devices, flags, environment)."""
    started = []

    def start(*arguments, **keywords):
        started.append(Cluster(*arguments, **keywords))
        return started[-1]

    yield start
    for cluster in started:
        cluster.stop()
