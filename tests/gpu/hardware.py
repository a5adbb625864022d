# SPDX-License-Identifier: Apache-2.0
"""The steps of run.sh, each a process of its own with a time limit; a table and JSON of their findings.

A step prints its findings as lines of JSON while it runs, so that those before its limit are not
lost."""

import argparse
import contextlib
import ctypes
import glob
import importlib.metadata
import json
import os
import pathlib
import re
import secrets
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT / "tests/e2e")]

from cluster import BIN, Cluster, clean_environment, wait_for  # noqa: E402

MARK = "GPU_STEP"  # an environment variable that marks all processes a step has started
CLIENT = HERE / "hardware_client.py"
DIGITS = HERE / "hardware_digits.py"
SMOKE = ROOT / "tests/versions/smoke.py"
CONFORMANCE = ROOT / "build/release/tests/runtime_conformance_test"
NULL = ROOT / "build/release/bench/null_front_door"
# The cases of the smoke matrix for two islands of one device.
OF_ONE_DEVICE = ("put_and_get_of_element_types wide_element_types jit grad_and_vmap ahead_of_time "
                 "checkpointed_gradients errors").split()
MiB = 1 << 20


def found(what, value, unit="", bar="", ok=None):
    """One finding. `ok`: whether `bar` holds; None: it has none."""
    print(json.dumps({"what": what, "value": value, "unit": unit, "bar": bar, "ok": ok}), flush=True)


def require(what, held, value=""):
    found(what, str(value)[-300:] if value else ("yes" if held else "no"), bar="holds", ok=bool(held))


# ---- the GPU

class Driver:
    """NVIDIA's driver; `why` tells why there is no GPU, and is empty otherwise."""

    def __init__(self):
        self.gpus, self.why = 0, ""
        try:
            self.cuda = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            self.why = f"no driver: {error}"
            return
        count = ctypes.c_int()
        for call in (lambda: self.cuda.cuInit(0), lambda: self.cuda.cuDeviceGetCount(ctypes.byref(count))):
            if error := call():
                self.why = f"the driver answers with error {error}"
                return
        self.gpus = count.value
        self.why = "" if self.gpus else "the driver knows no GPU"

    def version(self):
        number = ctypes.c_int()
        self.cuda.cuDriverGetVersion(ctypes.byref(number))
        return f"{number.value // 1000}.{number.value % 1000 // 10}"

    def name(self):
        text = ctypes.create_string_buffer(100)
        self.cuda.cuDeviceGetName(text, 100, 0)
        return text.value.decode()

    def memory(self):
        total = ctypes.c_size_t()
        self.cuda.cuDeviceTotalMem_v2(ctypes.byref(total), 0)
        return total.value


def plugin_of(given):
    """The path of the CUDA plugin; None: there is no plugin."""
    if given:
        return pathlib.Path(given).resolve()
    for folder in sys.path:
        for path in glob.glob(f"{folder}/jax_plugins/xla_cuda1*/xla_cuda_plugin.so"):
            return pathlib.Path(path)
    return None


@contextlib.contextmanager
def cluster(step, islands=1, flags=(), environment=None, share=0.8):
    """Islands of one device, which share the GPU."""
    shared = ["--gpus=" + ",".join(["0"] * islands), f"--gpu-fraction={share / islands:.2f}"]
    with tempfile.TemporaryDirectory() as folder:
        environment = {"TMPDIR": folder, "XDG_STATE_HOME": tempfile.gettempdir(), MARK: os.environ.get(MARK, ""), **step.passed, **(environment or {})}
        with Cluster(islands, 1, ["--plugin-kind=cuda", f"--plugin={step.plugin}", *shared, *flags],
                     environment) as one:
            yield one
            print(one.logs(), file=sys.stderr)


def client(environment, *arguments, timeout=600, script=CLIENT):
    return subprocess.run([sys.executable, str(script), *arguments], env=environment, text=True,
                          stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout)


# ---- the steps

