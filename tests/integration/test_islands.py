# SPDX-License-Identifier: Apache-2.0
"""Islands of several executors: sums over processes, and the consequences when one is killed."""

import re
import signal
import subprocess

import pytest

from cluster import BIN, clean_environment, wait_for

PROGRAM = BIN.parent / "tests" / "islands_program"


def start(cluster, *arguments):
    return subprocess.Popen(
        [PROGRAM, cluster.address, *map(str, arguments)], env=clean_environment(), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def ends_well(client):
    text = client.communicate(timeout=240)[0]
    assert client.returncode == 0, text
    return text


def executor(cluster, worker):
    return next(e for e in cluster.executors() if e.flag("name") == worker)


@pytest.mark.parametrize("runtime", ["host", "sim"])
@pytest.mark.parametrize("workers", [2, 4])
def test_sums_are_right_on_two_islands_and_arrays_go_between_them(new_cluster, workers, runtime):
    cluster = new_cluster(2, 4, (f"--runtime={runtime}", f"--workers-per-island={workers}"))
    assert len(cluster.executors()) == 2 * workers
    ends_well(start(cluster, "sums"))


def test_islands_of_other_numbers_of_executors_beside_each_other(new_cluster):
    cluster = new_cluster(1, 3, ("--runtime=host", "--workers-per-island=3"))
    link = cluster.executors()[0].flag("controller")
    workers = [
        subprocess.Popen(
            [BIN / "fairway-worker", f"--controller={link}", f"--name=x{i}", "--island=other",
             "--island-workers=2", "--devices=2", "--runtime=host"],
            env=cluster.environment, stderr=subprocess.DEVNULL)
        for i in (0, 1)
    ]
    try:
        wait_for(lambda: cluster.metrics().total("fairway_island_up") == 2, "the other island")
        ends_well(start(cluster, "sums"))
    finally:
        for worker in workers:
            worker.terminate()
            worker.wait()


@pytest.mark.parametrize("runtime", ["host", "sim"])
def test_an_island_over_three_hosts(new_cluster, runtime):
    cluster = new_cluster(1, 1, (f"--runtime={runtime}",))
    link = cluster.executors()[0].flag("controller")
    # Addresses of this host, which count as hosts; two executors are neighbours.
    workers = [
        subprocess.Popen(
            [BIN / "fairway-worker", f"--controller={link}", f"--name=x{i}", "--island=wide",
             "--island-workers=4", "--devices=1", f"--runtime={runtime}",
             f"--data-bind=127.0.0.{host}:0"],
            env=cluster.environment, stderr=subprocess.DEVNULL)
        for i, host in enumerate((1, 2, 3, 2))
    ]
    try:
        wait_for(lambda: cluster.metrics().total("fairway_island_up") == 2, "the wide island")
        ends_well(start(cluster, "sums"))
        client = start(cluster, "run", 1)
        assert client.stdout.readline() == "running\n"
        executor(cluster, "x2").signal(signal.SIGKILL)
        text = ends_well(client)
        assert re.search(r"LOST DATA_LOSS: .*wide.*x2.*SIGKILL", text), text
        assert "AGAIN OK" in text
    finally:
        for worker in workers:
            worker.terminate()
            worker.wait()


@pytest.mark.parametrize("runtime", ["host", "sim"])
@pytest.mark.parametrize("workers", [2, 4])
def test_one_executor_that_is_killed_fails_its_gangs_and_comes_back(new_cluster, workers, runtime):
    cluster = new_cluster(2, 4, (f"--runtime={runtime}", f"--workers-per-island={workers}"))
    here, there = start(cluster, "run", 0), start(cluster, "run", 1)
    for client in (here, there):
        assert client.stdout.readline() == "running\n"
    executor(cluster, f"w0.{workers - 1}").signal(signal.SIGKILL)
    text = ends_well(here)
    # The error names the lost executor and how it died; the other island saw nothing of it.
    assert re.search(rf"LOST DATA_LOSS: .*island0.*w0\.{workers - 1}.*SIGKILL", text), text
    assert "AGAIN OK" in text
    assert there.poll() is None
    executor(cluster, "w1.0").signal(signal.SIGKILL)
    assert re.search(r"LOST DATA_LOSS: .*island1.*w1\.0.*SIGKILL", ends_well(there))
    ends_well(start(cluster, "sums"))


@pytest.mark.parametrize("runtime", ["host", "sim"])
@pytest.mark.parametrize("workers", [2, 4])
def test_brief_steps_of_programs_are_right_and_fail_with_an_executor_that_is_killed(
        new_cluster, workers, runtime):
    cluster = new_cluster(1, 4, (f"--runtime={runtime}", f"--workers-per-island={workers}"))
    client = start(cluster, "loops", 0)
    assert client.stdout.readline() == "running\n"
    executor(cluster, "w0.1").signal(signal.SIGKILL)
    text = ends_well(client)
    assert re.search(r"LOST DATA_LOSS: .*island0.*w0\.1.*SIGKILL", text), text
    assert "AGAIN OK" in text


def start_restart(cluster, worker):
    return subprocess.Popen(
        [BIN / "fairway", "restart", worker, "--controller", cluster.address], text=True,
        env=cluster.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def ends_up(restart, island):
    out, err = restart.communicate(timeout=240)
    assert (restart.returncode, out, err) == (0, f"{island} is up again\n", "")


def complaints(cluster):
    """The lines in the logs of the controller and the workers that are not routine.

    A busy machine may keep a process from its processor, which says nothing of the restart.
    """
    busy = re.compile("held the event loop|is stalled: it was silent|did not run for")
    written, _, _ = cluster.logs().rpartition("\n")
    lines = [line.partition("{") for line in written.splitlines() if line.endswith("}")]  # others may be half there
    return [name + json for name, _, json in lines
            if '"level":"info"' not in json and '"level":"debug"' not in json
            and not busy.search(json)]


@pytest.mark.parametrize("workers", [1, 2])
def test_restarts_at_once_end_well_and_are_no_errors_in_any_log(new_cluster, workers):
    cluster = new_cluster(2, 2, ("--runtime=host", f"--workers-per-island={workers}"))
    of_island0 = ["w0"] if workers == 1 else ["w0.0", "w0.1"]
    known = complaints(cluster)
    for _ in range(3):
        client = start(cluster, "run", 0)
        assert client.stdout.readline() == "running\n"
        for restart in [start_restart(cluster, worker) for worker in of_island0 * 3]:
            ends_up(restart, "island0")
        text = client.communicate(timeout=240)[0]
        assert re.search("LOST DATA_LOSS: .*island0.*`fairway restart`", text), text
    ends_well(start(cluster, "sums"))
    assert complaints(cluster) == known
    log = cluster.logs()
    assert "the executor of worker " + of_island0[-1] + " (island0) is started anew" in log
    assert "was lost" not in log


def test_a_restart_joins_one_that_is_under_way(new_cluster):
    cluster = new_cluster(1, 2, ("--runtime=host", "--workers-per-island=2"))
    before = {e.flag("name"): e.pid for e in cluster.executors()}
    (supervisor,) = [p for p in cluster.processes() if p.program == "fairway-worker"
                     and p.flag("name") == "w0.1" and p.flag("role") is None]
    supervisor.signal(signal.SIGSTOP)
    try:
        first = start_restart(cluster, "w0.1")
        up = lambda: {e["worker"]: e["up"] for e in cluster.status()["executors"]}
        wait_for(lambda: up() == {"w0.0": True, "w0.1": False}
                 and executor(cluster, "w0.0").pid != before["w0.0"], "one of two to be back")
        back = executor(cluster, "w0.0").pid
        others = [start_restart(cluster, worker) for worker in ("w0.0", "w0.1")]
        wait_for(lambda: cluster.logs().count("a restart of island0 is under way already") == 2,
                 "both to join the first")
        assert [restart.poll() for restart in (first, *others)] == [None] * 3
    finally:
        supervisor.signal(signal.SIGCONT)
    for restart in (first, *others):
        ends_up(restart, "island0")
    assert executor(cluster, "w0.0").pid == back  # it was not ended a second time


def test_pjrt_keeps_to_one_process_for_each_island():
    done = subprocess.run(
        [BIN / "fairway", "up", "--devices=2", "--workers-per-island=2"], env=clean_environment(),
        text=True, capture_output=True, stdin=subprocess.DEVNULL, timeout=60)
    assert done.returncode == 2
    assert "an XLA CPU client cannot span processes" in done.stderr
