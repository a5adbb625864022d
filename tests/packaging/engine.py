# SPDX-License-Identifier: Apache-2.0
"""Debian's containerd on a host of its own: a network namespace and folders. What it started ends with the `with` block."""

import contextlib
import os
import pathlib
import re
import shutil
import signal
import subprocess

import containers

PROGRAMS = ("containerd", "ctr")
CONTROL_GROUPS = pathlib.Path("/sys/fs/cgroup")
SETTINGS = """
version = 2
root = "{folder}/root"
state = "{folder}/state"
disabled_plugins = ["io.containerd.grpc.v1.cri"]
[grpc]
address = "{folder}/socket"
"""


def require_tools():
    containers.require_tools()
    for tool in PROGRAMS:
        assert shutil.which(tool), f"{tool} is missing; `./dev test packages` installs it"


class Engine:
    """`folder` must have a short path, since sockets are in it."""

    def __init__(self, folder, network):
        self.folder, self.network = folder, network
        self.log = folder / "log"

    def __enter__(self):
        self.folder.mkdir(parents=True)
        (self.folder / "config.toml").write_text(SETTINGS.format(folder=self.folder))
        # What is mounted goes with the last process. (`ip netns exec` would hide the control groups.)
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                ["nsenter", f"--net=/run/netns/{self.network}", "unshare", "--mount", "containerd", "--config",
                 str(self.folder / "config.toml")],
                stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        try:
            containers.wait_for(lambda: self.run("ctr version").returncode == 0, f"containerd: {self.log.read_text()}")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for name in self.run("ctr tasks ls -q").stdout.split():
            self.run(f"ctr tasks kill --signal SIGKILL {name}; ctr tasks delete --force {name}")
        self.process.terminate()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for pid in self.shims():  # of tasks that could not be deleted
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        state = pathlib.Path("/run/containerd/runc") / self.network  # where runc has those of this namespace, whoever started it
        for path in state.glob("*"):
            subprocess.run(["runc", "--root", state, "delete", "--force", path.name], check=False, capture_output=True)
        shutil.rmtree(state, ignore_errors=True)
        for group in [*CONTROL_GROUPS.glob(f"*/{self.network}"), *CONTROL_GROUPS.glob(self.network)]:
            group.rmdir()

    def shims(self):
        """Processes that containerd leaves when tasks are left."""
        found = []
        for entry in pathlib.Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdigit() and f"{self.folder}/socket".encode() in (entry / "cmdline").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
        return found

    def run(self, script):
        """A script of the host's administrator, who is in the engine's folder."""
        return subprocess.run(["bash", "-euc", script], text=True, capture_output=True, stdin=subprocess.DEVNULL, timeout=300,
                              cwd=self.folder,
                              env={**os.environ, "CONTAINERD_ADDRESS": f"{self.folder}/socket", "CONTAINERD_NAMESPACE": self.network})

    def type(self, script):
        """What it prints; it must end well."""
        print(f"$ {script}")
        done = self.run(script)
        print(done.stdout + done.stderr)
        assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}{self.log.read_text()[-3000:]}"
        return done.stdout

    def pids(self, task):
        """Of the task's processes."""
        return [int(pid) for pid in re.findall(r"^(\d+)\s", self.type(f"ctr tasks ps {task}"), re.MULTILINE)]
