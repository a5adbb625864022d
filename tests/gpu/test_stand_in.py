# SPDX-License-Identifier: Apache-2.0
"""Islands of kind cuda over the stand-in plugin (stand_in/plugin.cc): real JAX, true numbers, and
device memory that ends any process which reads it from the host."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT / "tests/e2e"), str(ROOT / "tests/versions")]

from cluster import BIN, Cluster, clean_environment, wait_for  # noqa: E402
from smoke_results import CASES, check, run_smoke  # noqa: E402

PLUGIN = BIN.parent / "tests/fairway_stand_in_gpu.so"
FLAGS = ["--plugin-kind=cuda", f"--plugin={PLUGIN}"]


@pytest.fixture(scope="module")
def clients(tmp_path_factory):
    """The file in which the plugin notes its clients, those of compile processes too."""
    file = tmp_path_factory.mktemp("stand-in") / "stand-in-clients"
    file.touch()
    return file


@pytest.fixture(scope="module")
def cluster(clients):
    # Workers share GPUs through files there. Other tests have other files, and so other GPUs.
    environment = {"TMPDIR": str(clients.parent)}
    with Cluster(flags=FLAGS, environment=environment) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def smoke(cluster):
    return run_smoke([sys.executable], cluster)


@pytest.mark.parametrize("name", CASES)
def test_smoke(name, smoke):
    check(name, smoke, on_gpus=True)


def test_compile_processes_create_no_client(cluster, clients, smoke):
    """Two islands, one executor each: two clients, after some sixty compilations."""
    assert [line.split()[0] for line in clients.read_text().splitlines()] == ["client"] * 2


def test_compile_processes_that_tune_create_clients(tmp_path):
    clients = tmp_path / "stand-in-clients"
    clients.touch()
    with Cluster(islands=1, flags=[*FLAGS, "--tune-on-gpu"], environment={"TMPDIR": str(tmp_path)}) as cluster:
        done = cluster.python("-c", "import jax; print(float(jax.jit(lambda x: x * 3)(2.0)))")
    assert done.stdout == "6.0\n"
    assert len(clients.read_text().splitlines()) >= 2  # of the executor, and of whoever compiled


def test_a_device_has_what_the_plugin_says_less_a_reserve(cluster):
    text = cluster.cli("status", "--controller", cluster.address).stdout
    assert re.findall(r"4 cuda devices, memory .*\((.*) each at most\)", text) == ["1003.5 MiB"] * 2, text


PROGRAM = """
import jax, numpy as np
x, other = (jax.device_put(np.arange(8.0), jax.devices()[d]) + 0 for d in (0, 4))  # computed: they lie there
print(float((x * 2).sum()), float((other * 3).sum()), flush=True)
input()
try:
    print(float((x * 2).sum()))
except jax.errors.JaxRuntimeError as error:
    print(error)
print(float((other * 3).sum()))
"""


def test_a_killed_executor_comes_back_and_others_go_on(cluster):
    """Arrays there are lost, with the cause; a session on the other island sees nothing of it."""
    process = subprocess.Popen([sys.executable, "-c", PROGRAM], env=cluster.jax_environment(), text=True,
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert process.stdout.readline() == "56.0 84.0\n"
    here, there = cluster.executors()
    os.kill(here.pid, 9)
    said, _ = process.communicate("\n", timeout=300)
    assert "DATA_LOSS" in said and "killed by SIGKILL" in said
    assert said.endswith("\n84.0\n")
    wait_for(lambda: "island0 up" in cluster.cli("status", "--controller", cluster.address).stdout,
             "island0 to come back")
    again = subprocess.run([sys.executable, "-c", PROGRAM], env=cluster.jax_environment(), text=True,
                           input="\n", capture_output=True, timeout=300)
    assert again.stdout == "56.0 84.0\n56.0\n84.0\n"
    assert cluster.executors()[1].pid == there.pid


def test_more_than_the_device_has_waits_or_is_refused_and_the_next_runs(cluster):
    """Rule B2, with the plugin's limit."""
    program = """
import jax, jax.numpy as jnp
held = [jnp.ones((64, 1 << 20)) for _ in range(3)]  # 256 MiB each, of 1003.5 MiB
jax.block_until_ready(held)
try:
    jax.block_until_ready(jnp.ones((128, 1 << 20)))
except jax.errors.JaxRuntimeError as error:
    print(str(error).split("\\n")[0])
held.pop()
print(float(jnp.ones((64, 1 << 20)).sum()))
"""
    done = subprocess.run([sys.executable, "-c", program], env=cluster.jax_environment(), text=True,
                          capture_output=True, timeout=600)
    lines = done.stdout.splitlines()
    assert lines[0].startswith("RESOURCE_EXHAUSTED"), done.stdout + done.stderr
    assert lines[1] == str(float(64 << 20)), done.stdout + done.stderr


