# SPDX-License-Identifier: Apache-2.0
"""The smoke matrix on every jaxlib that Fairway supports, each in its own environment."""

import functools
import os
import re
import signal
import subprocess

import pytest

from cluster import Cluster, PROGRAMS, clean_environment, wait_for
from conftest import OWN, VERSIONS, python_of
from smoke_results import CASES, check, run_smoke
from terminal import without_client_log
from test_device_put import PROGRAM, compare_ways, mover


def run(version, *arguments, env):
    return subprocess.run(
        [*python_of(version), *map(str, arguments)], env=env, text=True,
        stdin=subprocess.DEVNULL, capture_output=True, timeout=1200,
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


# tests/gpu runs the project's own jaxlib. Of the others, the newest one alone unless all are asked for.
ON_GPUS = [v for v in VERSIONS if v != OWN][0 if "FAIRWAY_TEST_ALL_ON_GPUS" in os.environ else -1:]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("version", ON_GPUS)
def test_smoke_on_islands_of_gpus(version, name, gpu_cluster):
    """Over the stand-in plugin: device memory that ends any process that reads it on the host."""
    check(name, smoke(version, gpu_cluster), on_gpus=True)


def on_demand_in_the_middle(versions):
    """Those between the oldest and the newest take a minute each, and rarely differ from them."""
    on_demand = pytest.mark.skipif("FAIRWAY_TEST_ON_DEMAND" not in os.environ,
                                   reason="on demand: ./dev test versions_on_demand")
    return [v if v in (VERSIONS[0], VERSIONS[-1]) else pytest.param(v, marks=on_demand) for v in versions]


@pytest.mark.parametrize("version", on_demand_in_the_middle(VERSIONS))
def test_no_byte_of_a_moved_array_goes_through_the_controller_and_each_comes_to_an_executor_once(version, cluster):
    process = subprocess.Popen(
        [*python_of(version), "-u", "-c", PROGRAM], env=cluster.jax_environment(), text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    with mover(cluster, process) as ask:
        compare_ways(cluster, ask)


@pytest.mark.parametrize("name", ["transforms", "collectives", "unreduced", "dtypes", "layouts", "memory_kinds",
                                  "callbacks_in_programs"])
def test_a_program_of_the_project_s_own_jaxlib_runs_with_the_newest(name, cluster):
    done = run(VERSIONS[-1], PROGRAMS / f"{name}.py", env=cluster.jax_environment())
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]


@pytest.mark.parametrize("version", on_demand_in_the_middle(v for v in VERSIONS if v != OWN))  # tests/e2e runs all of it on that one
def test_arrays_move_to_other_cuts(version, cluster):
    # What makes hundreds of moves takes minutes with 0.8.2; the smoke matrix has some of them.
    left_out = ("every_pair", "every_type", "memories")
    done = run(version, PROGRAMS / "device_put.py", *left_out, env=cluster.jax_environment())
    # Some releases of JAX print a line of their own where an axis does not divide.
    assert done.returncode == 0 and done.stdout.endswith("moved\n"), (done.stdout + done.stderr)[-6000:]


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
    code += "print([len(i) for i in fairway.islands()]); fairway.info(); "
    # The line about a long compilation hangs on this function of JAX.
    code += "from jax._src import compiler; print(hasattr(compiler.compile_or_get_cached, '_fairway_progress'))"
    done = run(version, "-c", code, env=clean_environment())
    islands, *info, announced = done.stdout.splitlines() or [done.stderr]
    assert (islands, announced, done.stderr) == ("[4, 4]", "True", ""), done.stdout + done.stderr
    assert re.fullmatch(rf"controller +{re.escape(cluster.address)}, round trip [\d.]+ ms", info[0]), info
    assert f"jaxlib {version}, controller " in info[-1], info
    env = clean_environment(
        JAX_PLATFORMS="proxy", JAX_BACKEND_TARGET=f"grpc://{cluster.address}"
    )
    done = run(version, "-c", "import jax; print(float(jax.numpy.ones(3).sum()))", env=env)
    assert done.stdout.strip() == "3.0", done.stdout + done.stderr


QUIET = """
import jax, jax.numpy as jnp, numpy as np
here, there = jax.devices()[0], jax.devices()[4]
f = jax.jit(lambda x: jax.lax.fori_loop(0, 3, lambda i, x: jnp.tanh(x @ x), x).sum())
w = jax.device_put(np.ones((256, 256), np.float32), here)
assert float(f(w)) > 0 and float(jax.nn.gelu(f(jax.device_put(w, there)))) > 0
jax.debug.print("x={}", jax.jit(lambda x: x + 1)(2.0))
jax.effects_barrier()
print("out", flush=True)
"""


@pytest.mark.parametrize("version", VERSIONS)
def test_a_program_prints_what_it_prints_and_nothing_else(version, cluster):
    """Moves arrays, with a callback, and exits while work is under way."""
    done = run(version, "-c", QUIET + "kept = [f(w * i) for i in range(100)]", env=cluster.jax_environment())
    assert (done.returncode, done.stdout, done.stderr) == (0, "x=3.0\nout\n", "")


def test_a_release_newer_than_all_tested_ones_works_with_one_line_that_says_so(cluster):
    code = "import jax; jax.__version__ = '0.99.0'\n" + QUIET
    done = run(VERSIONS[-1], "-c", code, env=cluster.jax_environment())
    assert (done.returncode, done.stdout) == (0, "x=3.0\nout\n"), done.stderr
    assert re.fullmatch(r"fairway: jax 0\.99\.0 is newer than the newest .*\n", done.stderr), done.stderr


def test_a_collective_runs_where_the_environment_asks_for_the_form_that_plugins_cannot_read(cluster):
    code = """
import jax, numpy as np
from jax.sharding import Mesh, PartitionSpec as P
mesh = Mesh(np.array(jax.devices()[:4]), "x")
total = jax.jit(jax.shard_map(lambda v: jax.lax.psum(v, "x"), mesh=mesh, in_specs=P("x"), out_specs=P()))
print(jax.config.jax_use_rgv3, total(np.arange(8.0)).tolist())
"""
    done = run(VERSIONS[-1], "-c", code, env=cluster.jax_environment() | {"JAX_USE_RGV3": "1"})
    assert done.stdout == "False [12.0, 16.0]\n", done.stdout + done.stderr


WAITS = QUIET + """
input()
endless = jax.jit(lambda x: jax.lax.while_loop(lambda x: x[0, 0] < 2, lambda x: jnp.tanh(x @ x), x))
np.asarray(endless(w))
"""


@pytest.mark.parametrize("how, versions", [("killed", VERSIONS), ("ended", {VERSIONS[0], VERSIONS[-1]})])
def test_a_controller_that_goes_away_is_one_line_with_each_version(how, versions):
    with Cluster(islands=2, devices=4) as cluster:
        started = {version: subprocess.Popen(
            [*python_of(version), "-u", "-c", WAITS], env=cluster.jax_environment(), text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) for version in versions}
        try:
            for process in started.values():
                assert [process.stdout.readline() for _ in range(2)] == ["x=3.0\n", "out\n"]
            for process in started.values():
                process.stdin.write("\n")
                process.stdin.flush()
            # Each has a computation and its fetch. (jaxlib 0.8.2 crashes if it sends anything afterwards.)
            wait_for(lambda: cluster.metrics().total("fairway_nodes_unfinished") == 2 * len(versions),
                     "all programs to wait", 240)
            if how == "killed":
                next(p for p in cluster.processes() if p.program == "fairway-controller").signal(signal.SIGKILL)
            else:
                cluster.down()
            ended = {version: process.communicate(timeout=300)[0] for version, process in started.items()}
        finally:
            for process in started.values():
                process.kill()
                process.wait()
    for version, text in ended.items():
        without_client_log(text)
        assert started[version].returncode == 1 and "JaxRuntimeError: UNAVAILABLE" in text, (version, text)
        (line,) = re.findall("^fairway: .*", text, re.M)
        assert f"the controller at {cluster.address} ended this session" in line, (version, text)


def test_the_clusters_sessions_are_gone(cluster):
    for name in ("fairway_sessions", "fairway_arrays", "fairway_shard_groups"):
        wait_for(lambda: cluster.metrics().total(name) == 0, f"{name} to be 0")
