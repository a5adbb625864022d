# SPDX-License-Identifier: Apache-2.0
"""run.sh, which is for machines with a GPU: on one without, and its steps over the stand-ins."""

import json
import os
import pathlib
import subprocess
import sys
import tarfile
import zipfile

import pytest
from cluster import BIN, clean_environment, wait_for

HERE = pathlib.Path(__file__).parent
RUN = HERE / "run.sh"
DRIVER = BIN.parent / "tests/driver"
STAND_IN = BIN.parent / "tests/fairway_stand_in_gpu.so"
on_demand = pytest.mark.skipif("FAIRWAY_CUDA_PLUGIN" not in os.environ, reason="on demand: ./dev test gpu_versions")


def run(folder, *arguments, script=RUN, **environment):
    done = subprocess.run([script, *map(str, arguments)], cwd=folder, text=True, capture_output=True, timeout=1200,
                          env=clean_environment(FAIRWAY_PYTHON=sys.executable, TMPDIR=str(folder), **environment))
    results = folder / "gpu-results.json"
    return done, json.loads(results.read_text()) if results.exists() else None


def over_the_stand_ins(folder, *arguments, gpus=1):
    return run(folder, f"--plugin={STAND_IN}", "--quick", "--limit=600", *arguments, LD_LIBRARY_PATH=str(DRIVER),
               FAIRWAY_DRIVER_GPUS=str(gpus))


def processes_of_steps():
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        try:
            if b"\0GPU_STEP=" in b"\0" + (entry / "environ").read_bytes():
                found.append(entry.name)
        except OSError:
            pass
    return found


@pytest.mark.parametrize("driver, why", [
    ({}, "no driver: libcuda.so.1"),
    ({"LD_LIBRARY_PATH": str(DRIVER), "FAIRWAY_DRIVER_GPUS": "0"}, "the driver"),
], ids=["no driver", "no GPU"])
def test_without_a_gpu_it_says_so_and_ends_well(tmp_path, driver, why):
    done, results = run(tmp_path, **driver)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"no GPU here, so nothing is run: {why}")
    assert results["gpus"] == 0 and results["why"].startswith(why) and results["steps"] == []


def test_the_steps_run_and_are_told_in_a_table_and_a_file(tmp_path):
    done, results = over_the_stand_ins(tmp_path, "facts", "probe", "smoke", "conformance", "faults")
    assert done.returncode == 0, done.stdout + done.stderr + json.dumps(results)
    assert [(step["step"], step["outcome"]) for step in results["steps"]] == [
        (name, "ended") for name in ("facts", "probe", "smoke", "conformance", "faults")]
    rows = {row["what"]: row for step in results["steps"] for row in step["rows"]}
    assert rows["within the GPU, read plus written"]["value"] > 0
    for what in ("as JAX on the CPU: training step", "jit", "errors",
                 "a program without end is ended by `fairway restart`"):
        assert rows[what]["ok"] is True, rows[what]
    assert "it takes 4 GPUs" in rows["the suite"]["unit"]
    for what in rows:
        assert f"| {what} |" in done.stdout
    assert all(f"| {name} | ended | " in done.stdout for name in ("facts", "faults"))


@on_demand
def test_what_a_kernel_of_a_client_does_and_what_takes_longer(tmp_path):
    """The stand-in fails a program by its name, instead of a kernel."""
    done, results = over_the_stand_ins(tmp_path, "target", "tuned", "trap", "digits", "busy")
    assert done.returncode == 0, done.stdout + done.stderr + json.dumps(results)
    assert [(step["step"], step["outcome"]) for step in results["steps"]] == [
        (name, "ended") for name in ("target", "tuned", "trap", "digits", "busy")]
    rows = {row["what"]: row for step in results["steps"] for row in step["rows"]}
    assert rows["read from the machine"]["value"] == str(tmp_path / "gpu-results.target.txtpb")
    assert "device_memory_size: 1073741824" in (tmp_path / "gpu-results.target.txtpb").read_text()
    assert len(rows["depthwise, float32: as compiled without a GPU, tuned"]["value"].split(", ")) == 2
    for what in ("a program that is compiled for the file is loaded and runs", "its result is that of JAX on the CPU",
                 "a kernel that traps ends its executor with code 7, which is told; others go on",
                 "a kernel that writes where nothing is: the next program runs",
                 "losses as on the CPU, within 1e-4"):
        assert rows[what]["ok"] is True, rows[what]
    assert rows["a kernel that traps: the client's"]["value"].startswith("none, ")
    assert rows["largest relative difference from the CPU's losses"]["unit"] == "in 10 steps"
    for clients in (1, 2):
        assert rows[f"the GPU is busy, {clients} clients that do not wait"]["value"] > 0
        assert rows[f"the same as NVML says, {clients} clients"]["value"] == "not told"


