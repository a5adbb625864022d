# SPDX-License-Identifier: Apache-2.0
"""Plain JAX programs with their own assertions, on the cluster; and on JAX's CPU backend, so that a
program that asserts something wrong about JAX is not taken for a fault of the cluster."""

import pytest

from cluster import PROGRAMS, cpu_environment, run_python

ON_BOTH = [
    "transforms", "sharding", "collectives", "between_islands", "donation", "random_numbers",
    "fetching", "arguments", "unreduced", "dtypes", "layouts", "memory_kinds",
    "decompositions", "nans", "device_put", "callbacks",
]


@pytest.mark.parametrize("name", ON_BOTH)
def test_program_runs_on_the_cluster(cluster, name):
    cluster.python(PROGRAMS / f"{name}.py")


@pytest.mark.on_demand  # it tests the programs, not the cluster
@pytest.mark.parametrize("name", ON_BOTH)
def test_program_is_right_about_jax(name):
    run_python(PROGRAMS / f"{name}.py", env=cpu_environment())


def test_arrays_are_resharded_split_and_put_together(cluster):
    # JAX's own CPU backend lacks these helpers; the program compares with numpy.
    for program in "reshard", "unreduced_reshard":
        done = cluster.python(PROGRAMS / f"{program}.py")
        assert done.stdout.splitlines()[-1] == "resharded"


def test_programs_over_several_islands_call_python(cluster):
    assert cluster.python(PROGRAMS / "callbacks_in_programs.py").stdout == "right\n"


def test_what_callbacks_print_and_raise_while_a_process_ends_is_seen(cluster):
    """JAX waits for effects when a process ends; nothing else is printed."""
    done = cluster.python(
        "-c",
        "import time, jax\n"
        "f = jax.jit(lambda x: jax.debug.print('{}', x))\n"
        "jax.jit(lambda: jax.debug.callback(lambda: (time.sleep(1), print('late'))))()\n"
        "for i in range(3): f(i)\n")
    assert sorted(done.stdout.split()) == ["0", "1", "2", "late"], done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    done = cluster.python(
        "-c",
        "import jax\n"
        "def raises(): raise ValueError('of no use')\n"
        "jax.jit(lambda: jax.debug.callback(raises))()\n", check=False)
    assert "ValueError: of no use" in done.stderr


def test_a_callback_that_computes_on_the_island_that_waits_for_it_is_told(cluster):
    done = cluster.python(
        "-c",
        "import jax, logging\n"
        "logging.disable(logging.CRITICAL)\n"
        "here, there = jax.devices()[0], jax.devices()[4]\n"
        "g = jax.jit(lambda x: x + 1)\n"
        "known = [jax.device_put(1.0, d) for d in (here, there)]\n"
        "print([float(g(x)) for x in known])\n"  # compiled for both
        "for x in known:\n"
        "    f = jax.jit(lambda v: jax.pure_callback(lambda a: jax.numpy.float32(float(g(x))), v, v))\n"
        "    try:\n"
        "        print(float(f(jax.device_put(1.0, here))))\n"
        "    except jax.errors.JaxRuntimeError as error:\n"
        "        print(*[x for x in str(error).splitlines() if x.startswith('RuntimeError')])\n")
    assert done.stdout.splitlines() == [
        "[2.0, 2.0]",
        "RuntimeError: a callback computes on island 0, which waits for this callback: use numpy there, "
        "or arrays of jax.devices('cpu')",
        "2.0",
    ]


def test_compiled_programs_are_described_as_by_the_cpu_backend(cluster):
    """Cost, memory, layouts, shardings, devices and donation, and where portable code runs."""
    program = PROGRAMS / "compiled.py"
    there = cluster.python(program).stdout.splitlines()
    here = run_python(program, env=cpu_environment()).stdout.splitlines()
    assert len(there) > 200
    assert there == here


def test_a_jit_over_two_islands_is_refused_with_their_names_and_the_way_out(cluster):
    done = cluster.python(PROGRAMS / "crosses_islands.py")
    (line,) = [l for l in done.stdout.splitlines() if l.startswith(("REFUSED", "RAN"))]
    assert line.startswith("REFUSED"), line
    for island in cluster.status()["islands"]:
        assert island["name"] in line, f"island {island['name']} is not named in: {line}"
    assert "device_put" in line


def test_an_array_of_more_dimensions_than_are_served_is_refused_and_no_executor_ends(cluster):
    before = [process.pid for process in cluster.executors()]
    done = cluster.python(
        "-c",
        "import jax, jax.numpy as jnp\n"
        "kept = jnp.arange(3.0) + 1\n"
        "try:\n"
        "    jax.jit(lambda x: jax.lax.reshape(x, (1,) * 70))(jnp.zeros(1)).block_until_ready()\n"
        "except jax.errors.JaxRuntimeError as error:\n"
        "    print(error)\n"
        "print(kept)\n",
    )
    refused, kept = done.stdout.splitlines()
    assert refused.startswith("UNIMPLEMENTED") and "70 dimensions; at most 64" in refused
    assert kept == "[1. 2. 3.]"
    assert [process.pid for process in cluster.executors()] == before


def test_jax_sees_every_device_with_its_island(cluster):
    done = cluster.python(
        "-c",
        "import jax, fairway\n"
        "print([[d.id for d in group] for group in fairway.islands()])\n"
        "print([d.slice_index for d in jax.devices()], jax.default_backend())\n"
        "print(jax.devices('cpu')[0].client is not jax.devices()[0].client)\n",
    )
    assert done.stdout.splitlines() == [
        "[[0, 1, 2, 3], [4, 5, 6, 7]]", "[0, 0, 0, 0, 1, 1, 1, 1] cpu", "True",
    ]


def test_connect_from_code_needs_no_environment(cluster):
    from cluster import clean_environment

    done = run_python(
        "-c",
        f"import fairway; fairway.connect('{cluster.address}')\n"
        "import jax; print(len(jax.devices()), float(jax.numpy.ones(3).sum()))",
        env=clean_environment(),
    )
    assert done.stdout.split() == ["8", "3.0"]


def test_the_plain_proxy_platform_works_as_documented(cluster):
    from cluster import clean_environment

    done = run_python(
        "-c", "import jax; print(len(jax.devices()), float(jax.numpy.ones(3).sum()))",
        env=clean_environment(
            JAX_PLATFORMS="proxy", JAX_BACKEND_TARGET=f"grpc://{cluster.address}"
        ),
    )
    assert done.stdout.split() == ["8", "3.0"]


def failures_inside(cluster):
    """Returns the errors of ONE and GANG on the cluster, whose executors must survive them."""
    executors = {executor.pid for executor in cluster.executors()}
    done = cluster.python(PROGRAMS / "fails_inside.py")
    assert {executor.pid for executor in cluster.executors()} == executors
    lines = [l for l in done.stdout.splitlines() if l.startswith(("ONE", "GANG"))]
    assert [line.split()[0] for line in lines] == ["ONE", "GANG"]
    return lines


def test_an_error_inside_a_computation_reaches_its_dependants_and_nobody_else(new_cluster):
    # The plugin is asked for all the memory that the devices are said to have.
    for line in failures_inside(new_cluster(2, 4, ("--device-memory=1024TiB",))):
        assert "Out of memory allocating" in line and "on island island0 (worker w0)" in line, line


def test_what_is_larger_than_the_host_is_refused_and_no_executor_ends(cluster):
    for line in failures_inside(cluster):
        assert "RESOURCE_EXHAUSTED: Out of memory: " in line and "it can never fit" in line, line
