# SPDX-License-Identifier: Apache-2.0
"""Hosts to which only ssh leads: a network namespace each, with a root and an sshd of its own.

A root has /etc, /opt, /var, /home, /root, /run and /tmp of its own, and this system's programs. Nothing is installed
on this system: where it has no sshd, Debian's is unpacked into .deps/sshd (`./dev` does so).
"""

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import textwrap

import pytest

from cluster import BIN, clean_environment, wait_for
from namespaces import ip, network

ROOT = pathlib.Path(__file__).resolve().parents[2]
SSHD = ROOT / ".deps" / "sshd"
OWN = ("opt", "var", "home", "root", "run", "tmp", "srv", "mnt")
# Made in a mount namespace of its own, so that all of it goes with the last process there.
ENTER = """
root=$1
for name in bin lib lib64 sbin; do
  if [ -L /$name ]; then ln -sfn "$(readlink /$name)" "$root/$name"
  elif [ -d /$name ]; then mkdir -p "$root/$name"; mount --rbind "/$name" "$root/$name"; fi
done
mount --bind /usr "$root/usr"
mount --bind "$root.local" "$root/usr/local"
mount --rbind /proc "$root/proc"
mount --rbind /dev "$root/dev"
if [ -n "${SMALL-}" ]; then mount -t tmpfs -o "size=$SMALL" tmpfs "$root/opt"; fi
exec chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin \\
  LD_LIBRARY_PATH=/usr/local/lib /usr/local/sbin/sshd -D -e -f /etc/ssh/sshd_config
"""
SSHD_SETTINGS = """
HostKey /etc/ssh/host_key
PidFile none
UsePAM no
StrictModes no
PasswordAuthentication no
KbdInteractiveAuthentication no
MaxStartups 100
"""

# A hosts.toml: a controller and a worker on one host.
ONE_HOST = """
package = "fairway-0.1.0-linux-x86_64.tar.gz"
ssh-config = "ssh_config"
[controller]
ssh = "10.0.0.1"
[[worker]]
name = "w1"
ssh = "10.0.0.1"
[settings.worker]
runtime = "host"
"""


def sshd_program():
    """sshd and the libraries that this system may lack."""
    if pathlib.Path("/usr/sbin/sshd").is_file():
        return pathlib.Path("/usr/sbin/sshd"), []
    program = SSHD / "usr" / "sbin" / "sshd"
    if not program.is_file():
        pytest.skip("no sshd: `./dev test release` unpacks Debian's into .deps/sshd")
    return program, list(SSHD.glob("**/libwrap.so*"))


class SshHost:
    """One host. Its root's files are seen from here, below `root`."""

    def __init__(self, namespace, address, folder, key):
        self.namespace, self.address = namespace, address
        self.root, self.local = folder, folder.with_name(folder.name + ".local")
        self.key, self.sshd, self.small = key, None, None
        for name in (*OWN, "usr", "proc", "dev", "sys"):
            (self.root / name).mkdir(parents=True)
        (self.root / "tmp").chmod(0o1777)
        (self.root / "root").chmod(0o700)  # as Debian's
        (self.root / "run" / "sshd").mkdir()
        for name in ("bin", "lib", "sbin"):
            (self.local / name).mkdir(parents=True)
        shutil.copytree("/etc", self.root / "etc", symlinks=True)
        shutil.rmtree(self.root / "etc" / "ssh", ignore_errors=True)
        (self.root / "etc" / "ssh").mkdir()
        (self.root / "etc" / "ssh" / "sshd_config").write_text(SSHD_SETTINGS)
        program, libraries = sshd_program()
        shutil.copy(program, self.local / "sbin" / "sshd")
        for library in libraries:
            shutil.copy(library, self.local / "lib")
        self.add_user("sshd", 74, "/run/sshd")
        self.let_in("root", self.root / "root", 0)
        self.new_host_key()

    def add_user(self, name, uid, home):
        """Adds the user, if the system that the root was copied from has none of this name."""
        passwd, group = self.root / "etc" / "passwd", self.root / "etc" / "group"
        if not any(line.startswith(f"{name}:") for line in passwd.read_text().splitlines()):
            passwd.write_text(f"{passwd.read_text()}{name}:x:{uid}:{uid}::{home}:/bin/sh\n")
            group.write_text(f"{group.read_text()}{name}:x:{uid}:\n")
            shadow = self.root / "etc" / "shadow"
            shadow.write_text(f"{shadow.read_text()}{name}:*:19000:0:99999:7:::\n")

    def add_login(self, name, uid):
        self.add_user(name, uid, f"/home/{name}")
        self.let_in(name, self.root / "home" / name, uid)

    def let_in(self, name, home, uid):
        if home.joinpath(".ssh").exists():
            return
        (home / ".ssh").mkdir(parents=True)
        (home / ".ssh" / "authorized_keys").write_text(self.key.with_suffix(".pub").read_text())
        for path in (home, home / ".ssh", home / ".ssh" / "authorized_keys"):
            os.chown(path, uid, uid)

    def let_in_again(self, name):
        (self.root / name / ".ssh" / "authorized_keys").write_text(self.key.with_suffix(".pub").read_text())

    def new_host_key(self):
        key = self.root / "etc" / "ssh" / "host_key"
        key.unlink(missing_ok=True)
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True, input=b"y\n")

    def known(self):
        kind, key = (self.root / "etc" / "ssh" / "host_key.pub").read_text().split()[:2]
        return f"{self.address} {kind} {key}\n"

    def program(self, name, text):
        """Puts a script before the program of that name in the PATH of who comes by ssh."""
        path = self.local / "bin" / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return path

    def start(self):
        log = self.root.with_suffix(".sshd.log").open("a")
        self.sshd = subprocess.Popen(
            ["ip", "netns", "exec", self.namespace, "unshare", "--mount", "--propagation", "private", "sh", "-euc",
             ENTER, "sh", str(self.root)], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            env={**os.environ, **({"SMALL": self.small} if self.small else {})})
        log.close()
        wait_for(lambda: self.answers() or self.sshd.poll() is not None, f"sshd at {self.address}")
        assert self.sshd.poll() is None, self.root.with_suffix(".sshd.log").read_text()

    def answers(self):
        shown = subprocess.run(["ip", "netns", "exec", self.namespace, "cat", "/proc/net/tcp"], capture_output=True,
                               text=True, check=True).stdout
        return any(line.split()[1].endswith(":0016") and line.split()[3] == "0A" for line in shown.splitlines()[1:])

    def stop_sshd(self):
        """Those who are logged in stay."""
        self.sshd.terminate()
        self.sshd.wait(60)

    def cut(self):
        """Takes its cable out of the switch, which the host itself does not see."""
        self.cable("nomaster")

    def mend(self):
        self.cable("master", "bridge")

    def cable(self, *words):
        before, _, number = self.namespace.rpartition("-")
        assert ip("-n", f"{before}-switch", "link", "set", f"port{number}", *words).returncode == 0

    def processes(self):
        """Of everything in its network namespace: pid -> command line."""
        pids = subprocess.run(["ip", "netns", "pids", self.namespace], capture_output=True, text=True, check=True)
        found = {}
        for pid in map(int, pids.stdout.split()):
            with contextlib.suppress(OSError):
                found[pid] = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")[:-1]
        return found

    def daemons(self):
        """The daemons that run there, without their children: name of the settings file -> pid."""
        return {pathlib.Path(words[2]).stem: pid for pid, words in self.processes().items()
                if len(words) == 3 and "/releases/" in words[0] and words[1] == "--config"}

    def stop(self):
        def kill(how):
            for pid in self.processes():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, how)
        kill(signal.SIGTERM)
        with contextlib.suppress(AssertionError):
            wait_for(lambda: not any(self.processes().values()), "the end of a host", seconds=20)
        kill(signal.SIGKILL)
        if self.sshd is not None:
            self.sshd.wait(60)


