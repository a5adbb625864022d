# SPDX-License-Identifier: Apache-2.0
"""The real CUDA plugin, and no GPU. ./dev test gpu fetches it; FAIRWAY_CUDA_PLUGIN names another."""

import os
import pathlib
import sys

import pytest

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT / "tests/e2e")]
# Programs are lowered in this process, over as many devices as they are compiled for.
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"

from compile_process import CompileProcess  # noqa: E402

PLUGIN = "jax_plugins/xla_cuda13/xla_cuda_plugin.so"
TARGET = (HERE / "h200.txtpb").read_text()


@pytest.hookimpl(tryfirst=True)  # before xdist looks for groups
def pytest_collection_modifyitems(items):
    """Runs the tests of a file one after the other, because they share a cluster, and one of test_run.py looks for
    processes of the others. That file takes longest, so it begins first."""
    items.sort(key=lambda item: item.path.name != "test_run.py")
    for item in items:
        item.add_marker(pytest.mark.xdist_group(item.path.name))


@pytest.fixture(scope="session")
def plugin():
    """The folder that holds the plugin's packages."""
    folder = pathlib.Path(os.environ.get("FAIRWAY_CUDA_PLUGIN", ROOT / ".deps/cuda-0.12.0.1"))
    if not (folder / PLUGIN).exists():
        pytest.fail(f"{folder} has no CUDA plugin; ./dev test gpu fetches it")
    return folder / PLUGIN


@pytest.fixture(scope="session")
def compiler(plugin):
    with CompileProcess(plugin, TARGET, flags=["--compile-programs=1000"]) as process:
        yield process
