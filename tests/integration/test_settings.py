# SPDX-License-Identifier: Apache-2.0
"""Settings files: who reads them, what is wrong with them, and what SIGHUP changes."""

import json
import os
import signal
import subprocess

import pytest

from cluster import BIN, wait_for

FILE = """
[controller]
port = 0
http-port = 0
link-port = 0
data-port = 0
forget-after = "2h"
log-level = "info"

[worker]
runtime = "host"
devices = 2
island = "settings"
log-level = "info"
"""


def run(*words, **environment):
    return subprocess.run([str(BIN / words[0]), *words[1:]], capture_output=True, text=True, timeout=240,
                          env={"PATH": "/usr/bin:/bin", **environment}, check=False)


@pytest.fixture
def settings(tmp_path):
    path = tmp_path / "fairway.toml"
    path.write_text(FILE)
    return path


class Daemon:
    """A program whose log lines are read as they come."""

    def __init__(self, log, *words, environment=None):
        self.log = log
        with log.open("w") as out:
            self.process = subprocess.Popen([str(BIN / words[0]), *words[1:]], stderr=out, stdout=out,
                                            env={**os.environ, **(environment or {})})

    def lines(self):
        written, _, _ = self.log.read_text().rpartition("\n")  # the last line may be half there
        return [json.loads(line) for line in written.splitlines() if line.startswith("{")]

    def said(self, text, component=None):
        return next((line["msg"] for line in self.lines() if text in line["msg"]
                     and component in (None, line["component"])), None)

    def wait(self, text, component=None):
        return wait_for(lambda: self.said(text, component), f"'{text}' in {self.log}")

    def reload(self, answers=1):
        """Sends SIGHUP, and returns what it says to that: so many lines."""
        before = len(self.lines())
        self.process.send_signal(signal.SIGHUP)

        def said():
            found = [line for line in self.lines()[before:] if "settings" in line["msg"]]
            return found if len(found) >= answers else None

        return wait_for(said, f"{answers} answers to SIGHUP")

    def stop(self):
        self.process.terminate()
        assert self.process.wait(120) == 0


@pytest.fixture
def controller(settings, tmp_path):
    daemon = Daemon(tmp_path / "controller.log", "fairway-controller", "--config", str(settings))
    daemon.wait("listening on")
    yield daemon
    daemon.stop()


def test_each_program_reads_its_table(settings):
    lines = run("fairway-controller", "--config", str(settings), "--print-config").stdout.splitlines()
    assert f"--forget-after=7200s  (file {settings}:7)" in lines
    lines = run("fairway-worker", "--print-config", "--devices=3", FAIRWAY_CONFIG=str(settings),
                FAIRWAY_ISLAND="other").stdout.splitlines()
    assert f"--runtime=host  (file {settings}:11)" in lines
    assert "--devices=3  (flag)" in lines
    assert "--island=other  (environment FAIRWAY_ISLAND)" in lines
    settings.write_text("[up]\nislands = 2\nruntime = 'host'\n")
    lines = run("fairway", "up", "--config", str(settings), "--print-config").stdout.splitlines()
    assert f"--islands=2  (file {settings}:2)" in lines


@pytest.mark.parametrize("text, fault", [
    ("[controller]\nprot = 1\n", "2: unknown setting 'prot' in [controller]; did you mean port?"),
    ("[controler]\nport = 1\n", "1: unknown table [controler]; did you mean [controller]?"),
    ("[controller]\nport = 99999\n", "--port: 99999 is not 0 to 65535"),
    ("[controller]\nlog-level = 'loud'\n", "'loud' is none of trace, debug, info, warn and error"),
    ("[worker]\ndevices = 'many'\n", "2: devices: 'many' is not a whole number"),
    ("[worker]\nruntime = 'gpu'\n", "--runtime is 'gpu', not pjrt, host, sim or fake"),
    ("[worker]\nplugin = '/a.so'\nplugin-kind = 'tpu'\n", "tpu"),
    ("[worker]\nplugin = '/no/such.so'\n", "--plugin=/no/such.so: cannot be read: No such file or directory"),
    ("[worker]\nruntime = 'host'\ndata-bind = '10.0.0.1:0'\n", "--data-bind=10.0.0.1:0: other hosts can reach 10.0.0.1"),
    ("[controller]\nbind = 'head'\n", "--bind is 'head', not an IP address"),
    ("[controller]\nbind = '10.0.0.1'\n", "--bind=10.0.0.1: other hosts can reach 10.0.0.1"),
    ("[controller]\ntls-ca = '/no/such.pem'\n", "--tls-certificate is missing"),
    ("[up]\nplugin = '/no/such.so'\n", "cannot read the plugin /no/such.so"),
    ("[up]\nislands = 0\n", "--islands must be 1 to 1000"),
    ("[up]\nislands = 2\nport = [1]\n", "3: port takes one value, no array"),
    ("port = 1\n", "1: 'port' is outside of a table"),
])
def test_config_check_finds_what_the_programs_would_refuse(settings, text, fault):
    settings.write_text(text)
    done = run("fairway", "config", "check", str(settings))
    assert done.returncode == 1
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert len(lines) == 1 and fault in lines[0]