def facts(step):
    driver = step.driver
    found("GPUs", driver.gpus)
    found("GPU", driver.name())
    found("memory", round(driver.memory() / MiB), "MiB")
    found("driver", driver.version(), "CUDA")
    found("plugin", f"{step.plugin.name}, {step.plugin.stat().st_size} bytes")
    for package in importlib.metadata.distributions():
        name = package.metadata["Name"] or ""
        if re.match(r"(jax|jaxlib|jax-cuda|nvidia-)", name):
            found(name, package.version)
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        said = subprocess.run(["nvidia-smi", "--query-gpu=driver_version,name,clocks.max.sm", "--format=csv,noheader"],
                              text=True, capture_output=True, timeout=10).stdout
        found("nvidia-smi", said.strip())
    copy_rates(driver.cuda, 4 * MiB if step.quick else 1 << 30)


def copy_rates(cuda, size):
    """Bandwidths to and from pinned memory, and within the GPU, with the driver alone."""
    context, stream = ctypes.c_void_p(), ctypes.c_void_p()
    here, there, host = ctypes.c_uint64(), ctypes.c_uint64(), ctypes.c_void_p()
    bytes_ = ctypes.c_size_t(size)
    if (cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) or cuda.cuCtxSetCurrent(context)
            or cuda.cuStreamCreate(ctypes.byref(stream), 0)
            or cuda.cuMemAlloc_v2(ctypes.byref(here), bytes_) or cuda.cuMemAlloc_v2(ctypes.byref(there), bytes_)
            or cuda.cuMemHostAlloc(ctypes.byref(host), bytes_, 0)):
        raise RuntimeError("the driver has no memory for copies")
    for what, copy in [
            ("pinned memory to the GPU", lambda: cuda.cuMemcpyHtoDAsync_v2(here, host, bytes_, stream)),
            ("the GPU to pinned memory", lambda: cuda.cuMemcpyDtoHAsync_v2(host, here, bytes_, stream)),
            ("within the GPU, read plus written",
             lambda: cuda.cuMemcpyDtoDAsync_v2(there, here, bytes_, stream))]:
        times = []
        for _ in range(5):
            began = time.perf_counter()
            if copy() or cuda.cuStreamSynchronize(stream):
                raise RuntimeError(f"a copy failed: {what}")
            times.append(time.perf_counter() - began)
        found(what, round(size * (2 if "within" in what else 1) / sorted(times)[2] / 1e9, 1), "GB/s")


def probe(step):
    """Processes without a client compile programs; here these are loaded and run."""
    with cluster(step) as one:
        status = one.cli("status", "--controller", one.address).stdout
        found("memory of a device", (re.search(r"\((.*) each at most\)", status) or ["", "none"])[1])
        done = client(one.jax_environment(), "probe")
        for line in re.findall(r"^(same|other) (.*)$", done.stdout, re.M):
            require(f"as JAX on the CPU: {line[1]}", line[0] == "same")
        require("all programs ran", done.returncode == 0, done.stderr if done.returncode else "")


def tuned(step):
    """Compile processes with clients of their own. Convolutions beside those of the step before, and JAX's."""
    alone = clean_environment(JAX_PLATFORMS="cuda,cpu", XLA_PYTHON_CLIENT_MEM_FRACTION="0.15")
    times = {}
    with cluster(step) as plain:
        times["as compiled without a GPU"] = convolutions(step, plain.jax_environment())
    with cluster(step, flags=["--tune-on-gpu"], share=0.5) as one:
        done = client(one.jax_environment(), "probe")
        for line in re.findall(r"^(same|other) (.*)$", done.stdout, re.M):
            require(f"as JAX on the CPU: {line[1]}", line[0] == "same")
        require("all programs ran", done.returncode == 0, done.stderr if done.returncode else "")
        times["tuned"] = convolutions(step, one.jax_environment())
    if client(alone, "has_gpu").returncode == 0:
        times["JAX in one process"] = convolutions(step, alone)
    for name in times["tuned"]:
        found(f"{name}: {', '.join(times)}", ", ".join(f"{1e6 * each[name]:.0f}" for each in times.values()), "us")


