# SPDX-License-Identifier: Apache-2.0
"""A real cluster for tests: `fairway up --detach` starts it; in the end nothing of it is left.

Every process of the cluster inherits an environment variable with a random value. It identifies
them in /proc, whatever they did to their sessions and parents.
"""

import json
import os
import pathlib
import re
import secrets
import signal
import socket
import subprocess
import sys
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("FAIRWAY_BIN", ROOT / "build" / "release" / "bin"))
EXAMPLES = ROOT / "examples"
PROGRAMS = pathlib.Path(__file__).resolve().parent / "programs"
MARK = "CLUSTER_UNDER_TEST"


def clean_environment(**extra):
    """This process's environment without variables that would influence JAX, XLA or Fairway."""
    dropped = ("JAX_", "XLA_", "FAIRWAY_", "IFRT_PROXY_")
    env = {k: v for k, v in os.environ.items() if not k.startswith(dropped)}
    return {**env, **extra}


def cpu_environment(devices=8):
    """The environment for JAX's own CPU backend."""
    return clean_environment(
        JAX_PLATFORMS="cpu", XLA_FLAGS=f"--xla_force_host_platform_device_count={devices}"
    )


def free_ports(count):
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [server.getsockname()[1] for server in held]
    for server in held:
        server.close()
    return ports