def test_a_program_waits_for_the_memory_that_another_session_holds(cluster):
    """Rule B2 between sessions. The one that waits deletes scalars meanwhile: so it waits however long this
    test takes."""
    holder = cluster.start_python("-c", """
import jax, jax.numpy as jnp
held = jax.block_until_ready(jnp.ones((192, 1 << 20)))  # 768 of 1003.5 MiB
print("holds", flush=True)
input()
held.delete()
input()
""")
    waiter = cluster.start_python("-c", """
import jax, jax.numpy as jnp, numpy as np
scalars = jax.device_put([np.float32(i) for i in range(6000)], jax.devices()[0])
make = jax.jit(lambda: jnp.full((128, 1 << 20), 3.0)).lower().compile()  # 512 MiB
jax.block_until_ready(scalars)
made = make()
print("asks", flush=True)
while input() == "wait":
    scalars.pop().delete()
print(float(made[127, 5]))
""")

    def waits():
        waiter.stdin.write("wait\n")
        waiter.stdin.flush()
        return cluster.metrics().total("fairway_island_nodes", island="island0", state="waits_for_memory") == 1

    try:
        assert holder.stdout.readline() == "holds\n"
        assert waiter.stdout.readline() == "asks\n"
        wait_for(waits, "the program to wait")
        holder.stdin.write("\n")
        holder.stdin.flush()
        wait_for(lambda: not waits(), "the program to run")
        said, _ = waiter.communicate("done\n", timeout=300)
        assert said == "3.0\n", said
    finally:
        for process in (holder, waiter):
            process.kill()
            process.communicate()


def test_programs_are_compiled_for_the_file_and_refused_by_another_gpu_with_both_names(tmp_path):
    target = tmp_path / "target.txtpb"
    target.write_text('gpu_device_info { device_memory_size: 99 }\ndevice_description_str: "Other GPU"\n')
    with Cluster(islands=1, devices=1, flags=FLAGS, environment={
            "TMPDIR": str(tmp_path), "FAIRWAY_TARGET_CONFIG": str(target)}) as cluster:
        done = subprocess.run([sys.executable, "-c", """
import jax, numpy as np
compiled = jax.jit(lambda x: x * 2).lower(np.float32(1)).compile()
try:
    jax.block_until_ready(compiled(np.float32(1)))
except jax.errors.JaxRuntimeError as error:
    print(error)
"""], env=cluster.jax_environment(), text=True, capture_output=True, timeout=600)
    both = re.search(r'code of another plugin: it was made by "(.*?)", this is "(.*?)"', done.stdout)
    assert both and both[1] != both[2], done.stdout + done.stderr
    assert all(name.startswith("cuda; ") for name in both.groups())
    assert "; Other GPU, target " in both[1] and "; NVIDIA H200, target " in both[2]


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    """Three islands of two devices: GPUs, GPUs of another kind, and CPUs."""
    cpu, = pathlib.Path(sys.prefix).glob("lib/python3*/site-packages/xla_plugins/xla_cpu_pjrt/*.so")
    others = [("island1", [*FLAGS, "--gpus=2,3"], {"FAIRWAY_STAND_IN_KIND": "NVIDIA H100"}),
              ("island2", ["--plugin-kind=cpu", f"--plugin={cpu}"], {})]
    with Cluster(islands=1, devices=2, flags=FLAGS,
                 environment={"TMPDIR": str(tmp_path_factory.mktemp("mixed"))}) as cluster:
        link = cluster.status()["link_address"]
        workers = [subprocess.Popen(
            [BIN / "fairway-worker", f"--controller={link}", f"--name={name}", f"--island={name}", "--devices=2", *flags],
            env={**cluster.environment, **environment}, stderr=subprocess.DEVNULL)
            for name, flags, environment in others]
        try:
            wait_for(lambda: cluster.metrics().total("fairway_island_up") == 3, "three islands")
            yield cluster
        finally:
            for worker in workers:
                worker.terminate()
                worker.wait()