def convolutions(step, environment):
    """Seconds of each, by its name."""
    done = client(environment, "convolutions", *(["--quick"] if step.quick else []))
    if done.returncode != 0:
        raise RuntimeError(done.stderr[-2000:])
    return {name: float(seconds) for seconds, name in re.findall(r"^(\S+) (.*)$", done.stdout, re.M)}


def smoke(step):
    with cluster(step, islands=2) as one:
        done = client(one.jax_environment(), *OF_ONE_DEVICE, script=SMOKE)
        for outcome, name in re.findall(r"^(ok|failed) (\w+)", done.stdout, re.M):
            require(name, outcome == "ok")
        require("all cases of one device ran", done.returncode == 0, done.stderr if done.returncode else "")
    found("cases of several devices", "not run", "one device")


def built(program, *arguments):
    """The command of a program that is built for tests; it takes the libraries that a wheel brings."""
    libraries = BIN.parent / "lib/fairway"
    return ["env", *([f"LD_LIBRARY_PATH={libraries}"] if libraries.is_dir() else []), str(program), *arguments]


def conformance(step):
    if step.driver.gpus < 4:
        found("the suite", "not run", f"it takes 4 GPUs, there are {step.driver.gpus}")
        return
    if not CONFORMANCE.exists():
        found("the suite", "not run", f"{CONFORMANCE} is not built")
        return
    done = subprocess.run(
        built(CONFORMANCE, "--gtest_filter=*/cuda"), text=True, capture_output=True, timeout=600,
        env={**os.environ, "FAIRWAY_GPU_PLUGIN": str(step.plugin)})
    for outcome, name in re.findall(r"\[ +(OK|FAILED|SKIPPED) \] \S+?\.(\w+)/cuda \(", done.stdout):
        require(name, outcome != "FAILED", outcome)
    require("the suite ended well", done.returncode == 0, done.stdout if done.returncode else "")


def is_up(one):
    return "island0 up" in one.cli("status", "--controller", one.address).stdout


def interrupted(one, case, act=lambda: None):
    """Waits until a client is ready for the fault `case`, then calls `act`. Returns its output."""
    process = one.start_python(CLIENT, "fault", case)
    try:
        said = ""
        while "ready\n" not in said:
            line = process.stdout.readline()
            said += line
            if not line:
                return said
        act()
        return said + process.communicate("\n")[0]
    finally:
        process.kill()


def faults(step):
    with cluster(step, islands=2) as one:
        first = one.executors()[0]
        said = interrupted(one, "lost", lambda: os.kill(first.pid, signal.SIGKILL))
        require("kill -9: DATA_LOSS with the cause, the other island goes on",
                "DATA_LOSS" in said and "killed by SIGKILL" in said and "others go on" in said, said)
        wait_for(lambda: is_up(one), "island0 to come back")
        said = interrupted(one, "memory")
        require("more than the device has: RESOURCE_EXHAUSTED, and the next runs",
                "RESOURCE_EXHAUSTED" in said and "others go on" in said, said)
        worker = one.executors()[0].flag("name")
        said = interrupted(one, "endless", lambda: one.cli("restart", worker, "--controller", one.address))
        require("a program without end is ended by `fairway restart`",
                "ended by `fairway restart`" in said and "others go on" in said, said)
        wait_for(lambda: is_up(one), "island0 to come back")


def trap(step):
    """Kernels of a client: one traps, one writes to an address where nothing is."""
    with cluster(step, islands=2, flags=["--allow-raw-kernels"]) as one:
        for case, what in [("trap", "a kernel that traps"), ("far", "a kernel that writes where nothing is")]:
            before = [executor.pid for executor in one.executors()]
            said = interrupted(one, case)
            found(f"{what}: the client's", (re.search(r"^kernel: (.*)$", said, re.M) or ["", "nothing"])[1])
            require(f"{what} ends its executor with code 7, which is told; others go on",
                    "code 7 (its devices failed)" in said and "others go on" in said, said)
            wait_for(lambda: is_up(one), "island0 to come back")
            after = [executor.pid for executor in one.executors()]
            require(f"{what}: a new executor, and the other island's is the same",
                    len(after) == 2 and after[0] != before[0] and after[1] == before[1])
            done = client(one.jax_environment(), "loads")
            require(f"{what}: the next program runs", "loaded (256, 256)" in done.stdout, done.stderr)


