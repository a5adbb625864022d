# SPDX-License-Identifier: Apache-2.0
"""Faults of the cluster's own processes, without clients."""

import contextlib
import os
import pathlib
import resource
import signal
import subprocess

import pytest

from cluster import BIN, wait_for


def executor_of(cluster, worker):
    (found,) = [e for e in cluster.status()["executors"] if e["worker"] == worker]
    return found


def steady(executor):
    """What stays the same of an executor that is left alone, however busy the machine is."""
    passing = ("round_trip_us", "stalled_ms", "still_ms", "open_commands", "open_command_bytes")
    return {name: value for name, value in executor.items() if name not in passing}


def role(process):
    """"supervisor", "executor" or "compiler"; empty for a process that is no worker."""
    if process.program != "fairway-worker":
        return ""
    roles = [a.partition("=")[2] for a in process.arguments if a.startswith("--role=")]
    return roles[0] if roles else "supervisor"


def pid_of(cluster, worker, which):
    """The process of that role, or None."""
    found = [p.pid for p in cluster.processes()
             if role(p) == which and f"--name={worker}" in p.arguments]
    assert len(found) <= 1, found
    return found[0] if found else None


def islands_up(cluster):
    return sum(i["up"] for i in cluster.status()["islands"])


def controller_pid(cluster):
    (found,) = [p.pid for p in cluster.processes() if p.program == "fairway-controller"]
    return found


def test_the_processes_take_the_hard_limit_of_open_files(new_cluster):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        cluster = new_cluster(1, 1, ("--runtime=host",))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    pids = [controller_pid(cluster), pid_of(cluster, "w0", "supervisor"),
            pid_of(cluster, "w0", "executor")]
    assert [resource.prlimit(pid, resource.RLIMIT_NOFILE) for pid in pids] == [(hard, hard)] * 3


def test_executors_and_compile_processes_are_walled_in(new_cluster):
    cluster = new_cluster(1, 1)
    supervisor = pid_of(cluster, "w0", "supervisor")
    for name in ("executor", "compiler"):
        pid = wait_for(lambda: walled(supervisor, name), f"the {name} behind its walls")
        assert resource.prlimit(pid, resource.RLIMIT_CORE) == (0, 0)
    assert "refuses to confine" not in cluster.logs()


def walled(supervisor, name):
    """The child of that role that has given up new privileges and has a filter of system calls."""
    for task in pathlib.Path(f"/proc/{supervisor}/task").iterdir():
        with contextlib.suppress(OSError):  # a thread or a process that has ended
            for pid in map(int, (task / "children").read_text().split()):
                process = pathlib.Path(f"/proc/{pid}")
                if f"--role={name}" in (process / "cmdline").read_text().split("\0"):
                    status = (process / "status").read_text()
                    if "NoNewPrivs:\t1" in status and "Seccomp:\t2" in status:
                        return pid
    return None


def test_a_killed_executor_is_reported_with_its_signal_and_comes_back(new_cluster):
    cluster = new_cluster(islands=2, devices=1)
    before = executor_of(cluster, "w0")

    others = steady(executor_of(cluster, "w1"))
    os.kill(pid_of(cluster, "w0", "executor"), signal.SIGKILL)
    wait_for(lambda: executor_of(cluster, "w0")["incarnation"] != before["incarnation"]
             and executor_of(cluster, "w0")["up"], "a new executor")
    after = executor_of(cluster, "w0")
    assert "signal 9" in after["last_error"] or "SIGKILL" in after["last_error"]
    assert after["id"] == before["id"]
    assert [d["id"] for d in after["devices"]] == [d["id"] for d in before["devices"]]
    assert steady(executor_of(cluster, "w1")) == others
    assert islands_up(cluster) == 2


def test_a_killed_worker_takes_its_executor_along_and_is_started_again(new_cluster):
    cluster = new_cluster(islands=2, devices=1)
    before = executor_of(cluster, "w0")
    old = pid_of(cluster, "w0", "executor")
    os.kill(pid_of(cluster, "w0", "supervisor"), signal.SIGKILL)
    wait_for(lambda: not os.path.exists(f"/proc/{old}"), "the executor to follow its worker")
    wait_for(lambda: executor_of(cluster, "w0")["incarnation"] != before["incarnation"]
             and executor_of(cluster, "w0")["up"]
             and executor_of(cluster, "w0")["supervisor_connected"], "a new worker")
    assert islands_up(cluster) == 2