class Operator:
    """Who types `fairway cluster`, in a namespace of its own, with this system's root and a folder."""

    def __init__(self, namespace, folder, hosts):
        self.namespace, self.folder, self.hosts = namespace, folder, hosts
        (folder / "ssh_config").write_text(textwrap.dedent(f"""
            Host *
              User root
              IdentityFile {folder}/key
              IdentitiesOnly yes
              UserKnownHostsFile {folder}/known_hosts
              GlobalKnownHostsFile /dev/null
            """))
        self.learn_keys()

    def learn_keys(self):
        (self.folder / "known_hosts").write_text("".join(host.known() for host in self.hosts))

    def words(self, script):
        return ["ip", "netns", "exec", self.namespace, "/bin/sh", "-c", script]

    def environment(self):
        return clean_environment(PATH=f"{BIN}:/usr/sbin:/usr/bin:/sbin:/bin", HOME=str(self.folder))

    def run(self, script):
        """Returns the ended command: its code, its output and its errors."""
        return subprocess.run(self.words(script), cwd=self.folder, capture_output=True, text=True, timeout=600,
                              check=False, env=self.environment(), stdin=subprocess.DEVNULL)

    def type(self, script, code=0):
        done = self.run(script)
        assert done.returncode == code, f"{script}\n{done.returncode}\n{done.stdout}{done.stderr}"
        return done


def make_package(folder, name="fairway-0.1.0-linux-x86_64.tar.gz", extra="", beside=None,
                 programs=None, binaries=BIN):
    """A tarball as `./dev package tarball` makes it, of the programs that were built. `extra` makes it another one;
    `beside`: the folder of one that was made before. `programs`: texts of programs that it has instead of those.
    With FAIRWAY_TEST_TARBALL that one is taken where nothing is asked for."""
    made = os.environ.get("FAIRWAY_TEST_TARBALL")
    if made and not extra and not programs and binaries == BIN:
        return pathlib.Path(shutil.copy(made, folder / name))
    tree = (beside or folder) / "tree" / "fairway-0.1.0"
    if not tree.exists():
        (tree / "bin").mkdir(parents=True)
        for program in ("fairway", "fairway-controller", "fairway-worker"):
            subprocess.run(["strip", "-o", tree / "bin" / program, binaries / program], check=True)
        shutil.copytree(ROOT / "deploy" / "systemd", tree / "share" / "fairway" / "systemd")
    for program, text in (programs or {}).items():
        (tree / "bin" / program).write_text(text)
    (tree / "EXTRA").write_text(extra)
    subprocess.run(["tar", "-C", tree.parent, "-I", "gzip -1", "-cf", folder / name, tree.name], check=True)
    return folder / name


@contextlib.contextmanager
def ssh_hosts(folder, count=3, small=None):
    """Yields an operator and hosts, which run. `small`: number of a host -> the size of its /opt."""
    sshd_program()
    folder.mkdir(exist_ok=True)
    key = folder / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    with network(count + 1) as (*names, own):
        hosts = [SshHost(name, f"10.0.0.{number}", folder / f"host{number}", key)
                 for number, name in enumerate(names, 1)]
        try:
            for number, host in enumerate(hosts, 1):
                host.small = (small or {}).get(number)
                host.start()
            yield Operator(own, folder, hosts), hosts
        finally:
            for host in hosts:
                host.stop()
                shutil.rmtree(host.root)
