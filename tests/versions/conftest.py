# SPDX-License-Identifier: Apache-2.0
"""The environments of other versions of jaxlib, and a cluster for their programs."""

import pathlib
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT / "tests" / "e2e"), str(ROOT / "proto" / "ifrt")]

from cluster import BIN, Cluster  # noqa: E402

# Oldest first; the last is that of .venv, the project's own environment.
VERSIONS = ["0.8.2", "0.9.2", "0.10.2"]


def environment(version):
    """The Python environment with that jaxlib; ./dev makes it."""
    path = ROOT / (".venv" if version == VERSIONS[-1] else f".venv-{version}")
    assert (path / "bin" / "python").exists(), f"{path} is missing; run ./dev test versions"
    return path


def jaxlib_of(version):
    """The directory of the package jaxlib in that environment."""
    (path,) = environment(version).glob("lib/python3*/site-packages/jaxlib")
    return path


@pytest.fixture(scope="session")
def cluster():
    """Two islands of four devices."""
    for name in ("fairway", "fairway-controller", "fairway-worker"):
        assert (BIN / name).is_file(), f"{BIN / name} is missing; run ./dev build"
    with Cluster(islands=2, devices=4) as cluster:
        yield cluster
