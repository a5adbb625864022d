# SPDX-License-Identifier: Apache-2.0
"""Programs of many cases on the cluster and on JAX's CPU backend: each case passes on both, and
returns the same on both."""

import functools
import pathlib
import re

import numpy as np
import pytest

from cluster import cpu_environment, run_python

pytest.importorskip("flax", reason="the libraries are in .venv-ecosystem: ./dev test ecosystem")

PROGRAMS = pathlib.Path(__file__).resolve().parent / "programs"
NAMES = sorted(path.stem for path in PROGRAMS.glob("*.py") if path.stem != "cases")
CASES = [  # the cases of one program follow each other: one process runs them all
    pytest.param(name, case, marks=pytest.mark.xdist_group(name))
    for name in NAMES
    for case in re.findall(r"^@case\ndef (\w+)", (PROGRAMS / f"{name}.py").read_text(), re.MULTILINE)
]


@pytest.fixture(scope="module")
def ran(shared_cluster, tmp_path_factory):
    """ran(program, where) -> ({case: its line}, {key: array}, all output); runs each once."""
    folder = tmp_path_factory.mktemp("results")
    environments = {"cluster": shared_cluster.jax_environment(), "cpu": cpu_environment()}

    @functools.cache
    def run(name, where):
        file = folder / f"{name}-{where}.npz"
        env = {**environments[where], "TF_CPP_MIN_LOG_LEVEL": "2"}
        done = run_python(PROGRAMS / f"{name}.py", file, env=env, check=False)
        lines = {m[1]: m[0] for m in re.finditer(r"^(?:ok|failed) (\w+).*", done.stdout, re.MULTILINE)}
        arrays = dict(np.load(file)) if file.exists() else {}
        return lines, arrays, f"{done.stdout[-6000:]}\n{done.stderr[-6000:]}"

    return run


def passed(ran, name, case, where):
    """The arrays that the case returned there."""
    lines, arrays, text = ran(name, where)
    assert case in lines, f"{case} did not end on the {where}:\n{text}"
    assert lines[case].startswith("ok "), f"on the {where}: {lines[case]}\n{text}"
    return {key: value for key, value in arrays.items() if key.startswith(f"{case}/")}


@pytest.mark.parametrize(("name", "case"), CASES)
def test_case_passes_and_gives_the_same_as_on_the_cpu(ran, cluster, name, case):
    there = passed(ran, name, case, "cpu")
    here = passed(ran, name, case, "cluster")
    assert list(here) == list(there)
    for key, expected in there.items():
        assert (here[key].dtype, here[key].shape) == (expected.dtype, expected.shape), key
        size = np.abs(expected.astype(np.float64)).max(initial=0)
        np.testing.assert_allclose(
            here[key], expected, rtol=1e-5, atol=1e-5 * size + 1e-7, err_msg=key)


def test_a_hybrid_mesh_groups_the_devices_by_island(cluster):
    cluster.python(pathlib.Path(__file__).resolve().parent / "hybrid_mesh.py")
