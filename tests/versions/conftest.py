# SPDX-License-Identifier: Apache-2.0
"""The environments of other versions of jaxlib, and a cluster for their programs."""

import os
import pathlib
import re
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT / "tests" / "e2e"), str(ROOT / "proto" / "ifrt")]

from cluster import BIN, Cluster  # noqa: E402

REQUIREMENTS = {path.stem.partition("-")[2]: path for path in HERE.glob("requirements-*.txt")}
# The version in .venv, the project's own environment.
OWN = re.search(r"^jaxlib==(\S+)", (ROOT / "client/python/requirements-dev.txt").read_text(), re.M)[1]
# Oldest first.
VERSIONS = sorted([*REQUIREMENTS, OWN], key=lambda v: [int(n) for n in v.split(".")])
# A Debian suite with a newer Python, in which only the newest jaxlib runs (./dev test --all).
NEXT_SUITE = os.environ.get("NEXT_SUITE")
if NEXT_SUITE:
    VERSIONS = VERSIONS[-1:]


def environment(version):
    """The Python environment with that jaxlib; ./dev makes it."""
    path = ROOT / (".venv-next" if NEXT_SUITE else ".venv" if version == OWN else f".venv-{version}")
    assert (path / "pyvenv.cfg").exists(), f"{path} is missing; run ./dev test versions"
    return path


def suite_of(version):
    """The Debian suite in whose root its Python runs; None: this system."""
    if NEXT_SUITE or version == OWN:
        return NEXT_SUITE
    named = re.search(r"^# Debian suite: (\w+)", REQUIREMENTS[version].read_text(), re.M)
    return named and named[1]


def python_of(version):
    """The command that runs Python with that jaxlib."""
    python = [str(environment(version) / "bin" / "python")]
    suite = suite_of(version)
    if suite is None:
        return python
    root = [str(ROOT / "tests" / "roots" / "root.sh"), "run", str(ROOT / ".deps" / "roots" / suite)]
    return ["env", f"FAIRWAY_ROOT_BIND={ROOT}", *root, *python]


def jaxlib_of(version):
    """The directory of the package jaxlib in that environment."""
    (path,) = environment(version).glob("lib/python3*/site-packages/jaxlib")
    return path


@pytest.hookimpl(tryfirst=True)  # before xdist looks for groups
def pytest_collection_modifyitems(items):
    """Runs the tests of a version one after the other: one process runs the whole smoke matrix."""
    for item in items:
        version = item.callspec.params.get("version") if hasattr(item, "callspec") else None
        item.add_marker(pytest.mark.xdist_group(version or "others"))


@pytest.fixture(scope="session")
def cluster():
    """Two islands of four devices."""
    for name in ("fairway", "fairway-controller", "fairway-worker"):
        assert (BIN / name).is_file(), f"{BIN / name} is missing; run ./dev build"
    with Cluster(islands=2, devices=4) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def gpu_cluster(tmp_path_factory):
    """The same islands of kind cuda, over the stand-in plugin of tests/gpu."""
    plugin = BIN.parent / "tests/fairway_stand_in_gpu.so"
    assert plugin.is_file(), f"{plugin} is missing; run ./dev build fairway_stand_in_gpu"
    with Cluster(islands=2, devices=4, flags=["--plugin-kind=cuda", f"--plugin={plugin}"],
                 environment={"TMPDIR": str(tmp_path_factory.mktemp("gpus"))}) as cluster:
        yield cluster