def test_config_check_of_a_file_without_fault(settings):
    done = run("fairway", "config", "check", str(settings))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{settings}: nothing is wrong with [controller], [worker]\n"
    assert run("fairway", "config", "check").returncode == 2
    assert run("fairway", "config", "chekc", str(settings)).returncode == 2


def test_a_file_that_others_may_write_is_refused(settings):
    settings.chmod(0o666)
    done = run("fairway-controller", "--config", str(settings))
    assert done.returncode == 2
    assert "chmod o-w" in done.stderr and len(done.stderr.splitlines()) == 1


def test_sighup_reads_the_settings_of_a_controller_again(controller, settings):
    settings.write_text(FILE.replace('"info"', '"debug"').replace('"2h"', '"3h"').replace(
        "link-port = 0", "link-port = 1"))
    applied, later = controller.reload(2)
    assert applied["msg"] == ("settings read again; changed: forget-after from '7200s' to '10800s', "
                              "log-level from 'info' to 'debug'")
    assert later["level"] == "warning" and "link-port from '0' to '1'" in later["msg"]
    # What is wrong changes nothing, and ends nothing.
    settings.write_text("[controller]\nforget-after = 'never'\n")
    [refused] = controller.reload()
    assert refused["level"] == "error" and "the settings stay as they are" in refused["msg"]
    assert f"{settings}:2: forget-after" in refused["msg"]
    settings.unlink()
    [refused] = controller.reload()
    assert "cannot be read" in refused["msg"]
    settings.write_text(FILE)
    assert "log-level from 'debug' to 'info'" in controller.reload()[0]["msg"]


def test_sighup_changes_the_log_level_of_a_worker_and_its_executor(controller, settings, tmp_path):
    link = controller.wait("listening on").partition("workers ")[2].partition(",")[0]
    worker = Daemon(tmp_path / "worker.log", "fairway-worker", "--config", str(settings),
                    f"--controller=127.0.0.1:{link}")
    try:
        controller.wait("islands up: 1")
        settings.write_text(FILE.replace('"info"', '"error"'))
        # The answer is at level info, which is off by then; what is known is what does not come.
        worker.process.send_signal(signal.SIGHUP)
        wait_for(lambda: worker.said("log-level from 'info' to 'error'"), "the change")
        settings.write_text(FILE.replace('"info"', '"debug"'))
        # `pkill -HUP fairway-worker` sends it to the executor, too, which it does not harm.
        executor = executor_of(controller)
        os.kill(executor, signal.SIGHUP)
        worker.process.send_signal(signal.SIGHUP)
        wait_for(lambda: level_of_executor(worker) == "debug", "the executor's level")
        assert executor_of(controller) == executor
        assert "zombie" not in open(f"/proc/{executor}/status").read()
    finally:
        worker.stop()


def executor_of(controller):
    up = [line["msg"] for line in controller.lines() if line["msg"].startswith("executor of worker ")]
    return int(up[-1].rpartition("pid ")[2])


def level_of_executor(worker):
    said = [line["msg"] for line in worker.lines() if line["component"] == "executor"
            and line["msg"].startswith("log level: ")]
    return said[-1].removeprefix("log level: ") if said else None


def test_without_a_file_a_hangup_ends_the_controller(tmp_path):
    daemon = Daemon(tmp_path / "controller.log", "fairway-controller", "--port=0", "--http-port=0",
                    "--link-port=0", "--data-port=0")
    daemon.wait("listening on")
    daemon.process.send_signal(signal.SIGHUP)
    assert daemon.process.wait(120) == -signal.SIGHUP