def test_a_killed_controller_is_started_again_and_the_workers_register_anew(new_cluster):
    cluster = new_cluster(islands=2, devices=1)
    incarnation = cluster.status()["incarnation"]
    workers = [pid_of(cluster, w, "executor") for w in ("w0", "w1")]
    os.kill(controller_pid(cluster), signal.SIGKILL)

    def back():
        done = cluster.cli("status", "--controller", cluster.address, check=False)
        return (done.returncode == 0 and islands_up(cluster) == 2
                and all(e["supervisor_connected"] for e in cluster.status()["executors"]))

    wait_for(back, "both islands at a new controller, with their supervisors")
    assert cluster.status()["incarnation"] != incarnation
    assert [pid_of(cluster, w, "executor") for w in ("w0", "w1")] == workers  # they live on


def test_a_stopped_executor_is_lost_at_its_deadline_killed_and_replaced(new_cluster):
    cluster = new_cluster(
        islands=2, devices=1, environment={"FAIRWAY_EXECUTOR_DEADLINE": "10s"}
    )
    before = executor_of(cluster, "w0")
    os.kill(pid_of(cluster, "w0", "executor"), signal.SIGSTOP)
    wait_for(lambda: executor_of(cluster, "w0")["up"]
             and executor_of(cluster, "w0")["incarnation"] != before["incarnation"],
             "a new executor")
    assert "was silent for 10.0 s" in executor_of(cluster, "w0")["last_error"]
    assert executor_of(cluster, "w1")["last_error"] == ""
    assert all(pid_of(cluster, w, "executor") for w in ("w0", "w1"))


def test_a_stopped_executor_is_shown_as_stalled_and_loses_nothing_when_it_goes_on(new_cluster):
    cluster = new_cluster(islands=1, devices=1)
    before = executor_of(cluster, "w0")
    executor = pid_of(cluster, "w0", "executor")
    os.kill(executor, signal.SIGSTOP)
    try:
        wait_for(lambda: executor_of(cluster, "w0").get("stalled_ms"), "the executor to be shown as stalled")
        assert "stalled for" in cluster.cli("status", "--controller", cluster.address).stdout
        assert executor_of(cluster, "w0")["up"]
    finally:
        os.kill(executor, signal.SIGCONT)
    wait_for(lambda: not executor_of(cluster, "w0").get("stalled_ms"), "the executor to go on")
    after = executor_of(cluster, "w0")
    assert after["up"] and after["incarnation"] == before["incarnation"] and after["last_error"] == ""


def test_a_stopped_executor_whose_worker_is_stopped_too_is_fenced_when_it_wakes(new_cluster):
    cluster = new_cluster(
        islands=1, devices=1, environment={"FAIRWAY_EXECUTOR_DEADLINE": "10s"}
    )
    before = executor_of(cluster, "w0")
    executor = pid_of(cluster, "w0", "executor")
    supervisor = pid_of(cluster, "w0", "supervisor")
    os.kill(supervisor, signal.SIGSTOP)
    os.kill(executor, signal.SIGSTOP)
    try:
        wait_for(lambda: not executor_of(cluster, "w0")["up"], "the executor to be lost")
        os.kill(executor, signal.SIGCONT)
        # Its supervisor is stopped, so nobody reaps it: a zombie counts as ended.
        wait_for(lambda: ") Z " in open(f"/proc/{executor}/stat").read(), "the fenced one to end")
        assert not executor_of(cluster, "w0")["up"]
    finally:
        os.kill(supervisor, signal.SIGCONT)
    wait_for(lambda: executor_of(cluster, "w0")["up"]
             and executor_of(cluster, "w0")["incarnation"] != before["incarnation"],
             "a new executor")


def test_a_second_worker_with_the_same_name_is_refused_and_the_first_goes_on(new_cluster):
    cluster = new_cluster(islands=1, devices=1)
    before = steady(executor_of(cluster, "w0"))
    link = cluster.status()["link_address"]
    (first,) = [p for p in cluster.processes() if p.pid == pid_of(cluster, "w0", "supervisor")]
    plugin = [a for a in first.arguments if a.startswith("--plugin")]
    done = subprocess.run(
        [BIN / "fairway-worker", "--name=w0", "--island=island0", f"--controller={link}",
         "--devices=1", *plugin],
        env=cluster.environment, text=True, capture_output=True, timeout=240,
    )
    assert done.returncode == 4, done.stderr
    assert "worker 'w0' is already connected" in done.stderr
    assert steady(executor_of(cluster, "w0")) == before


@pytest.mark.parametrize("victim", ["controller", "worker", "executor"])
def test_down_works_after_something_was_killed(new_cluster, victim):
    cluster = new_cluster(islands=1, devices=1)
    pid = {
        "controller": controller_pid,
        "worker": lambda c: pid_of(c, "w0", "supervisor"),
        "executor": lambda c: pid_of(c, "w0", "executor"),
    }[victim](cluster)
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: cluster.cli("status", "--controller", cluster.address, check=False)
             .returncode == 0 and islands_up(cluster) == 1 and not os.path.exists(f"/proc/{pid}"),
             "the cluster to be whole again")
    assert cluster.down().returncode == 0
    assert cluster.processes() == []