def digits(step):
    """Both runs multiply with all bits of float32, which GPUs do only on request. --quick: the stand-ins for
    missing packages are tried on the CPU."""
    steps = 10 if step.quick else 100
    on_cpu = clean_environment(JAX_PLATFORMS="cpu", XLA_FLAGS="--xla_force_host_platform_device_count=8")
    reports = []
    with tempfile.TemporaryDirectory() as folder, cluster(step, islands=2) as one:
        for environment in (one.jax_environment(), on_cpu):
            file = pathlib.Path(folder, f"{len(reports)}.json")
            environment["JAX_DEFAULT_MATMUL_PRECISION"] = "highest"
            own = ["--own"] if step.quick and reports else []
            done = client(environment, *own, "--steps", str(steps), "--quiet", "--json", str(file), script=DIGITS)
            if done.returncode == 3:
                return found("losses", "not run", done.stderr.strip())
            if done.returncode != 0:
                return require("the pipeline runs", False, done.stdout + done.stderr)
            reports.append(json.loads(file.read_text()))
    ours, theirs = (report["losses"] for report in reports)
    worst = max(abs(a - b) / abs(b) for a, b in zip(ours, theirs, strict=True))
    found("loss, first and last", f"{ours[0]:.6f}, {ours[-1]:.6f}")
    found("largest relative difference from the CPU's losses", f"{worst:.1e}", f"in {len(ours)} steps")
    require("losses as on the CPU, within 1e-4", worst <= 1e-4)


def target(step):
    """Keeps the configuration beside the results, so that programs can be compiled elsewhere for it."""
    file = pathlib.Path(step.out).resolve().with_suffix(".target.txtpb")
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [BIN / "fairway-worker", "--plugin-kind=cuda", f"--plugin={step.plugin}", "--gpus=0",
             "--gpu-fraction=0.4", f"--write-target-config={file}"], text=True, capture_output=True,
            stdin=subprocess.DEVNULL, env=clean_environment(TMPDIR=folder, **step.passed))
    require("read from the machine", done.returncode == 0, f"{file}" if done.returncode == 0 else done.stderr)
    text = file.read_text()
    for field in ("device_description_str", "device_memory_size", "core_count", "runtime_version"):
        found(field, (re.search(rf"\b{field}: *(.*)", text) or ["", "not in it"])[1].strip())
    with cluster(step, environment={"FAIRWAY_TARGET_CONFIG": str(file)}) as one:
        done = client(one.jax_environment(), "loads")
        require("a program that is compiled for the file is loaded and runs", "loaded (256, 256)" in done.stdout,
                done.stderr)
        require("its result is that of JAX on the CPU", "\nsame\n" in done.stdout)


