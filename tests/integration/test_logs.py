# SPDX-License-Identifier: Apache-2.0
"""`fairway logs` where each process logs to its own standard error: who gets what, and what a process costs that is stopped."""

import json
import os
import re
import signal

import pytest

from clinic import build
from cluster import wait_for
from test_diagnose import unpack
from test_settings import Daemon, run
from test_tokens import Cluster

SECRET = "swordfish9"
SAYING = f"""
#include <stdio.h>
__attribute__((constructor)) static void say(void) {{ fputs("planted password={SECRET} end\\n", stderr); }}
"""


class Island(Cluster):
    """Two workers in directories of their own; processes of w0 write a secret."""

    def __init__(self, folder):
        super().__init__(folder)
        saying = build(folder, "saying", SAYING)
        self.workers = {}
        for name in ("w0", "w1"):
            issued = self.directory / name
            assert run("fairway", "issue", name, "--from", str(self.directory)).returncode == 0
            (folder / f"host of {name}").mkdir()
            self.workers[name] = Daemon(
                folder / f"host of {name}" / "worker.log", "fairway-worker", f"--name={name}", f"--island={name}",
                "--runtime=host", f"--controller=127.0.0.1:{self.link}", f"--tls-ca={issued}/ca.pem",
                f"--tls-certificate={issued}/worker.pem", f"--tls-key={issued}/worker.key",
                environment={"LD_PRELOAD": str(saying)} if name == "w0" else {})
            self.daemons.append(self.workers[name])
        self.controller.wait("islands up: 2")

    def logs(self, *words, token="admin.token"):
        return self.do("logs", *words, token=token)

    def pid(self, name):
        return self.workers[name].process.pid


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    out = Island(tmp_path_factory.mktemp("logs"))
    yield out
    for daemon in reversed(out.daemons):
        if daemon.process.poll() is None:
            daemon.stop()


def test_the_last_lines_of_a_daemon_and_its_children_are_had_from_wherever_it_runs(cluster):
    own = cluster.logs("controller")
    assert own.returncode == 0 and own.stderr == "" and "listening on 127.0.0.1" in own.stdout
    done = cluster.logs("w1")
    assert done.returncode == 0 and done.stderr == "", done.stderr
    records = [json.loads(line) for line in done.stdout.splitlines()]
    assert {"supervisor", "executor"} <= {record["component"] for record in records}
    assert {record["worker"] for record in records} == {"w1"}
    assert cluster.logs("w1", "-n", "1").stdout.count("\n") == 1
    everything = cluster.logs()
    assert everything.returncode == 0
    assert [name for name in dict.fromkeys(line.split()[0] for line in everything.stdout.splitlines())] == ["controller", "w0", "w1"]
    unknown = cluster.logs("w7")
    assert unknown.returncode == 1
    assert unknown.stderr == "fairway logs: no process 'w7'; there are: controller, w0, w1\n"


def test_json_says_on_which_host_each_process_is(cluster):
    done = cluster.logs("-o", "json", "-n", "2")
    assert done.returncode == 0, done.stderr
    processes = json.loads(done.stdout)["processes"]
    assert [process["process"] for process in processes] == ["controller", "w0", "w1"]
    for process in processes:
        assert process["host"] == os.uname().nodename and process["path"] == "" and process["error"] == ""
        assert len(process["lines"]) == 2 and not process["older"]


def test_a_secret_that_an_executor_writes_is_not_shown(cluster):
    def shown():
        out = cluster.logs("w0").stdout
        return out if "planted" in out else None

    out = wait_for(shown, "what the executor of w0 wrote")
    assert SECRET in cluster.workers["w0"].log.read_text()
    assert SECRET not in out and "planted password=[left out] end\n" in out


def test_operators_see_logs_and_viewers_and_users_do_not(cluster):
    operator, _ = cluster.make("operator")
    assert cluster.logs("w1", token=operator).returncode == 0
    for role, words in (("viewer", []), ("user", ["--tenant=red"])):
        token, number = cluster.make(role, *words)
        for process in ([], ["w1"], ["controller"]):
            done = cluster.logs(*process, token=token)
            assert done.returncode == 1 and done.stdout == ""
            assert re.match(rf"fairway logs: token {number} \(role {role}.*\) may not read logs; that takes the role admin or "
                            "operator", done.stderr), done.stderr
        assert any(line.get("token") == int(number) for line in cluster.audit("refused"))


def test_a_worker_that_is_stopped_is_named_and_the_others_are_shown(cluster):
    os.kill(cluster.pid("w1"), signal.SIGSTOP)
    try:
        named = rf"worker w1 \(host {re.escape(os.uname().nodename)}, pid {cluster.pid('w1')}\) has (not answered within 3 s|been silent for \d+ s)"
        for _ in range(2):
            done = cluster.logs()
            assert done.returncode == 4 and re.fullmatch(f"fairway logs: {named}.*\n", done.stderr), done.stderr
            assert {line.split()[0] for line in done.stdout.splitlines()} == {"controller", "w0"}
        alone = cluster.logs("w1")
        assert alone.returncode == 1 and re.fullmatch(f"fairway logs: {named}.*\n", alone.stderr), alone.stderr
        processes = json.loads(cluster.logs("-o", "json").stdout)["processes"]
        assert processes[2]["process"] == "w1" and re.match(named, processes[2]["error"]) and processes[2]["lines"] == []
    finally:
        os.kill(cluster.pid("w1"), signal.SIGCONT)
    wait_for(lambda: cluster.logs("w1").returncode == 0, "the lines of w1, which goes on")


def test_of_a_worker_that_is_gone_only_its_host_has_the_log(cluster):
    cluster.workers["w1"].stop()
    done = wait_for(lambda: (lambda d: d if "is not connected" in d.stderr else None)(cluster.logs("w1")), "the end of w1")
    assert done.returncode == 1
    assert done.stderr == ("fairway logs: worker w1 is not connected, so only its host has its log: see there whether "
                           "fairway-worker runs\n")
    assert cluster.logs().returncode == 4


def test_the_archive_of_a_report_has_the_lines_of_all_hosts_that_can_be_reached(cluster, tmp_path):
    if cluster.workers["w1"].process.poll() is None:
        cluster.workers["w1"].stop()
    archive = tmp_path / "report.tar.gz"
    done = cluster.do("diagnose", "-o", str(archive))
    assert done.returncode == 0, done.stderr
    lines = unpack(archive)["logs.txt"]
    assert re.search(r"^w0 .*supervisor", lines, re.M) and re.search("^controller .*listening on", lines, re.M)
    assert "fairway logs: worker w1 is not connected" in lines and SECRET not in lines
