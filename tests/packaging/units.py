# SPDX-License-Identifier: Apache-2.0
"""systemd's units, run without systemd: ExecStart as the unit's user, behind the unit's filter of system calls, with
$NOTIFY_SOCKET. A bare system has no systemd, so what the unit says is read here and done by hand."""

import ctypes
import errno
import os
import pathlib
import re
import signal
import socket
import subprocess
import threading

import bare

FOLDER = bare.ROOT / "deploy" / "systemd"
UNITS = ("fairway-controller", "fairway-worker")
# Takes the filter, the user, the group and a command line; becomes that.
LAUNCHER = '''
import ctypes, grp, os, pwd, sys
code = open(sys.argv[1], "rb").read()
user, group = pwd.getpwnam(sys.argv[2]), grp.getgrnam(sys.argv[3])
os.setgroups([]); os.setgid(group.gr_gid); os.setuid(user.pw_uid); os.umask(0o077)
class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_char_p)]
prctl = ctypes.CDLL(None, use_errno=True).prctl
assert prctl(38, 1, 0, 0, 0) == 0, "no_new_privs"
assert prctl(22, 2, ctypes.byref(Program(len(code) // 8, code)), 0, 0) == 0, os.strerror(ctypes.get_errno())
os.execv(sys.argv[4], sys.argv[4:])
'''
READ, WRITE, EXECUTE = 1, 2, 4
ALLOW, REFUSE = 0x7FFF0000, 0x00050000 | errno.EPERM
EQUAL, MASKED = 4, 7  # libseccomp's scmp_compare


def settings(name):
    """Key -> its values, in order, of all sections."""
    out = {}
    for line in (FOLDER / f"{name}.service").read_text(encoding="utf-8").splitlines():
        key, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            out.setdefault(key, []).append(value)
    return out


def calls_of(name):
    """The system calls of a set of systemd (@system-service), or the one of that name."""
    if not name.startswith("@"):
        return {name}
    told = subprocess.run(["systemd-analyze", "--no-pager", "syscall-filter", name], text=True, capture_output=True, check=True)
    lines = [line.strip() for line in told.stdout.splitlines()[1:]]
    return set().union(*(calls_of(line) for line in lines if line and not line.startswith("#")))


def allowed_calls(unit):
    """What the lines SystemCallFilter= permit: the first is a list, the others change it."""
    out = set()
    for value in unit["SystemCallFilter"]:
        named = set().union(*(calls_of(word) for word in value.lstrip("~").split()))
        out = out - named if value.startswith("~") else out | named
    return out


class Compare(ctypes.Structure):
    _fields_ = [("argument", ctypes.c_uint), ("how", ctypes.c_int), ("a", ctypes.c_uint64), ("b", ctypes.c_uint64)]


def filter_of(name, target):
    """Writes the unit's filter to `target`, as the kernel takes it: SystemCallFilter=, RestrictAddressFamilies= and
    MemoryDenyWriteExecute=."""
    unit, library = settings(name), ctypes.CDLL("libseccomp.so.2")
    library.seccomp_init.restype = ctypes.c_void_p
    rules = library.seccomp_init(ctypes.c_uint32(REFUSE))
    assert rules

    def allow(call, *compares):
        number = library.seccomp_syscall_resolve_name(call.encode())
        if number == -1:  # libseccomp does not know it, nor would systemd
            return
        added = library.seccomp_rule_add_array(ctypes.c_void_p(rules), ctypes.c_uint32(ALLOW), number, len(compares),
                                               (Compare * len(compares))(*compares))
        assert added == 0 or number < 0, (call, added)  # below 0: of another architecture

    families = [getattr(socket, family) for family in " ".join(unit["RestrictAddressFamilies"]).split()]
    unlike = {"socket": [Compare(0, EQUAL, family, 0) for family in families]}
    if unit.get("MemoryDenyWriteExecute") == ["yes"]:
        unlike["mmap"] = [Compare(2, MASKED, WRITE | EXECUTE, bits) for bits in (0, WRITE, EXECUTE)]
        unlike["mprotect"] = unlike["pkey_mprotect"] = [Compare(2, MASKED, EXECUTE, 0)]
    for call in sorted(allowed_calls(unit)):
        for compare in unlike.get(call, [None]):
            allow(call, *([compare] if compare else []))
    with target.open("wb") as file:
        assert library.seccomp_export_bpf(ctypes.c_void_p(rules), file.fileno()) == 0
    library.seccomp_release(ctypes.c_void_p(rules))


class Running:
    """A unit that runs in a bare system, as its ExecStart says."""

    def __init__(self, system, name, watchdog_usec=600_000):
        self.name, unit = name, settings(name)
        (user,), (group,), (command,), (state,) = (unit[key] for key in ("User", "Group", "ExecStart", "StateDirectory"))
        assert unit["Type"] == ["notify"]
        self.log = system.path / "root" / f"{name}.log"
        filter_of(name, system.path / "root" / f"{name}.bpf")
        (system.path / "root" / "launch.py").write_text(LAUNCHER)
        made = system.run(f"install -d -o {user} -g {group} -m {unit['StateDirectoryMode'][0]} /var/lib/{state}")
        assert made.code == 0, made
        there = pathlib.Path("run") / f"{name}.notify"
        (system.path / there).unlink(missing_ok=True)
        self.manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        before = os.getcwd()
        os.chdir(system.path)  # the path of a socket must be short
        self.manager.bind(str(there))
        os.chdir(before)
        (system.path / there).chmod(0o666)
        self.messages, self.news = [], threading.Condition()
        threading.Thread(target=self._listen, daemon=True).start()
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                system.words(f"cd / && exec python3 /root/launch.py /root/{name}.bpf {user} {group} {command}",
                             NOTIFY_SOCKET=f"/{there}", WATCHDOG_USEC=str(watchdog_usec)),
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def _listen(self):
        """Reads all the time, as a manager does: a service does not wait until there is room for a message."""
        while message := self.manager.recv(1024):
            with self.news:
                self.messages += message.decode().splitlines()
                self.news.notify_all()

    def wait_for(self, message, times=1, seconds=60):
        """Until the service has told its manager this so many times."""
        with self.news:
            told = self.news.wait_for(lambda: self.messages.count(message) >= times, seconds)
        assert told, f"{self.name} has not said {message}:\n{self.log.read_text()}"
        return self

    def signs_of_life(self, count):
        """Until it has given so many more."""
        self.wait_for("WATCHDOG=1", self.messages.count("WATCHDOG=1") + count)

    def is_silent_for(self, seconds):
        with self.news:
            before = len(self.messages)
            return not self.news.wait_for(lambda: len(self.messages) > before, seconds)

    def stop(self):
        """As `systemctl stop` does; returns the exit code."""
        self.process.send_signal(signal.SIGTERM)
        self.wait_for("STOPPING=1")
        code = self.process.wait(60)
        self.manager.shutdown(socket.SHUT_RD)  # ends _listen
        return code


def threshold(number):
    """systemd-analyze takes exposures in tenths."""
    return f"--threshold={round(10 * number)}"


def exposure(name, most):
    """(whether the unit's exposure is at most that, what systemd-analyze says)."""
    done = subprocess.run(["systemd-analyze", "security", "--no-pager", "--offline=true", threshold(most),
                           FOLDER / f"{name}.service"], text=True, capture_output=True)
    told = re.search(r"Overall exposure level for \S+: (\S+)", done.stdout)
    assert told, done.stdout + done.stderr
    return done.returncode == 0, float(told[1])
