# SPDX-License-Identifier: Apache-2.0
"""Programs written for Pathways on Cloud, which use only pathwaysutils."""

import pathlib

import pytest

from cluster import clean_environment, run_python

HERE = pathlib.Path(__file__).resolve().parent


def environment(cluster):
    """The settings that Pathways' own documents ask of a user, and none of ours."""
    return clean_environment(
        JAX_PLATFORMS="proxy,cpu", JAX_BACKEND_TARGET=f"grpc://{cluster.address}"
    )


def test_initialize_is_the_only_set_up(cluster):
    done = run_python(HERE / "pathways_only.py", env=environment(cluster))
    assert done.stdout.split() == ["connected"]


@pytest.mark.parametrize("name", ["split", "concatenate", "reshard"])
def test_helpers_of_pathwaysutils(cluster, name):
    done = run_python(HERE / "pathways_helpers.py", name, env=environment(cluster))
    assert done.stdout.split() == ["done"]
