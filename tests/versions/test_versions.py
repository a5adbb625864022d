# SPDX-License-Identifier: Apache-2.0
"""The smoke matrix on every jaxlib that Fairway supports, each in an environment of its own."""

import functools
import subprocess

import pytest

from cluster import PROGRAMS, clean_environment, wait_for
from conftest import OWN, VERSIONS, python_of
from smoke_results import CASES, check, run_smoke
from test_device_put import MOVES, PROGRAM, mover, readings



def run(version, *arguments, env):
    return subprocess.run(
        [*python_of(version), *map(str, arguments)], env=env, text=True,
        stdin=subprocess.DEVNULL, capture_output=True, timeout=480,
    )


@functools.cache
def smoke(version, cluster):
    return run_smoke(python_of(version), cluster)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_environment_has_that_jaxlib(version):
    code = "import jax, jaxlib; print(jax.__version__, jaxlib.__version__)"
    done = run(version, "-c", code, env=clean_environment())
    assert done.stdout.split() == [version, version], done.stdout + done.stderr


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("version", VERSIONS)
def test_smoke(version, name, cluster):
    check(name, smoke(version, cluster))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("version", [v for v in VERSIONS if v != OWN])  # tests/gpu runs that one
def test_smoke_on_islands_of_gpus(version, name, gpu_cluster):
    """Over the stand-in plugin: device memory that ends whoever reads it from the host."""
    check(name, smoke(version, gpu_cluster), on_gpus=True)


@pytest.mark.parametrize("version", VERSIONS)
def test_no_byte_of_an_array_that_is_cut_anew_goes_through_the_controller(version, cluster):
    process = subprocess.Popen(
        [*python_of(version), "-u", "-c", PROGRAM], env=cluster.jax_environment(), text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    with mover(cluster, process) as ask:
        for source, target, *_ in MOVES:
            before = readings(cluster)[0]
            ask(f"{source}>{target}", "moved")
            assert readings(cluster)[0] == before, (source, target)
            ask("check", "right")


@pytest.mark.parametrize("name", ["transforms", "collectives", "unreduced", "dtypes", "layouts"])
def test_a_program_of_the_project_s_own_jaxlib_runs_with_the_newest(name, cluster):
    done = run(VERSIONS[-1], PROGRAMS / f"{name}.py", env=cluster.jax_environment())
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]


def test_arrays_of_floats_of_six_bits_are_refused_by_name(cluster):
    code = "import jax, ml_dtypes, numpy as np\nx = np.ones(3).astype(ml_dtypes.float6_e2m3fn)\n"
    code += "try: np.asarray(jax.device_put(x))\nexcept jax.errors.JaxRuntimeError as error: print(error)\n"
    code += "print(float(jax.numpy.ones(3).sum()))"
    done = run(VERSIONS[-1], "-c", code, env=cluster.jax_environment())
    assert done.stdout.splitlines() == [
        "UNIMPLEMENTED: arrays of element type F6E2M3FN are not served", "3.0",
    ], done.stdout + done.stderr


@pytest.mark.parametrize("version", VERSIONS)
def test_connect_from_code_and_the_plain_proxy_platform(version, cluster):
    code = f"import fairway; fairway.connect('{cluster.address}'); import jax; "
    code += "print([len(i) for i in fairway.islands()])"
    done = run(version, "-c", code, env=clean_environment())
    assert done.stdout.strip() == "[4, 4]", done.stdout + done.stderr
    env = clean_environment(
        JAX_PLATFORMS="proxy", JAX_BACKEND_TARGET=f"grpc://{cluster.address}"
    )
    done = run(version, "-c", "import jax; print(float(jax.numpy.ones(3).sum()))", env=env)
    assert done.stdout.strip() == "3.0", done.stdout + done.stderr


def test_the_clusters_sessions_are_gone(cluster):
    for name in ("fairway_sessions", "fairway_arrays", "fairway_shard_groups"):
        wait_for(lambda: cluster.metrics().total(name) == 0, f"{name} to be 0", 20)