def wait_for(condition, what, seconds=120.0):
    """Returns the first true value of condition(); fails after `seconds`, naming `what`."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"waited {seconds:g} s in vain for {what}"
        time.sleep(0.02)


def wait_for_count(count, reached, what, seconds=120.0):
    """Waits until reached(count()); fails when count() stays the same for `seconds`, naming `what`.

    For long work, whose whole time depends on the machine. Asks rarely: count() may cost much.
    """
    seen, deadline = None, 0.0
    while not reached(value := count()):
        if value != seen:
            seen, deadline = value, time.monotonic() + seconds
        assert time.monotonic() < deadline, f"{what}: stands at {seen:g} since {seconds:g} s"
        time.sleep(0.2)


class Process:
    """One process of the cluster, from /proc."""

    def __init__(self, pid, arguments):
        self.pid = pid
        self.arguments = arguments
        self.program = os.path.basename(arguments[0]) if arguments else ""

    def __repr__(self):
        return f"{self.pid}: {' '.join(self.arguments)}"

    def signal(self, number):
        os.kill(self.pid, number)

    def flag(self, name):
        """The value of --name=value on its command line, or None."""
        prefix = f"--{name}="
        return next((a[len(prefix):] for a in self.arguments if a.startswith(prefix)), None)


class Cluster:
    """`islands` islands of `devices` CPU devices each, on free loopback ports."""

    def __init__(self, islands=2, devices=4, flags=(), environment=None):
        self.islands, self.devices = islands, devices
        self.mark = secrets.token_hex(16)
        self.environment = clean_environment(**{MARK: self.mark}, **(environment or {}))
        started = time.monotonic()
        try:
            for _ in range(5):
                self.port, self.http_port = free_ports(2)
                self.address = f"127.0.0.1:{self.port}"
                up = ["up", "--islands", str(islands), "--devices", str(devices), "--port", str(self.port),
                      "--http-port", str(self.http_port), *flags, "--detach"]
                # A test beside this one may have taken the port meanwhile.
                done = self.cli(*up, check=False)
                if done.returncode == 0 or " is taken" not in done.stderr:
                    break
            assert done.returncode == 0, f"fairway {' '.join(up)}\n{done.stdout}{done.stderr}"
        except BaseException:
            self.stop()
            raise
        self.seconds_to_start = time.monotonic() - started

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def cli(self, *arguments, check=True, timeout=240):
        """Runs the fairway command line; returns the finished process."""
        done = subprocess.run(
            [str(BIN / "fairway"), *arguments], env=self.environment, text=True,
            stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout,
        )
        assert not check or done.returncode == 0, (
            f"fairway {' '.join(arguments)} ended with {done.returncode}\n{done.stdout}{done.stderr}"
        )
        return done

    def down(self):
        """Ends the cluster in order. Returns the finished `fairway down`."""
        return self.cli("down", "--controller", self.address)

    def stop(self):
        """Ends the cluster in any case; afterwards none of its processes is left."""
        if self.processes():
            self.cli("down", "--controller", self.address, check=False)
        deadline = time.monotonic() + 30
        while self.processes() and time.monotonic() < deadline:
            time.sleep(0.05)
        # What is killed ends a little later.
        wait_for(lambda: not self._kill(), f"the end of {self.processes()}")

    def _kill(self):
        """Kills what there is, and returns it."""
        left = self.processes()
        for process in left:
            try:
                process.signal(signal.SIGKILL)
            except ProcessLookupError:
                pass
        return left

    def processes(self):
        """Every live process of the cluster, except forks that have not yet executed their program:
        those show the command line of their parent."""
        found, parents = {}, {}
        wanted = f"{MARK}={self.mark}".encode()
        for entry in pathlib.Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                if wanted not in (entry / "environ").read_bytes().split(b"\0"):
                    continue
                arguments = (entry / "cmdline").read_bytes().decode().split("\0")[:-1]
                state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
            except OSError:
                continue
            if arguments and state != "Z" and os.path.basename(arguments[0]).startswith("fairway"):
                found[int(entry.name)] = Process(int(entry.name), arguments)
                parents[int(entry.name)] = int(parent)
        return [process for pid, process in sorted(found.items())
                if parents[pid] not in found or found[parents[pid]].arguments != process.arguments]

    def executors(self):
        """The executor children, one per island, in the order of the islands' names."""
        found = [p for p in self.processes() if p.flag("role") == "executor"]
        return sorted(found, key=lambda process: process.flag("island"))

    def status(self):
        """The command waits 5 s for an answer, which may be too short where other programs have the processors."""
        done = None

        def answered():
            nonlocal done
            done = self.cli("status", "--controller", self.address, "-o", "json", check=False)
            return done.returncode == 0 or not re.search("no controller answers|no answer from", done.stderr)

        wait_for(answered, f"the controller at {self.address} to answer")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def logs(self):
        return self.cli("logs", "--controller", self.address, check=False).stdout

    def get(self, path):
        """The text at `path` of the controller's HTTP port."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.http_port}{path}", timeout=120) as reply:
            return reply.read().decode()

    def metrics(self):
        return Metrics(self.get("/metrics"))

    def jax_environment(self):
        """The environment that a user sets to run an unmodified program here."""
        return clean_environment(JAX_PLATFORMS="fairway,cpu", FAIRWAY_CONTROLLER=self.address)

    def python(self, *arguments, check=True, timeout=600):
        """Runs the project's Python with this cluster as JAX's platform."""
        return run_python(*arguments, env=self.jax_environment(), check=check, timeout=timeout)

    def start_python(self, *arguments):
        """The same without waiting; standard output and error share a text pipe."""
        return subprocess.Popen(
            [sys.executable, "-u", *map(str, arguments)], env=self.jax_environment(), text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )


def run_python(*arguments, env, check=True, timeout=600):
    done = subprocess.run(
        [sys.executable, *map(str, arguments)], env=env, text=True, stdin=subprocess.DEVNULL,
        capture_output=True, timeout=timeout,
    )
    assert not check or done.returncode == 0, (
        f"{' '.join(map(str, arguments))} ended with {done.returncode}\n"
        f"{done.stdout[-4000:]}\n{done.stderr[-8000:]}"
    )
    return done


class Metrics:
    """One reading of /metrics, in Prometheus' text format."""

    _LINE = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)")
    _LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')

    def __init__(self, text):
        self.samples = []
        for line in text.splitlines():
            match = self._LINE.match(line)
            if match and not line.startswith("#"):
                name, labels, value = match.groups()
                self.samples.append((name, dict(self._LABEL.findall(labels or "")), float(value)))

    def total(self, name, **labels):
        """The sum of all samples of `name` with these labels; it is an error if there is none."""
        found = [v for n, have, v in self.samples if n == name and labels.items() <= have.items()]
        known = any(n == name for n, _, _ in self.samples)
        assert found or known, f"/metrics has no {name}"
        return sum(found)

    def by(self, name, label):
        """{value of `label`: sum} over the samples of `name`."""
        sums = {}
        for n, have, value in self.samples:
            if n == name and label in have:
                sums[have[label]] = sums.get(have[label], 0.0) + value
        return sums