def test_one_jit_on_two_kinds_of_gpu_is_compiled_for_each(mixed):
    """And once for all devices of a kind."""
    before = mixed.metrics().total("fairway_compilations_total")
    done = mixed.python("-c", """
import jax, numpy as np
step = jax.jit(lambda x: x * 2 + 1)
for device in jax.devices()[:4]:
    print(device.device_kind, np.asarray(step(jax.device_put(np.arange(3, dtype=np.float32), device))))
""")
    assert done.stdout.splitlines() == ["NVIDIA H200 [1. 3. 5.]"] * 2 + ["NVIDIA H100 [1. 3. 5.]"] * 2
    assert mixed.metrics().total("fairway_compilations_total") - before == 2


def test_a_program_is_lowered_for_the_platform_of_each_of_its_islands(mixed):
    """A jit is lowered for that of the session's first device (docs/status.md)."""
    done = mixed.python("-c", """
import fairway, jax, jax.numpy as jnp, numpy as np
gpu, cpu = jax.devices()[0], jax.devices()[4]
assert (gpu.platform, cpu.platform) == ("gpu", "cpu")

def which(x):
    return jax.lax.platform_dependent(x, cpu=lambda x: x + 10, cuda=lambda x: x + 1)

there = fairway.on(cpu, lambda x: jnp.linalg.cholesky(jax.pure_callback(lambda a: np.asarray(a) * 4, x, which(x) - 10)))
program = fairway.program(lambda x: there(fairway.on(gpu, lambda x: which(x) - 1)(x)))
print(np.asarray(program(np.eye(2, dtype=np.float32))).tolist())
x = jax.device_put(np.eye(2, dtype=np.float32), cpu)
print(float(jax.jit(jnp.sum)(x)))
try:
    jnp.linalg.cholesky(x)
except jax.errors.JaxRuntimeError as error:
    print(error)
""")
    assert re.fullmatch(r"\[\[2.0, 0.0\], \[0.0, 2.0\]\]\n2.0\n.*cusolver_potrf_ffi.*\n", done.stdout), done.stdout


LINEAR_ALGEBRA = """
import jax, jax.numpy as jnp
x = jnp.eye(3)
for name in "inv cholesky qr eigh svd eig solve lstsq pinv slogdet".split():
    function = getattr(jnp.linalg, name)
    try:
        jax.block_until_ready(function(x, x) if name in ("solve", "lstsq") else function(x))
        print(name, "ran")
    except jax.errors.JaxRuntimeError as error:
        print(name, error)
with jax.default_device(jax.devices("cpu")[0]):
    print(float(jnp.linalg.inv(jax.device_put(x, jax.devices("cpu")[0])).sum()))
"""


def test_linear_algebra_is_refused_in_one_line_with_the_way_out_which_works(cluster):
    done = subprocess.run([sys.executable, "-c", LINEAR_ALGEBRA], env=cluster.jax_environment(), text=True,
                          capture_output=True, timeout=600)
    *refused, sum_on_the_cpu = done.stdout.splitlines()
    assert len(refused) == 10, done.stdout + done.stderr
    for line in refused:
        assert re.fullmatch(
            r'\w+ UNIMPLEMENTED: custom call "\w+" is not served on GPUs: its code is in Python modules of '
            r'jaxlib, which a worker does not have. Compute it on the client\'s CPU: '
            r'jax.device_put\(x, jax.devices\("cpu"\)\[0\]\)', line), line
    assert sum_on_the_cpu == "3.0"


def test_no_gpu_is_said_by_fairway_up(tmp_path):
    done = subprocess.run(
        [BIN / "fairway", "up", *FLAGS, "--devices=1", "--port=0"], text=True, capture_output=True,
        timeout=300, env=clean_environment(FAIRWAY_STAND_IN_GPUS="0", XDG_STATE_HOME=str(tmp_path)))
    assert done.returncode == 1
    assert "w0 ended with exit code 3" in done.stderr and "No visible GPU devices" in done.stderr


def test_an_option_that_this_version_of_the_plugin_lacks_is_refused_with_those_it_has(tmp_path):
    done = subprocess.run(
        [BIN / "fairway-worker", *FLAGS, "--controller=127.0.0.1:1",
         "--plugin-option=memory_fraction_policy=total"], text=True, capture_output=True, timeout=300,
        env=clean_environment(TMPDIR=str(tmp_path)))
    assert done.returncode == 2
    assert "too old for option memory_fraction_policy" in done.stderr
    has = re.search(r"\(the plugin has: (.*?)\)", done.stderr)[1].split(", ")
    assert "allocator" in has and "memory_fraction_policy" not in has


