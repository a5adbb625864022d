# SPDX-License-Identifier: Apache-2.0
"""The examples that need these libraries, on the cluster and on JAX's CPU backend."""

import json

import numpy as np
import pytest

from cluster import EXAMPLES, cpu_environment, run_python


@pytest.fixture
def reports(cluster, tmp_path):
    """reports(name, *arguments) -> the example's reports on the cluster and on the CPU backend."""
    def run(name, *arguments):
        script = EXAMPLES / f"{name}.py"
        cluster.python(script, "--json", tmp_path / "cluster.json", *arguments)
        run_python(script, "--json", tmp_path / "cpu.json", *arguments, env=cpu_environment())
        return [json.loads((tmp_path / f"{where}.json").read_text()) for where in ("cluster", "cpu")]

    return run


def test_flax_learns_on_one_island(reports):
    here, there = reports("flax_on_one_island")
    assert here["accuracy"] >= 0.96
    np.testing.assert_allclose(here["losses"][:50], there["losses"][:50], rtol=1e-4)


def test_a_checkpoint_moves_a_run_to_another_island(reports):
    here, there = reports("orbax_across_islands")
    assert here["difference"] <= 1e-5
    np.testing.assert_allclose(here["losses"], there["losses"], rtol=1e-4)


def test_attention_over_a_split_sequence(reports):
    here, there = reports("shard_map_attention")
    assert list(here) == ["ring", "gathered", "by_heads"]
    for form, sums in here.items():
        np.testing.assert_allclose(sums, there[form], rtol=1e-4)


def test_data_parallel_over_two_islands(reports):
    here, there = reports("hybrid_mesh_data_parallel")
    assert here["accuracy"] >= 0.95
    np.testing.assert_allclose(here["losses"], there["losses"], rtol=1e-4)
