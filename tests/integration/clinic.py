# SPDX-License-Identifier: Apache-2.0
"""A cluster with TLS on this host for `fairway doctor` and `fairway diagnose`, and how what they print is compared.

FAIRWAY_WRITE_GOLDEN=1 writes the files in golden/ anew: look at what git shows to be different.
"""

import os
import pathlib
import re
import subprocess
import sys

import pytest

from cluster import BIN, clean_environment, free_ports
from test_settings import Daemon, run

GOLDEN = pathlib.Path(__file__).resolve().parent / "golden"
PORTS = ("port", "http-port", "link-port", "data-port")
# What these say is of the host on which the tests run.
OF_THE_HOST = ("limit of open files", "limit of processes and threads", "memory mappings", "memory", "Landlock",
               "seccomp", "spool directory", "log directory")
# Moves the clock of the process by CLOCK_MOVED seconds.
MOVED_CLOCK = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>
int clock_gettime(clockid_t id, struct timespec* out) {
  static int (*real)(clockid_t, struct timespec*);
  if (!real) real = (int (*)(clockid_t, struct timespec*))dlsym(RTLD_NEXT, "clock_gettime");
  const int result = real(id, out);
  if (id == CLOCK_REALTIME) out->tv_sec += atol(getenv("CLOCK_MOVED"));
  return result;
}
time_t time(time_t* out) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (out) *out = now.tv_sec;
  return now.tv_sec;
}
"""


def build(folder, name, text):
    """Makes a shared library of C code."""
    source, library = folder / f"{name}.c", folder / f"{name}.so"
    source.write_text(text)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True, timeout=240)
    return library
VERSION = subprocess.run([BIN / "fairway", "--version"], text=True, capture_output=True, check=True).stdout.split()[1]


class Clinic:
    """A controller and a worker with settings files; their logs are in a folder that the controller reads."""

    def __init__(self, folder, plugin):
        self.folder, self.directory, self.plugin = folder, folder / "cluster", plugin
        self.daemons = []
        self.tokens = 0
        self.others = {}  # ports of tests, by names for golden files
        assert run("fairway", "init", str(self.directory)).returncode == 0
        assert run("fairway", "issue", "w0", "--from", str(self.directory)).returncode == 0
        (folder / "logs").mkdir()
        self.ports = dict(zip(PORTS, free_ports(4)))
        self.controller_toml = self.settings("controller.toml")
        self.worker_toml = folder / "worker.toml"
        own = self.directory / "w0"
        self.worker_toml.write_text(
            f"[worker]\nname = 'w0'\ndevices = 2\nplugin = '{plugin}'\ncontroller = '127.0.0.1:{self.ports['link-port']}'\n"
            f"tls-ca = '{own}/ca.pem'\ntls-certificate = '{own}/worker.pem'\ntls-key = '{own}/worker.key'\n")

    def settings(self, name, more="", **ports):
        """Settings of a controller, with other ports than usual."""
        path = self.folder / name
        lines = "".join(f"{port} = {number}\n" for port, number in {**self.ports, **ports}.items())
        path.write_text((self.directory / "fairway.toml").read_text() + f"log-dir = '{self.folder}/logs'\n" + lines + more)
        return path

    def start(self, name, *words):
        self.daemons.append(Daemon(self.folder / "logs" / f"{name}.log", *words))
        return self.daemons[-1]

    def start_all(self):
        controller = self.start("controller", "fairway-controller", "--config", str(self.controller_toml))
        controller.wait("listening on")
        self.start("w0", "fairway-worker", "--config", str(self.worker_toml))
        controller.wait("islands up: 1")

    def stop(self):
        for daemon in reversed(self.daemons):
            if daemon.process.poll() is None:
                daemon.stop()

    def token(self, role="user"):
        """A new token: its file and its number."""
        self.tokens += 1
        path = self.folder / f"{self.tokens}.token"
        tenant = ["--tenant=red"] if role == "user" else []
        done = run("fairway", "token", "create", f"--role={role}", *tenant, f"--to={path}", *self.as_admin())
        assert done.returncode == 0, done.stderr
        return path, re.search(r"token (\d+)", done.stderr)[1]

    @property
    def address(self):
        return f"127.0.0.1:{self.ports['port']}"

    def as_admin(self):
        return ["--controller", self.address, f"--tls-ca={self.directory}/ca.pem",
                f"--token-file={self.directory}/admin.token"]

    def words(self, **changed):
        """The flags with which the doctor finds nothing wrong, but for the changed ones; None: without it."""
        flags = {"config": str(self.controller_toml), "token_file": f"{self.directory}/admin.token",
                 "python": sys.executable, "plugin": str(self.plugin), **changed}
        return [f"--{name.replace('_', '-')}={value}" for name, value in flags.items() if value is not None]

    def golden(self, text):
        """`text` without what differs between hosts and runs."""
        for path, name in ((BIN, "BIN"), (self.directory, "CLUSTER"), (self.folder, "FOLDER"), (self.plugin, "PLUGIN"),
                           (sys.executable, "PYTHON"), (pathlib.Path(sys.executable).resolve().name, "python")):
            text = text.replace(str(path), name)
        for port, number in {**self.ports, **self.others}.items():
            text = re.sub(rf"\b{number}\b", port.upper(), text)
        for pattern, instead in (
            (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", "TIME"), (r"pid \d+", "pid N"), (r"host [\w.-]+, pid", "host HOST, pid"), (r"[\d.]+ (KiB|MiB|GiB|TiB) free", "SIZE free"),
            (r"of user \w+", "of user USER"), (r"\b\d+\.\d+\.\d+ \(jax [\d.]+\)", "VERSION (jax VERSION)"),
            (r"\d+ days ago", "N days ago"), (r"tested are [\d.]+ to [\d.]+", "tested are OLDEST to NEWEST"),
            (r"token \d+", "token N"), (r"\bfairway==[\d.]+", "fairway==VERSION"), (r"'jax>=[\d.]+' 'jax<=[\d.]+'", "'jax>=OLDEST' 'jax<=NEWEST'"),
            (rf"\b{re.escape(VERSION)}(?![\d.])", "VERSION"), (r"in \d+ (days|hours|minutes|s)\b", "in A WHILE"),
            (r"within \d+s of", "within SECONDS of"), ("; opened as root, since no daemon's user is known", ""),
        ):
            text = re.sub(pattern, instead, text)
        return text


def compare(name, ask):
    """Compares what ask() returns with a golden file. Where other programs have the processors, an answer may take
    longer than the command waits: so it has three tries."""
    path = GOLDEN / name
    for _ in range(3):
        text = ask()
        if path.exists() and text == path.read_text(encoding="utf-8"):
            return
    if os.environ.get("FAIRWAY_WRITE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


def find_plugin():
    """The plugin for CPUs of this Python."""
    import _fairway_command

    plugin = _fairway_command.cpu_plugin()
    assert plugin, "xla-cpu-pjrt is missing; `./dev build` installs it"
    return plugin


@pytest.fixture(scope="module")
def clinic(tmp_path_factory):
    place = Clinic(tmp_path_factory.mktemp("clinic"), find_plugin())
    try:
        place.start_all()
        yield place
    finally:
        place.stop()


def doctor(*words, environment=None, **options):
    return subprocess.run([BIN / "fairway", "doctor", *words], env=clean_environment(**(environment or {})), text=True,
                          stdin=subprocess.DEVNULL, capture_output=True, timeout=240, check=False, **options)