def test_raw_kernels_are_refused_unless_the_cluster_allows_them(tmp_path):
    """For an unknown one the answer is the plugin's own."""
    program = """
import jax, numpy as np
call = jax.ffi.ffi_call("__gpu$xla.gpu.ptx", jax.ShapeDtypeStruct((8,), np.float32))
try:
    jax.jit(lambda x: call(x)).lower(np.ones(8, np.float32)).compile()
except jax.errors.JaxRuntimeError as error:
    print(error)
"""
    said = []
    for number, flags in enumerate([[], ["--allow-raw-kernels"]]):
        folder = tmp_path / str(number)
        folder.mkdir()
        with Cluster(islands=1, devices=1, flags=[*FLAGS, *flags],
                     environment={"TMPDIR": str(folder)}) as cluster:
            done = subprocess.run([sys.executable, "-c", program], env=cluster.jax_environment(), text=True,
                                  capture_output=True, timeout=600)
            said.append(done.stdout + done.stderr)
    assert 'UNIMPLEMENTED: custom call "__gpu$xla.gpu.ptx" is not served on GPUs' in said[0], said[0]
    assert "is not served on GPUs" not in said[1] and "__gpu$xla.gpu.ptx" in said[1], said[1]


def up(tmp_path, *flags):
    return subprocess.run(
        [BIN / "fairway", "up", *FLAGS, "--port=0", *flags], text=True, capture_output=True, timeout=300,
        env=clean_environment(XDG_STATE_HOME=str(tmp_path), TMPDIR=str(tmp_path)))


@pytest.mark.parametrize("option, expected", [
    ("no_such=1", 'a cuda plugin has no option "no_such" (it has: '),
    ("preallocate=1", 'preallocate is a bool, got "1" (a cuda plugin has: abort_collectives_on_failure, '),
    ("memory_fraction_policy=total", "the plugin is too old for option memory_fraction_policy"),
])
def test_an_option_that_a_worker_refuses_is_wrong_usage_of_fairway_up(tmp_path, option, expected):
    for detach in ([], ["--detach"]):
        done = up(tmp_path, f"--plugin-option={option}", *detach)
        assert done.returncode == 2 and expected in done.stderr, done.stderr


@pytest.mark.parametrize("flags, expected", [
    (["--islands=2", "--gpus=0"], "--gpus lists 1 GPUs; 2 islands of 1 devices have 2"),
    (["--islands=2", "--gpus=0,0"], "--gpus gives GPU 0 to 2 islands, and --gpu-fraction is 0: together "
     "they may have 0.9 of its memory, so it must be above 0 and at most 0.45"),
    (["--islands=2", "--gpus=0,0", "--gpu-fraction=0.5"], "at most 0.45"),
    (["--plugin-kind=cpu", "--gpus=0"], "for --plugin-kind cuda only"),
])
def test_gpus_that_do_not_fit_are_refused_by_fairway_up(tmp_path, flags, expected):
    done = up(tmp_path, *flags)
    assert done.returncode == 2 and expected in done.stderr, done.stderr


def test_islands_share_a_gpu_and_a_worker_more_is_refused(tmp_path):
    """The fractions fit; a GPU that another process starts is refused by what is left. The plugin gets all
    options, and finds the libraries to open before it."""
    clients, library = tmp_path / "stand-in-clients", BIN.parent / "tests/driver/libnvidia-ml.so.1"
    clients.touch()
    options = ["--plugin-option=allocator=bfc", "--plugin-option=preallocate=false", "--plugin-option=num_nodes=1"]
    with Cluster(islands=2, devices=1, environment={"TMPDIR": str(tmp_path)},
                 flags=[*FLAGS, "--gpus=3,3", "--gpu-fraction=0.4", *options, f"--preload={library}"]) as cluster:
        assert {p.flag("gpus") for p in cluster.executors()} == {"3"}
        assert [set(line.split()) for line in clients.read_text().splitlines()] == 2 * [{
            "client", "visible_devices=3", "memory_fraction=0.4", "allocator=bfc", "preallocate=false", "num_nodes=1"}]
        for executor in cluster.executors():
            maps = pathlib.Path("/proc", str(executor.pid), "maps").read_text()
            assert str(library.resolve()) in maps and str(PLUGIN.resolve()) in maps
        more = subprocess.run(
            [BIN / "fairway-worker", *FLAGS, "--controller=127.0.0.1:1", "--gpus=3",
             "--gpu-fraction=0.2"], text=True, capture_output=True, timeout=300,
            env=clean_environment(TMPDIR=str(tmp_path)))
        assert more.returncode == 2
        assert "0.2 of the memory of GPU 3 (3) is asked for, and other workers of this host leave 0.1" \
            in more.stderr
