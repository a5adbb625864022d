# SPDX-License-Identifier: Apache-2.0
"""Bare Debian systems to install packages in (tests/roots/root.sh), and commands in them.

The commands in one system share a private network that has only loopback: the default ports are free
there, and a command can use nothing from outside.
"""

import contextlib
import os
import pathlib
import re
import secrets
import shutil
import signal
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "tests" / "roots" / "root.sh"
MADE = ROOT / ".deps" / "roots"  # made once and kept
WHEELS = ROOT / ".deps" / "wheelhouse"  # pip's downloads, kept, by system
MARK = "WHEEL_UNDER_TEST"
# It keeps the system's mounts and network, brings up loopback, and ends when its input ends.
HOLDER = """
import fcntl, socket, struct, sys
with socket.socket() as s:
    fcntl.ioctl(s, 0x8914, struct.pack("16sh22x", b"lo", 1 | 64))
print("held", flush=True)
sys.stdin.read()
"""


def require_tools():
    """Names what is missing in one line, because nothing here can be tested without it."""
    assert os.geteuid() == 0, "the packages' tests make systems of their own: run them as root"
    for tool in ("debootstrap", "unshare", "nsenter", "chroot", "objdump"):
        assert shutil.which(tool), f"{tool} is missing; `./dev test wheel` installs it"


def make(suite):
    """The bare system of that name; making it takes minutes the first time only."""
    MADE.mkdir(parents=True, exist_ok=True)
    subprocess.run([SCRIPT, "make", suite, MADE / suite], check=True)
    return MADE / suite


class Command:
    """The result of a command: its standard output and error, exit code, and seconds."""

    def __init__(self, text, done, wall, cpu):
        self.text, self.code = text, done.returncode
        self.out, self.err = done.stdout.decode(), done.stderr.decode()
        self.wall, self.cpu = wall, cpu

    def __str__(self):
        shown = re.sub(r"[^\n]*\r", "", self.out + self.err)  # the final state of progress bars
        return f"$ {self.text}\n{shown}[{self.wall:.1f} s, {self.cpu:.1f} s of CPU]\n"


class Bare:
    """A fresh copy of a bare system, until the `with` block ends."""

    def __init__(self, suite, folder):
        self.suite, self.path = suite, folder
        self.wheels = WHEELS / suite
        self.mark = secrets.token_hex(16)

    def __enter__(self):
        subprocess.run([SCRIPT, "copy", make(self.suite), self.path], check=True)
        self.wheels.mkdir(parents=True, exist_ok=True)
        self.holder = subprocess.Popen(
            [SCRIPT, "run", self.path, "python3", "-c", HOLDER], text=True, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "FAIRWAY_ROOT_OFFLINE": "1", "FAIRWAY_ROOT_BIND": str(self.wheels)})
        assert self.holder.stdout.readline() == "held\n", f"no namespace for {self.suite}"
        return self

    def __exit__(self, *_):
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.holder.stdin.close()
        self.holder.wait(120)
        shutil.rmtree(self.path)

    def processes(self):
        """The processes that commands here started and that still run."""
        found = []
        for entry in pathlib.Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and f"{MARK}={self.mark}".encode() in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                pass
        return found

    def online(self, command):
        """Runs a shell command with the host's network, as for downloads."""
        return subprocess.run(
            [SCRIPT, "run", self.path, "HOME=/root", "bash", "-c", f"cd /root\n{command}"], text=True,
            capture_output=True, env={**os.environ, "FAIRWAY_ROOT_BIND": str(self.wheels)}, timeout=900)

    def words(self, text, activate="none", **environment):
        """What runs a shell command in /root, offline, in the Python environment of that folder."""
        variables = {
            "HOME": "/root", "PATH": "/usr/local/bin:/usr/bin:/bin", "TERM": "dumb", MARK: self.mark,
            "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(self.wheels), "PIP_NO_CACHE_DIR": "1", "PIP_CONFIG_FILE": "/dev/null",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_ROOT_USER_ACTION": "ignore", **environment,
        }
        script = f"[ ! -f {activate}/bin/activate ] || . {activate}/bin/activate; {text}"
        return ["nsenter", "--target", str(self.holder.pid), "--mount", "--net", "--root", "/usr/bin/env",
                "-C", "/root", "-i", *(f"{k}={v}" for k, v in variables.items()), "bash", "-c", script]

    def run(self, text, activate="venv", **environment):
        """Runs such a command, and waits for its end."""
        before, started = os.times(), time.monotonic()
        done = subprocess.run(self.words(text, activate, **environment), capture_output=True, stdin=subprocess.DEVNULL,
                              timeout=600)
        after = os.times()
        cpu = after.children_user + after.children_system - before.children_user - before.children_system
        return Command(text, done, time.monotonic() - started, cpu)

    def download(self, wheel):
        """Lets pip download the wheel's extras, once per system. Returns seconds."""
        extra = os.environ.get("FAIRWAY_TEST_WHEEL_WITH", "")  # such as 'jax<0.11', to try another
        started = time.monotonic()
        for old in self.wheels.glob("fairway-*.whl"):
            old.unlink()
        shutil.copy(wheel, self.wheels)
        done = self.online(
            "python3 -m venv /tmp/loader && /tmp/loader/bin/pip download -q --no-cache-dir "
            f"-d {self.wheels} '{self.wheels / wheel.name}[cpu,examples]' {extra}; code=$?; "
            "rm -rf /tmp/loader; exit $code")
        assert done.returncode == 0, done.stderr
        return time.monotonic() - started

    def files(self):
        """Every path of the system, except the kernel's own and those bound from outside."""
        found = set()
        for folder, names, files in os.walk(self.path):
            if pathlib.Path(folder) == self.path:
                names[:] = [name for name in names if name not in ("proc", "sys", "dev")]
            found |= {os.path.relpath(os.path.join(folder, n), self.path) for n in [*names, *files]}
        bound = str(self.wheels).lstrip("/") + "/"
        return {name for name in found if not bound.startswith(name + "/")}
