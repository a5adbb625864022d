# SPDX-License-Identifier: Apache-2.0
"""Islands of the real CUDA plugin over a stand-in driver (driver/driver.h): real JAX, real copies,
streams and memory. Kernels are launched and do nothing, so no test here checks their results."""

import pathlib
import re
import signal
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests/e2e"))

from cluster import BIN, Cluster, clean_environment, wait_for  # noqa: E402

DRIVER = BIN.parent / "tests/driver"


class Log:
    """The driver's log lines since this was made."""

    def __init__(self, path):
        self.path = path
        path.touch()
        self.begin = path.stat().st_size

    def lines(self, pattern):
        """The matches of `pattern`, which begins after the process id."""
        with open(self.path) as file:
            file.seek(self.begin)
            return re.findall(r"^\d+: " + pattern + "$", file.read(), re.MULTILINE)

    @classmethod
    def all(cls, path, pattern):
        log = cls(path)
        log.begin = 0
        return log.lines(pattern)

    def processes(self):
        with open(self.path) as file:
            file.seek(self.begin)
            return {int(pid) for pid in re.findall(r"^(\d+):", file.read(), re.MULTILINE)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("driver")


def start(plugin, folder, *flags, **environment):
    """Two islands of two GPUs, each of 1 GiB."""
    return Cluster(devices=2, flags=["--plugin-kind=cuda", f"--plugin={plugin}", *flags], environment={
        "LD_LIBRARY_PATH": str(DRIVER), "TMPDIR": str(folder), "FAIRWAY_DRIVER_GPUS": "4",
        "FAIRWAY_DRIVER_LOG": str(folder / "log"), "FAIRWAY_DRIVER_HOLD": str(folder / "hold"),
        **environment})


@pytest.fixture(scope="module")
def cluster(plugin, folder):
    with start(plugin, folder) as cluster:
        yield cluster


@pytest.fixture
def log(folder):
    return Log(folder / "log")


BEGINNING = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
devices = jax.devices()
here, there = devices[:2], devices[2:]

def failure(call):
    try:
        return str(jax.block_until_ready(call()))
    except jax.errors.JaxRuntimeError as error:
        return str(error).replace(chr(10), " ")
"""


def run(cluster, program):
    done = subprocess.run([sys.executable, "-c", BEGINNING + program], env=cluster.jax_environment(),
                          text=True, stdin=subprocess.DEVNULL, capture_output=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def status(cluster):
    return cluster.cli("status", "--controller", cluster.address).stdout


# ---- the cluster

def test_a_device_has_what_the_plugin_takes_less_a_reserve(cluster):
    """Three quarters of 1 GiB, less 2 %."""
    assert re.findall(r"2 cuda devices, memory .*\((.*) each at most\)", status(cluster)) == ["752.6 MiB"] * 2


def test_bytes_come_back_from_every_device_and_over_islands(cluster, log):
    run(cluster, """
rng = np.random.default_rng(0)
values = [rng.integers(0, 256, shape, np.uint8).view(dtype) for shape, dtype in [
    ((80000,), np.float32), ((300, 700), np.uint8), ((1024, 1024), jnp.bfloat16), ((9000, 1, 8), np.int64)]]

def same(array, value):
    return np.asarray(array).tobytes() == value.tobytes()

jax.config.update("jax_enable_x64", True)
for value in values:
    for device in devices:
        assert same(jax.device_put(value, device), value)
    array = jax.device_put(value, here[0])
    for device in (here[1], there[0], there[1], here[0]):
        array = jax.device_put(array, device)
        assert same(array, value), device

parted = np.arange(40960, dtype=np.float32)
over = lambda devices: NamedSharding(Mesh(np.array(devices), ("x",)), P("x"))
array = jax.device_put(parted, over(here))
assert same(array, parted)
assert same(jax.device_put(array, over(there)), parted)
""")
    to, back = log.lines(r"copy to (\d+) gpu .*"), log.lines(r"copy from (\d+) gpu .*")
    assert {"80000", "210000", str(1 << 20), "72000"} <= set(to) & set(back)
    assert not log.lines("kernel .*")
    assert not log.lines("missing .*")


def test_a_program_compiled_without_a_gpu_is_loaded_and_launched(cluster, log):
    run(cluster, """
program = jax.jit(lambda x: jnp.sin(x) * 2 + 1)
x = jax.device_put(np.arange(1000.0), here[0])
for _ in range(5):
    result = program(x)
    assert result.shape == (1000,) and np.asarray(result).nbytes == 4000
jax.block_until_ready(program(jax.device_put(x, there[1])))
""")
    kernels = log.lines(r"kernel (\S+ gpu \d) stream \d+")
    assert len(kernels) == 6 and len(set(kernels)) == 2 and len(set(kernels[:5])) == 1
    # Compile processes did not open the driver.
    assert log.processes() == {executor.pid for executor in cluster.executors()}


def test_a_program_of_several_kernels_is_a_graph_that_follows_its_arguments(cluster, log):
    run(cluster, """
program = jax.jit(lambda x: (jnp.sin(jnp.cumsum(x)).reshape(100, 10).sum(1) + jnp.sort(x)[:100], x))
value = np.arange(1000.0, dtype=np.float32)
arguments = [jax.device_put(value + i, here[0]) for i in range(3)]
kept = [program(argument) for argument in 2 * arguments]
# Its second result is a copy, and the kernels wrote into nobody's argument.
assert all((np.asarray(copy) == value + i % 3).all() for i, (_, copy) in enumerate(kept))
assert all((np.asarray(x) == value + i).all() for i, x in enumerate(arguments))
""")
    kernels = log.lines(r"kernel (\S+) .*")
    assert len(kernels) >= 6 * 3 and kernels == kernels[:len(kernels) // 6] * 6
    assert log.lines("give graph .*")
    assert not log.lines("missing .*")


def test_what_a_program_only_copies_is_right(cluster, log):
    run(cluster, """
value = np.arange(5000.0, dtype=np.float32)
x = jax.device_put(value, here[1])
twice = jax.jit(lambda x: (x, x))(x)
assert all((np.asarray(y) == value).all() for y in twice)
""")
    assert log.lines(r"copy within (20000) gpu .*")


def test_a_gang_runs_on_each_of_its_gpus_and_a_collective_without_nccl_fails_by_name(cluster, log):
    run(cluster, """
array = jax.device_put(np.arange(8.0), NamedSharding(Mesh(np.array(there), ("x",)), P("x")))
program = jax.jit(lambda x: x * 2)
jax.block_until_ready(program(array))
try:
    jax.block_until_ready(jax.jit(jnp.sum)(array))
    raise SystemExit("it has summed over two GPUs")
except jax.errors.JaxRuntimeError as error:
    assert "Unable to load NCCL library" in str(error), error
jax.block_until_ready(program(array))
""")
    gpus = log.lines(r"kernel loop_multiply_fusion gpu (\d) .*")
    assert len(gpus) == 4 and sorted(set(gpus)) in (["0", "1"], ["2", "3"])


CHAIN = """
steps = [jax.jit(lambda x: jnp.sin(x) + 1), jax.jit(lambda x: jnp.sin(x) * 2), jax.jit(lambda x: -x)]
x = jax.device_put(np.arange(1000.0), here[0])
for step in steps:
    jax.block_until_ready(step(x))
print("ready", flush=True)
input()
for i in range(30):
    x = steps[i % 3](x)
print(np.asarray(x).shape, flush=True)
"""


def test_a_chain_runs_in_the_order_of_its_stream_and_is_fetched_behind_it(cluster, folder, log):
    process = cluster.start_python("-c", BEGINNING + CHAIN)
    assert process.stdout.readline() == "ready\n"
    one_round = log.lines(r"kernel (\S+) .*")
    assert len(one_round) == len(set(one_round)) == 3
    log = Log(folder / "log")
    hold = folder / "hold"
    hold.touch()
    try:
        process.stdin.write("\n")
        process.stdin.flush()
        # The runtime gives the plugin this many launches ahead (pjrt/slots.h).
        wait_for(lambda: len(log.lines("give kernel .*")) == 24, "24 launches behind the first")
        assert not log.lines("kernel .*") and not log.lines("copy from .*")
    finally:
        hold.unlink()
    said, _ = process.communicate(timeout=300)
    assert said == "(1000,)\n"
    assert log.lines(r"kernel (\S+) .*") == one_round * 10
    # Other streams copy small results out: each copy comes after its kernel.
    done = log.lines(r"(kernel|copy from) .*")
    assert all(done[:i].count("kernel") >= done[:i].count("copy from") for i in range(len(done) + 1)), done
    assert done.count("copy from") >= 1
    assert len(set(log.lines(r"kernel \S+ (gpu \d stream \d+)"))) == 1


def test_a_killed_executor_comes_back_and_others_go_on(cluster):
    process = cluster.start_python("-c", BEGINNING + """
value = np.arange(100000.0, dtype=np.float32)  # less stays with the controller
lost, kept = jax.device_put(value, here[0]), jax.device_put(value, there[0])
jax.block_until_ready([lost, kept])
print("ready", flush=True)
input()
try:
    jax.block_until_ready(jax.jit(lambda x: -x)(lost))
except jax.errors.JaxRuntimeError as error:
    print(error)
jax.block_until_ready(jax.jit(lambda x: -x)(kept))
print((np.asarray(jax.device_put(kept, there[1])) == value).all())
""")
    assert process.stdout.readline() == "ready\n"
    before = cluster.executors()
    before[0].signal(signal.SIGKILL)
    said, _ = process.communicate("\n", timeout=300)
    assert "DATA_LOSS" in said and "killed by SIGKILL" in said
    assert said.endswith("True\n")
    wait_for(lambda: "island0 up" in status(cluster), "island0 to come back")
    after = cluster.executors()
    assert after[0].pid != before[0].pid and after[1].pid == before[1].pid
    run(cluster, """
value = np.arange(8.0, dtype=np.float32)
array = jax.device_put(value, here[0])
jax.block_until_ready(jax.jit(lambda x: -x)(array))
assert (np.asarray(jax.device_put(array, there[0])) == value).all()
""")


def test_a_fault_of_a_kernel_is_told_as_the_driver_says_it_and_others_go_on(plugin, tmp_path):
    fault = tmp_path / "fault"
    with start(plugin, tmp_path, FAIRWAY_DRIVER_FAULT=str(fault)) as cluster:
        process = cluster.start_python("-c", BEGINNING + """
step = jax.jit(lambda x: -x)
value = np.arange(100000.0, dtype=np.float32)
here_array, there_array = (jax.device_put(value, island[0]) for island in (here, there))
jax.block_until_ready([step(here_array), step(there_array)])
print("ready", flush=True)
input()
try:
    jax.block_until_ready(step(step(step(here_array))))
except jax.errors.JaxRuntimeError as error:
    print(str(error).replace(chr(10), " "), flush=True)
text = ""
while "DATA_LOSS" not in text:
    try:
        jax.block_until_ready(here_array + 1)
    except jax.errors.JaxRuntimeError as error:
        text = str(error)
print(text.replace(chr(10), " "), flush=True)
input()
print((np.asarray(there_array) == value).all(), jax.block_until_ready(step(there_array)).shape)
""")
        assert process.stdout.readline() == "ready\n"
        before = cluster.executors()
        fault.touch()
        process.stdin.write("\n")
        process.stdin.flush()
        said = process.stdout.readline()
        assert "island island0" in said and "CUDA_ERROR_ILLEGAL_ADDRESS" in said
        assert "exited with code 7 (its devices failed)" in process.stdout.readline()
        fault.unlink()
        assert process.communicate("\n", timeout=300)[0] == "True (100000,)\n"
        wait_for(lambda: "island0 up" in status(cluster), "island0 to come back")
        assert cluster.executors()[0].pid != before[0].pid
        assert cluster.executors()[1].pid == before[1].pid


@pytest.mark.parametrize("donated", [False, True], ids=["kept", "donated"])
def test_a_gang_that_one_of_its_gpus_does_not_launch_fails_whole_and_the_executor_goes_on(plugin, tmp_path, donated):
    """Execute succeeds, and the end on that GPU has the plugin's error. The other GPU does not wait:
    the gang has no collectives, so no NCCL."""
    refuse, log = tmp_path / "refuse", Log(tmp_path / "log")
    with start(plugin, tmp_path, FAIRWAY_DRIVER_REFUSE=str(refuse)) as cluster:
        process = cluster.start_python("-c", BEGINNING + f"""
over = NamedSharding(Mesh(np.array(here), ("x",)), P("x"))
value = np.arange(8.0, dtype=np.float32)
put = lambda: jax.block_until_ready(jax.device_put(value, over))
step = jax.jit(lambda x: x * 2, donate_argnums={(0,) if donated else ()})
jax.block_until_ready(step(put()))
kept, given = put(), put()
print("ready", flush=True)
input()
made = step(given)
print(failure(lambda: made), flush=True)
print(failure(lambda: jax.jit(lambda x: -x)(made)), flush=True)
input()
print(jax.block_until_ready(step(put())).shape, (np.asarray(kept) == value).all())
""")
        assert process.stdout.readline() == "ready\n"
        before = cluster.executors()
        done = len(log.lines("kernel .*"))
        refuse.write_text("1")
        process.stdin.write("\n")
        process.stdin.flush()
        for _ in range(2):  # its results, and results computed from them
            said = process.stdout.readline()
            assert "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES" in said and "DATA_LOSS" not in said, said
        assert log.lines(r"refuse kernel \S+ gpu (\d) .*") == ["1"]
        assert [gpu for gpu in log.lines(r"kernel \S+ gpu (\d) .*")[done:]] == ["0"]
        refuse.unlink()
        assert process.communicate("\n", timeout=300)[0] == "(8,) True\n"
        assert [p.pid for p in cluster.executors()] == [p.pid for p in before]


def test_a_gang_of_which_one_gpu_is_lost_ends_the_executor(plugin, tmp_path):
    """The second GPU is lost while the first goes on."""
    lost = tmp_path / "lost"
    with start(plugin, tmp_path, FAIRWAY_DRIVER_LOST=str(lost)) as cluster:
        process = cluster.start_python("-c", BEGINNING + """
over = NamedSharding(Mesh(np.array(here), ("x",)), P("x"))
step = jax.jit(lambda x: x * 2)
x = jax.block_until_ready(step(jax.device_put(np.arange(8.0, dtype=np.float32), over)))
kept = jax.block_until_ready(jax.device_put(np.arange(100000.0, dtype=np.float32), here[0]))
print("ready", flush=True)
input()
print(failure(lambda: step(x)), flush=True)
input()
print(failure(lambda: np.asarray(kept)), flush=True)
""")
        assert process.stdout.readline() == "ready\n"
        before = cluster.executors()
        lost.write_text("1")
        process.stdin.write("\n")
        process.stdin.flush()
        assert "CUDA_ERROR_ILLEGAL_ADDRESS" in process.stdout.readline()
        wait_for(lambda: [p.pid for p in cluster.executors()][:1] not in ([], [before[0].pid]), "another executor")
        lost.unlink()
        said, _ = process.communicate("\n", timeout=300)
        assert "exited with code 7 (its devices failed)" in said and "device 1 cannot be used any more" in said, said
        assert cluster.executors()[-1].pid == before[1].pid


@pytest.mark.parametrize("call", ["jax.device_put(value, here[0])", "np.asarray(here_array)"])
def test_a_fault_that_a_copy_meets_first_ends_the_executor_too(plugin, tmp_path, call):
    """No program is launched afterwards that would report the fault."""
    fault = tmp_path / "fault"
    with start(plugin, tmp_path, FAIRWAY_DRIVER_FAULT=str(fault)) as cluster:
        process = cluster.start_python("-c", BEGINNING + f"""
value = np.arange(100000.0, dtype=np.float32)
here_array = jax.block_until_ready(jax.jit(lambda x: -x)(jax.device_put(value, here[0])))
print("ready", flush=True)
input()
try:
    jax.block_until_ready({call})
except jax.errors.JaxRuntimeError as error:
    print(str(error).replace(chr(10), " "), flush=True)
input()
try:
    jax.block_until_ready(here_array + 1)
except jax.errors.JaxRuntimeError as error:
    print(str(error).replace(chr(10), " "), flush=True)
""")
        assert process.stdout.readline() == "ready\n"
        before = cluster.executors()
        fault.touch()
        process.stdin.write("\n")
        process.stdin.flush()
        assert "CUDA_ERROR_ILLEGAL_ADDRESS" in process.stdout.readline()
        fault.unlink()
        wait_for(lambda: [p.pid for p in cluster.executors()][:1] not in ([], [before[0].pid])
                 and "island0 up" in status(cluster), "island0 to come back")
        said, _ = process.communicate("\n", timeout=300)
        assert "exited with code 7 (its devices failed)" in said, said
        assert cluster.executors()[1].pid == before[1].pid


@pytest.mark.parametrize("gpus", ["2,3", "GPU-12121212-1212-1212-1212-121212121212,3"])
def test_an_island_has_the_gpus_that_were_named_and_the_fraction_of_their_memory(plugin, tmp_path, gpus):
    """By index or UUID. The plugin counts the GPUs that it shows from 0; the driver does not."""
    flags = ["--plugin-kind=cuda", f"--plugin={plugin}", f"--gpus={gpus}", "--gpu-fraction=0.4"]
    with Cluster(islands=1, devices=2, flags=flags,
                 environment={"LD_LIBRARY_PATH": str(DRIVER), "TMPDIR": str(tmp_path),
                              "FAIRWAY_DRIVER_GPUS": "4", "FAIRWAY_DRIVER_LOG": str(tmp_path / "log")}) as cluster:
        # 0.4 of 1 GiB, which the plugin rounds to 410 MiB, less 2 %.
        assert re.findall(r"2 cuda devices, memory .*\((.*) each at most\)", status(cluster)) == ["401.8 MiB"]
        run(cluster, """
for device in devices:
    assert np.asarray(jax.device_put(np.ones(50000, dtype=np.float32), device)).sum() == 50000
""")
        assert set(Log.all(tmp_path / "log", r"copy \w+ 200000 gpu (\d) .*")) == {"2", "3"}


def test_what_the_plugin_has_no_memory_for_fails_and_the_next_runs(plugin, tmp_path):
    """The accounting allows twice the real memory; the plugin tries for 10 s before it gives up."""
    with start(plugin, tmp_path, "--device-memory=2GiB") as cluster:
        before = cluster.executors()[0].pid
        said = run(cluster, """
def outcome(array):
    try:
        return str(jax.block_until_ready(array).shape)
    except jax.errors.JaxRuntimeError as error:
        return str(error).split(chr(10))[0]

MiB = 1 << 18
held = jax.block_until_ready(jnp.ones(300 * MiB, np.float32))
made, put = jnp.ones(500 * MiB, np.float32), jax.device_put(np.zeros(500 * MiB, np.float32), here[0])
print(outcome(made))
print(outcome(put))
print(outcome(jnp.ones(3, np.float32)))
del held
print(outcome(jnp.ones(500 * MiB, np.float32)))
""").splitlines()
        for line in said[:2]:
            assert line.startswith("RESOURCE_EXHAUSTED: "), said
            assert "Out of memory while trying to allocate 500.00MiB" in line, said
        assert said[2:] == ["(3,)", f"({500 << 18},)"]
        assert cluster.executors()[0].pid == before


def test_who_waits_for_memory_of_one_device_holds_up_nobody_on_another(plugin, tmp_path):
    """The plugin waits 10 s for memory that never comes."""
    with start(plugin, tmp_path, "--device-memory=2GiB") as cluster:
        run(cluster, """
held = jax.block_until_ready(jnp.ones((768 << 18) - (128 << 8), np.float32))
for attempt in range(5):  # where other programs have the processors, twenty may take longer than it waits
    waits = jax.device_put(np.zeros(200 << 8, np.float32), here[0])
    for _ in range(20):
        array = jax.device_put(np.arange(8.0, dtype=np.float32), here[1])
        assert np.asarray(jax.device_put(array, there[0])).sum() == 28
    went_on = not waits.is_ready()
    try:
        jax.block_until_ready(waits)
        raise SystemExit("there was memory")
    except jax.errors.JaxRuntimeError as error:
        assert "RESOURCE_EXHAUSTED" in str(error), error
    if went_on:
        break
assert went_on
""")


def test_what_never_ends_is_ended_by_a_restart_and_others_go_on(cluster, folder, log):
    process = cluster.start_python("-c", BEGINNING + """
value = np.arange(8.0, dtype=np.float32)
kept = jax.block_until_ready(jax.device_put(value, there[0]))
step = jax.jit(lambda x: x + 2)
x = jax.block_until_ready(step(jax.device_put(value, here[0])))
print("ready", flush=True)
input()
print(failure(lambda: step(x)), flush=True)
input()
print((np.asarray(kept) == value).all())
""")
    assert process.stdout.readline() == "ready\n"
    before = cluster.executors()
    hold, log = folder / "hold", Log(folder / "log")
    hold.touch()
    try:
        process.stdin.write("\n")
        process.stdin.flush()
        wait_for(lambda: log.lines("give kernel .*"), "the launch")
        cluster.cli("restart", before[0].flag("name"), "--controller", cluster.address)
        said = process.stdout.readline()
        assert "DATA_LOSS" in said and "it was ended by `fairway restart`" in said, said
        assert not log.lines("kernel .*")
    finally:
        hold.unlink()
    assert process.communicate("\n", timeout=300)[0] == "True\n"
    wait_for(lambda: "island0 up" in status(cluster), "island0 to come back")
    assert cluster.executors()[1].pid == before[1].pid


def test_a_client_that_hangs_ends_at_its_limit_and_is_tried_again(plugin, tmp_path):
    hang, said = tmp_path / "hang", tmp_path / "said"
    hang.touch()
    with open(said, "w") as out:
        worker = subprocess.Popen(
            [BIN / "fairway-worker", "--plugin-kind=cuda", f"--plugin={plugin}", "--devices=1",
             "--controller=127.0.0.1:1", "--start-limit=10s"], stdin=subprocess.DEVNULL, stdout=out, stderr=out,
            env=clean_environment(LD_LIBRARY_PATH=str(DRIVER), TMPDIR=str(tmp_path),
                                  FAIRWAY_DRIVER_GPUS="1", FAIRWAY_DRIVER_HANG=str(hang)))
        try:
            wait_for(lambda: said.read_text().count("has not ended within 10000 ms (--start-limit)") >= 2,
                     "two executors to end")
            assert "exited with code 8 (the plugin did not start in time); starting it again" in said.read_text()
            hang.unlink()
            # Now it gets as far as looking for the controller.
            wait_for(lambda: re.search(r"executor.*127\.0\.0\.1:1", said.read_text()), "an executor to start")
        finally:
            worker.terminate()
            worker.wait(timeout=240)
