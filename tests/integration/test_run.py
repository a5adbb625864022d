# SPDX-License-Identifier: Apache-2.0
"""`fairway run`: dataflow programs from files."""

import os
import signal
import subprocess

import numpy as np
import pytest

import affine
from cluster import BIN, EXAMPLES, clean_environment, cpu_environment, run_python, wait_for
from test_lifecycle import controller_pid
from test_sdk import nothing_left

PROGRAM = EXAMPLES / "programs" / "two_stages.txtpb"


def command(cluster, *arguments):
    return [BIN / "fairway", "run", f"--controller={cluster.address}", *map(str, arguments)]


def run(cluster, *arguments):
    return subprocess.run(
        command(cluster, *arguments),
        env=clean_environment(), text=True, capture_output=True, stdin=subprocess.DEVNULL, timeout=240)


def ends_well(done):
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def fails(done):
    assert done.returncode == 1, done.stdout + done.stderr
    (line,) = done.stderr.splitlines()
    return line


@pytest.mark.parametrize("runtime", ["host", "sim"])
def test_the_example_runs_and_prints_its_results(new_cluster, runtime):
    cluster = new_cluster(2, 2, (f"--runtime={runtime}",))
    doubled, total = ends_well(run(cluster, PROGRAM, "--arg=x=1.5"))
    value = {"host": "3", "sim": "0"}[runtime]
    assert doubled == f"doubled  f32[8]  [{', '.join([value] * 8)}]"
    assert total == f"sum  f32[4]  [{', '.join([str(2 * int(value))] * 4)}]"
    lines = ends_well(run(cluster, PROGRAM, "--repeat=20", "--slice=b=island0"))
    assert len(lines) == 3 and lines[2].startswith("20 runs in ")
    nothing_left(cluster)


def test_arrays_come_from_files_and_go_to_files(new_cluster, tmp_path):
    cluster = new_cluster(2, 2, ("--runtime=host",))
    x, out = np.arange(8, dtype=np.float32), tmp_path / "sum.npy"
    np.save(tmp_path / "x.npy", x)
    lines = ends_well(run(cluster, PROGRAM, f"--arg=x={tmp_path / 'x.npy'}", f"--out=sum={out}"))
    assert lines[1] == f"sum  f32[4]  {out}"
    assert np.array_equal(np.load(out), 2 * (x[:4] + x[4:]))
    np.save(tmp_path / "x.npy", x[:4])
    line = fails(run(cluster, PROGRAM, f"--arg=x={tmp_path / 'x.npy'}"))
    assert "argument 'x'" in line and "is f32[4], the program takes f32[8]" in line


def test_mistakes_are_one_line_that_says_where(new_cluster, tmp_path):
    cluster = new_cluster(1, 2, ("--runtime=host",))
    assert "slice 'b' has no island" in fails(run(cluster, PROGRAM))
    assert "the program has x" in fails(run(cluster, PROGRAM, "--slice=b=0", "--arg=z=1"))
    text = PROGRAM.read_text()
    wrong = tmp_path / "wrong.txtpb"
    wrong.write_text(text.replace("slice: 1 inputs { node: 1 }", "slice: 1 inputs { node: 5 }"))
    number = 1 + next(i for i, l in enumerate(text.splitlines()) if '"sum" compute' in l)
    line = fails(run(cluster, wrong, "--slice=b=0"))
    assert f'node 2 "sum" ({wrong}:{number})' in line
    wrong.write_text("name: 'x'\nslice { }\n")
    assert fails(run(cluster, wrong)).startswith(f"fairway run: {wrong}:2:")
    assert "cannot read" in fails(run(cluster, tmp_path / "none"))
    assert run(cluster).returncode == 2


def test_a_controller_that_is_gone_is_not_the_files_fault(new_cluster):
    cluster = new_cluster(2, 2, ("--runtime=host",))
    running = subprocess.Popen(
        command(cluster, PROGRAM, "--repeat=100000000"),
        env=clean_environment(), text=True, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
    wait_for(lambda: cluster.metrics().total("fairway_gangs_launched_total") > 0, "the first run")
    os.kill(controller_pid(cluster), signal.SIGKILL)
    line = running.communicate(timeout=240)[1]
    assert running.returncode == 1
    assert line.startswith(
        f"fairway run: the connection to the controller at {cluster.address} was lost: "), line
    assert "a session does not come back: " in line and "fairway status" in line, line
    status = ("status", "--controller", cluster.address)
    wait_for(lambda: cluster.cli(*status, check=False).returncode == 0,
             "a new controller, which `down` needs")


def test_stablehlo_runs_on_pjrt(new_cluster, tmp_path):
    code, program = tmp_path / "f.bytecode", tmp_path / "affine.txtpb"
    run_python("-c", affine.EXPORT, code, env=cpu_environment(1))
    program.write_text(affine.PROGRAM)
    cluster = new_cluster(1, 1)
    assert ends_well(run(cluster, program, f"--code=f={code}", "--arg=x=3")) == [
        "y  f32[4]  [7, 7, 7, 7]"]