@on_demand
def test_the_suite_and_the_comparisons_run(tmp_path):
    """JAX on the CPU is what the stand-in is compared with: that says nothing about speed."""
    done, results = over_the_stand_ins(tmp_path, "conformance", "bench", gpus=4)
    assert [(step["step"], step["outcome"]) for step in results["steps"]] == [
        ("conformance", "ended"), ("bench", "ended")], done.stdout + done.stderr + json.dumps(results)
    suite, bench = ({row["what"]: row for row in step["rows"]} for step in results["steps"])
    assert suite["the suite ended well"]["ok"] is True and suite["AGangSumsOverItsDevices"]["value"] == "OK"
    assert sum(row["value"] == "OK" for row in suite.values()) >= 31
    smallest = next(row for what, row in bench.items() if what.startswith("smallest program at parity"))
    assert smallest["unit"].endswith(" of JAX's rate"), smallest
    assert bench["size 16: Fairway, JAX on the CPU"]["unit"] == "ms"
    for what in ("training step, speed", "smallest program, added", "asynchronous step, rate", "fetch each step, added",
                 "programs of 0.33 ms: JAX in one process", "programs of 0.33 ms: 2 clients"):
        assert bench[what]["value"], bench


def test_a_kernel_of_a_client_and_the_target_on_the_real_plugin(plugin, tmp_path):
    """Over the stand-in driver, PTX is compiled in, loaded and launched, and the driver makes a fault by its
    name. Kernels compute nothing there, so no values are checked."""
    done, results = run(tmp_path, f"--plugin={plugin}", "--quick", "target", "trap", LD_LIBRARY_PATH=str(DRIVER),
                        FAIRWAY_DRIVER_GPUS="1")
    target, trap = results["steps"]
    rows = {row["what"]: row for step in (target, trap) for row in step["rows"]}
    assert rows["device_description_str"]["value"] == '"NVIDIA H200"', done.stdout
    assert rows["core_count"]["value"] == "132"
    assert rows["a program that is compiled for the file is loaded and runs"]["ok"] is True, done.stdout
    assert trap["outcome"] == "ended", done.stdout + trap["error"]
    for what in ("a kernel that traps", "a kernel that writes where nothing is"):
        assert rows[f"{what}: the client's"]["value"] == "PTX"
        assert rows[f"{what} ends its executor with code 7, which is told; others go on"]["ok"] is True


def test_a_step_ends_at_its_limit_with_all_that_it_started_and_stops_no_other(tmp_path):
    hang = tmp_path / "hang"
    hang.touch()
    done, results = over_the_stand_ins(
        tmp_path, "--limit=20", f"--pass=FAIRWAY_STAND_IN_HANG={hang}", "probe", "facts")
    assert done.returncode == 1
    assert [(step["step"], step["outcome"]) for step in results["steps"]] == [
        ("probe", "timed out"), ("facts", "ended")], results
    assert "| probe | timed out | 2" in done.stdout
    wait_for(lambda: not processes_of_steps(), "what the step has started to end")


def test_a_step_that_finds_something_wrong_fails_and_stops_no_other(tmp_path):
    done, results = over_the_stand_ins(tmp_path, "--pass=FAIRWAY_STAND_IN_GPUS=0", "probe", "facts")
    assert done.returncode == 1
    assert [step["outcome"] for step in results["steps"]] == ["failed", "ended"]
    assert "No visible GPU devices" in results["steps"][0]["error"]


def test_what_is_wrong_is_said(tmp_path):
    done, _ = run(tmp_path, "no_such_step")
    assert done.returncode == 2 and "no step no_such_step; there are facts, probe" in done.stderr
    done, _ = run(tmp_path, "--plugin=/no/such/plugin.so", LD_LIBRARY_PATH=str(DRIVER))
    assert done.returncode == 2 and "no CUDA plugin: /no/such/plugin.so" in done.stderr
    done, _ = run(tmp_path, "--pack", "/no/such.whl", "out.tar.xz")
    assert done.returncode == 2 and "./dev package wheel makes one" in done.stderr


def test_what_is_packed_runs_by_itself(tmp_path):
    """Here it has the binaries of the build, without a wheel's own libraries."""
    wheel, archive, there = tmp_path / "fairway.whl", tmp_path / "gpu.tar.xz", tmp_path / "there"
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr("fairway/_native/bin/fairway", "#!/bin/sh\n")
    done, _ = run(tmp_path, "--pack", wheel, archive)
    assert done.returncode == 0 and str(archive) in done.stdout, done.stderr
    with tarfile.open(archive) as file:
        file.extractall(there, filter="data")
    assert os.access(there / "fairway-gpu/site/fairway/_native/bin/fairway", os.X_OK)
    assert (there / "fairway-gpu/COMMIT").read_text().strip()
    for brought in ("examples/digits_pipeline.py", "tests/gpu/hardware_digits.py", "tests/gpu/digits.csv.gz"):
        assert (there / "fairway-gpu" / brought).is_file(), brought
    done, results = run(there, script=there / "fairway-gpu/tests/gpu/run.sh")
    assert done.returncode == 0 and results["gpus"] == 0, done.stderr
    assert results["commit"] == (there / "fairway-gpu/COMMIT").read_text().strip()
    done, _ = run(there, f"--plugin={STAND_IN}", "--quick", "facts", script=there / "fairway-gpu/tests/gpu/run.sh",
                  LD_LIBRARY_PATH=str(DRIVER), FAIRWAY_DRIVER_GPUS="1")
    assert done.returncode == 0, done.stderr