class Rounds:
    """A client that measures a case on request; `with` ends it."""

    def __init__(self, environment, quick):
        self.process = subprocess.Popen(
            [sys.executable, "-u", str(CLIENT), "bench", *(["--quick"] if quick else [])], env=environment,
            text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def ask(self, case):
        self.process.stdin.write(case + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"a client ended before it had measured {case}")
        return float(line)


def median(values):
    values = sorted(values)
    middle = len(values) // 2
    return values[middle] if len(values) % 2 else (values[middle - 1] + values[middle]) / 2


def compare(what, ours, theirs, cases, rounds):
    """Medians of seconds per step, measured in turns: {case: (ours, theirs)}."""
    times = {case: ([], []) for case in cases}
    for _ in range(rounds):
        for case in cases:
            times[case][0].append(ours.ask(case))
            times[case][1].append(theirs.ask(case))
    for case, (a, b) in times.items():
        found(f"{case}: Fairway, {what}", f"{1e3 * median(a):.3f}, {1e3 * median(b):.3f}", "ms")
    return {case: (median(a), median(b)) for case, (a, b) in times.items()}


def smallest_at_parity(step, one, what, ours, theirs, rounds):
    """Doubles the size of a program, tanh(x @ x), until as many of it are run a second as by JAX."""
    for size in (2**n for n in (range(4, 9) if step.quick else range(6, 13))):
        a, b = compare(what, ours, theirs, [f"size {size}"], rounds)[f"size {size}"]
        if b / a >= 0.98:
            break
    done = client(one.jax_environment(), "on_the_device", "20" if step.quick else "200", str(size))
    found(f"smallest program at parity{'' if b / a >= 0.98 else ': none, the largest'}",
          round(1e3 * float(done.stdout.split()[1]), 4), f"ms of the GPU, size {size}; {b / a:.3f} of JAX's rate")


def bench(step):
    """--quick: JAX on the CPU stands in for a GPU backend that is missing."""
    rounds = 2 if step.quick else 15
    alone = clean_environment(JAX_PLATFORMS="cuda,cpu", XLA_PYTHON_CLIENT_MEM_FRACTION="0.15")
    what = "JAX in one process"
    has_jax = client(alone, "has_gpu").returncode == 0
    if step.quick and not has_jax:
        alone, what, has_jax = clean_environment(JAX_PLATFORMS="cpu"), "JAX on the CPU", True
    with cluster(step) as one, Rounds(one.jax_environment(), step.quick) as ours:
        if has_jax:
            with Rounds(alone, step.quick) as jax:
                got = compare(what, ours, jax, ["training", "smallest"], rounds)
                smallest_at_parity(step, one, what, ours, jax, rounds)
            speed = got["training"][1] / got["training"][0]
            found("training step, speed", round(speed, 3), "of JAX's", ">= 0.98", speed >= 0.98)
            added = 1e3 * (got["smallest"][0] - got["smallest"][1])
            found("smallest program, added", round(added, 3), "ms", "<= 0.25", added <= 0.25)
        else:
            found("training step", "not measured", "JAX has no GPU backend here")
        compiler = next((path for folder in sys.path for path in glob.glob(f"{folder}/xla_plugins/xla_cpu_pjrt/*.so")),
                        None)
        if NULL.exists() and compiler:
            null_front_door(step, compiler, ours, rounds)
        else:
            found("asynchronous step and fetch", "not measured",
                  f"{NULL} is not built" if compiler else "this Python has no xla-cpu-pjrt, with which it compiles")
        many_clients(step, one, alone if has_jax else None)


def null_front_door(step, compiler, ours, rounds):
    server = subprocess.Popen(built(NULL, "--devices=1", f"--plugin={compiler}"), text=True,
                              stdout=subprocess.PIPE, stdin=subprocess.PIPE)
    try:
        port = int(server.stdout.readline())
        environment = clean_environment(JAX_PLATFORMS="fairway,cpu", FAIRWAY_CONTROLLER=f"127.0.0.1:{port}")
        with Rounds(environment, step.quick) as null:
            got = compare("null front door", ours, null, ["async", "fetch", "smallest"], rounds)
        rate = got["async"][1] / got["async"][0]
        found("asynchronous step, rate", round(rate, 3), "of null's", ">= 0.7", rate >= 0.7)
        added = 1e3 * (got["fetch"][0] - got["fetch"][1])
        found("fetch each step, added", round(added, 3), "ms", "<= 0.5", added <= 0.5)
    finally:
        server.kill()
        server.wait()


def program_of_a_third_of_a_millisecond(step, one):
    """Returns the size of such a program, and the GPU's seconds for it. --quick: of a small one."""
    done = client(one.jax_environment(), "on_the_device", *(["20", "64"] if step.quick else ["500"]))
    size, seconds = done.stdout.split()
    found(f"a program of size {size} takes the GPU", round(1e3 * float(seconds), 4), "ms")
    return int(size), float(seconds)


def rate_of(environment, clients, quick, size, meanwhile=lambda until: None):
    """The rate of programs of this size, of all clients together, which launch without waiting. Calls
    `meanwhile`, once they have begun, with the time at which they end."""
    seconds, start = (0.5, 5) if quick else (5, 15)
    begin = time.time() + start
    running = [subprocess.Popen([sys.executable, str(CLIENT), "rate", str(seconds), str(size), str(begin)],
                                env=environment, text=True, stdout=subprocess.PIPE) for _ in range(clients)]
    time.sleep(max(0, begin - time.time()))
    meanwhile(begin + seconds)
    return sum(float(process.communicate()[0] or "nan") for process in running)


def many_clients(step, one, alone):
    size, _ = program_of_a_third_of_a_millisecond(step, one)
    base = rate_of(alone, 1, step.quick, size) if alone else None
    if base:
        found("programs of 0.33 ms: JAX in one process", round(base), "/s")
    for clients in (1, 2) if step.quick else (1, 4, 8, 16):
        now = rate_of(one.jax_environment(), clients, step.quick, size)
        part = now / base if base else None
        found(f"programs of 0.33 ms: {clients} clients", round(now), "/s", "" if part is None else "aggregate >= 1",
              None if part is None else part >= 1)


class Utilization:
    """NVML's figure for the first GPU: the percentage of its last sample period in which a kernel ran."""

    def __init__(self):
        self.readings = []
        try:
            self.nvml = ctypes.CDLL("libnvidia-ml.so.1")
            self.gpu = ctypes.c_void_p()
            self.there = self.nvml.nvmlInit_v2() == 0 and self.nvml.nvmlDeviceGetHandleByIndex_v2(
                0, ctypes.byref(self.gpu)) == 0 and hasattr(self.nvml, "nvmlDeviceGetUtilizationRates")
        except (OSError, AttributeError):
            self.there = False

    def read(self, until):
        """Starts after a second, because a reading is of the time before it."""
        time.sleep(min(1, max(0, until - time.time())))
        rates = (ctypes.c_uint * 2)()
        while self.there and time.time() < until:
            if self.nvml.nvmlDeviceGetUtilizationRates(self.gpu, rates) == 0:
                self.readings.append(rates[0])
            time.sleep(0.1)


def busy(step):
    """The share of time in which the GPU computes: its time for a program, measured by a loop of them
    within one program, times the number that are run per second."""
    with cluster(step) as one:
        size, seconds = program_of_a_third_of_a_millisecond(step, one)
        for clients in (1, 2) if step.quick else (1, 4):
            told = Utilization()
            part = seconds * rate_of(one.jax_environment(), clients, step.quick, size, told.read)
            found(f"the GPU is busy, {clients} clients that do not wait", round(100 * part, 1), "% of the time", ">= 95",
                  part >= 0.95)
            found(f"the same as NVML says, {clients} clients",
                  median(told.readings) if told.readings else "not told", "% of the time" if told.readings else "")


STEPS = {facts: 20, probe: 40, target: 40, tuned: 120, smoke: 60, conformance: 60, faults: 120, trap: 120, digits: 120,
         busy: 90, bench: 240}  # seconds
NAMES = {step.__name__: step for step in STEPS}


# ---- running them

def end_what_it_left(mark):
    """Ends processes of a step that are still alive after it."""
    for entry in pathlib.Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and f"{MARK}={mark}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                os.kill(int(entry.name), signal.SIGKILL)


def logs_in(folder):
    """The ends of the logs of a cluster whose step was ended."""
    text = ""
    for path in sorted(pathlib.Path(folder).glob("**/*.log")):
        text += f"\n== {path.name}\n{path.read_text(errors='replace')[-4000:]}"
    return text


def run_step(name, limit, arguments):
    """{name, outcome, seconds, limit, rows, error}"""
    mark, began = secrets.token_hex(8), time.monotonic()
    with (tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err,
          tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder):
        process = subprocess.Popen(
            [sys.executable, __file__, "--one", name, *arguments], stdin=subprocess.DEVNULL, stdout=out, stderr=err,
            env={**os.environ, MARK: mark, "TMPDIR": folder})
        try:
            outcome = "ended" if process.wait(limit) == 0 else "failed"
        except subprocess.TimeoutExpired:
            outcome = "timed out"
            process.kill()
            process.wait()
        end_what_it_left(mark)
        out.seek(0), err.seek(0)
        said = err.read()
        rows = []
        for line in out:
            with contextlib.suppress(ValueError):
                rows.append(json.loads(line))
        if outcome == "ended" and any(row["bar"] == "holds" and not row["ok"] for row in rows):
            outcome = "failed"
        return {"step": name, "outcome": outcome, "seconds": round(time.monotonic() - began, 1), "limit": limit,
                "rows": rows, "error": "" if outcome == "ended" else f"{said}{logs_in(folder)}"[-20000:]}


def table(results):
    lines = ["| step | what | value | bar |", "|---|---|---|---|"]
    for result in results:
        lines.append(f"| {result['step']} | {result['outcome']} | {result['seconds']} s of {result['limit']} | |")
        for row in result["rows"]:
            held = {None: "", True: " holds", False: " MISSED"}[row["ok"]]
            bar = f"{'' if row['bar'] == 'holds' else row['bar']}{held}".strip()
            value = " ".join(f"{row['value']} {row['unit']}".split())
            lines.append(f"| | {row['what']} | {value} | {bar} |".replace("\n", " "))
    return "\n".join(lines)


def commit():
    with contextlib.suppress(OSError):
        return (ROOT / "COMMIT").read_text().strip()
    with contextlib.suppress(OSError):
        return subprocess.run(["git", "-C", str(ROOT), "rev-parse", "HEAD"], text=True,
                              capture_output=True).stdout.strip()
    return "unknown"


def main():
    parser = argparse.ArgumentParser(prog="run.sh", description="What only a machine with a GPU can show.")
    parser.add_argument("steps", nargs="*", metavar="STEP", help=", ".join(NAMES))
    parser.add_argument("--plugin", help="the CUDA plugin; default: that of the packages of this Python")
    parser.add_argument("--out", default="gpu-results.json", help="the file of the results")
    parser.add_argument("--quick", action="store_true", help="a few rounds, to see that the steps work")
    parser.add_argument("--limit", type=float, help="seconds for each step, in the place of its own limit")
    parser.add_argument("--pass", dest="passed", action="append", default=[], metavar="NAME=VALUE",
                        help="a variable of the environment for the clusters, for tests")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if unknown := [name for name in options.steps if name not in NAMES]:
        parser.error(f"no step {', '.join(unknown)}; there are {', '.join(NAMES)}")
    options.driver = Driver()
    options.plugin = plugin_of(options.plugin)
    if options.one:
        options.passed = dict(setting.split("=", 1) for setting in options.passed)
        NAMES[options.steps[0]](options)
        return 0
    report = {"commit": commit(), "gpus": options.driver.gpus, "steps": []}
    if options.driver.why:
        report["why"] = options.driver.why
        print(f"no GPU here, so nothing is run: {options.driver.why}")
    elif options.plugin is None or not options.plugin.exists():
        print(f"no CUDA plugin: {options.plugin or 'jax_plugins/xla_cuda1*/xla_cuda_plugin.so is not in the packages of'}"
              f"{'' if options.plugin else ' ' + sys.executable}; pip install jax-cuda13-pjrt, or give --plugin",
              file=sys.stderr)
        return 2
    else:
        arguments = [f"--plugin={options.plugin}", f"--out={options.out}", *(f"--pass={setting}" for setting in options.passed),
                     *(["--quick"] if options.quick else [])]
        for name in options.steps or NAMES:
            print(f"-- {name}", file=sys.stderr, flush=True)
            report["steps"].append(run_step(name, options.limit or STEPS[NAMES[name]], arguments))
        print(table(report["steps"]))
    pathlib.Path(options.out).write_text(json.dumps(report, indent=1) + "\n")
    return int(any(result["outcome"] != "ended" for result in report["steps"]))


if __name__ == "__main__":
    sys.exit(main())
