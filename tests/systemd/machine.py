# SPDX-License-Identifier: Apache-2.0
"""A Debian 12 whose systemd is the first process of namespaces of its own: it is booted, loses its power, and an administrator types there."""

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import threading

import bare
from waiting import end_with_parent, wait_for

BOOT = pathlib.Path(__file__).resolve().parent / "boot.sh"
# What a small Debian has beside the base: systemd, and D-Bus for it.
PACKAGES = "systemd-sysv dbus"
# What takes apt's lock at a time of its own, and what is for a whole machine.
MASKED = ("apt-daily.timer", "apt-daily-upgrade.timer", "e2scrub_all.timer", "e2scrub_reap.service", "systemd-modules-load.service",
          "sys-kernel-debug.mount", "sys-kernel-tracing.mount", "sys-fs-fuse-connections.mount", "dev-hugepages.mount")
ENVIRONMENT = {"HOME": "/root", "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "TERM": "dumb",
               "DEBIAN_FRONTEND": "noninteractive", "LANG": "C.UTF-8"}


def own_group():
    """The folder of this process's control group of version 2, which a machine with hierarchies of version 1 has too."""
    for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines():
        fields, _, kind = line.partition(" - ")
        if kind.startswith("cgroup2 "):
            path = next(line[3:] for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines() if line.startswith("0::"))
            return pathlib.Path(fields.split()[4]) / path.lstrip("/")
    raise AssertionError("no control groups of version 2 are mounted here, and systemd's units need them")


class Machine:
    """`folder` gets its files. Nothing of it is left when the `with` block ends."""

    def __init__(self, folder, name="booted"):
        self.path, self.name, self.process = folder, name, None
        self.group = own_group() / f"fairway-{name}-{os.getpid()}"
        self.console = b""

    def __enter__(self):
        if self.path.exists():
            shutil.rmtree(self.path)
        subprocess.run([bare.SCRIPT, "copy", bare.make("bookworm"), self.path], check=True)
        self.online(f"apt-get -qq update && apt-get -qq install -y --no-install-recommends {PACKAGES}")
        for unit in MASKED:
            (self.path / "etc/systemd/system" / unit).symlink_to("/dev/null")
        (self.path / "etc/hostname").write_text(f"{self.name}\n")
        return self

    def __exit__(self, *_):
        self.cut_power()
        shutil.rmtree(self.path)

    def online(self, command):
        """Before it is booted, with the network of this machine, as for downloads."""
        done = subprocess.run([bare.SCRIPT, "run", self.path, *(f"{k}={v}" for k, v in ENVIRONMENT.items()), "bash", "-c", f"cd /root\n{command}"],
                              text=True, capture_output=True, timeout=900)
        assert done.returncode == 0, done.stdout + done.stderr

    def _begin(self):
        end_with_parent()
        (self.group / "cgroup.procs").write_text(str(os.getpid()))

    def _read_console(self, master):
        with contextlib.suppress(OSError):  # the other end has gone
            while more := os.read(master, 4096):
                self.console += more
        os.close(master)

    def boot(self):
        """Until all that starts by itself has been started."""
        self.group.mkdir(exist_ok=True)
        master, terminal = os.openpty()
        self.process = subprocess.Popen(
            ["unshare", "--mount", "--uts", "--ipc", "--net", "--cgroup", "--pid", "--fork", "--kill-child", BOOT, self.path,
             os.ttyname(terminal)], stdin=subprocess.DEVNULL, stdout=terminal, stderr=terminal, preexec_fn=self._begin)
        threading.Thread(target=self._read_console, args=(master,), daemon=True).start()
        wait_for(self._has_systemd, lambda: f"systemd: {self.said()}")
        os.close(terminal)
        state = self.run("systemctl is-system-running --wait").stdout.strip()
        print(state, self.run("systemctl --failed --no-legend").stdout)

    def _has_systemd(self):
        return self.first_process() and self.run("systemctl is-system-running").stdout.strip() not in ("", "offline", "unknown")

    def first_process(self):
        """Its number out here."""
        assert self.process.poll() is None, f"it ended: {self.said()}"
        found = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return int(found[0]) if found else None

    def said(self):
        return self.console.decode(errors="replace")[-4000:]

    def cut_power(self):
        """All processes end at once. Its files stay."""
        if not self.process:
            return
        if self.process.poll() is None:
            os.kill(self.first_process() or self.process.pid, signal.SIGKILL)
        self.process.wait(60)
        self.process = None
        wait_for(self._groups_are_gone, f"the end of the processes in {self.group}", 60)

    def _groups_are_gone(self):
        for path, _, _ in os.walk(self.group, topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(path)
        return not self.group.exists()

    def words(self, text, **environment):
        """What runs a shell command of root's there."""
        variables = {**ENVIRONMENT, **environment}
        return ["nsenter", f"--target={self.first_process()}", "--all", "env", "-i", "-C", "/root",
                *(f"{k}={v}" for k, v in variables.items()), "bash", "-c", text]

    def run(self, text, **environment):
        return subprocess.run(self.words(text, **environment), text=True, capture_output=True, stdin=subprocess.DEVNULL, timeout=300)

    def type(self, text, code=0):
        """What it prints; it must end with that code."""
        print(f"$ {text}")
        done = self.run(text)
        print(done.stdout + done.stderr)
        assert done.returncode == code, f"{text}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def files(self):
        """Every path that it keeps."""
        found = set()
        for folder, names, files in os.walk(self.path):
            found |= {os.path.relpath(os.path.join(folder, name), self.path) for name in [*names, *files]}
        return found

    def inside(self, pid, *words):
        """Runs words with the files that a process sees, as root; `pid` is its number out here."""
        return subprocess.run(["nsenter", f"--target={pid}", "--mount", "--root", "--wd=/", *words], text=True, capture_output=True,
                              stdin=subprocess.DEVNULL, timeout=60)


class Service:
    """A unit of a machine."""

    def __init__(self, machine, name):
        self.machine, self.name = machine, name

    def show(self, what):
        return self.machine.run(f"systemctl show --value -p {what} {self.name}").stdout.strip()

    def pids(self):
        """Of all its processes, numbers out here: the group's file tells them in the reader's numbers."""
        group = self.show("ControlGroup")
        try:
            return [int(pid) for pid in (self.machine.group / group.lstrip("/") / "cgroup.procs").read_text().split()] if group else []
        except FileNotFoundError:  # it has just ended
            return []

    def main(self):
        """Its main process's number out here; none, when there is none."""
        inside = self.show("MainPID")
        for pid in self.pids():
            with contextlib.suppress(OSError):
                status = pathlib.Path(f"/proc/{pid}/status").read_text()
                if f"\nNSpid:\t{pid}\t{inside}\n" in status:
                    return pid
        return None

    def is_active(self):
        return self.machine.run(f"systemctl is-active {self.name}").stdout.strip() == "active"

    def journal(self):
        """What it and systemd have said of it since the machine was made."""
        return self.machine.run(f"journalctl --no-pager -o cat -u {self.name}").stdout

    def drop_in(self, text):
        """As `systemctl edit` does; none: the drop-in goes."""
        folder = self.machine.path / "etc/systemd/system" / f"{self.name}.service.d"
        if text:
            folder.mkdir(exist_ok=True)
            (folder / "override.conf").write_text(text)
        else:
            shutil.rmtree(folder)
        self.machine.type("systemctl daemon-reload")

    def __str__(self):
        return self.name
