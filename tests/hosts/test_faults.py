# SPDX-License-Identifier: Apache-2.0
"""`fairway cluster` where something is wrong: each fault is one line about its host, and the others go on."""

import os
import pathlib
import re
import signal
import subprocess

import pytest

from cluster import wait_for
from ssh_hosts import make_package, ssh_hosts

GOOD, SILENT, REFUSES, CHANGED, UNKNOWN, SHUT, ODD, SMALL, NO_RIGHTS, PLAIN = range(1, 11)
LOGINS = {NO_RIGHTS: "somebody", PLAIN: "somebody"}


def file_of(numbers, folder="", more="", controller=""):
    lines = ['package = "fairway-0.1.0-linux-x86_64.tar.gz"', 'ssh-config = "ssh_config"', more,
             f"{folder}\n[controller]", 'ssh = "10.0.0.1"', "[settings.worker]", 'runtime = "host"',
             f"[settings.controller]\n{controller}"]
    for number in numbers:
        login = f"{LOGINS[number]}@" if number in LOGINS else ""
        lines += ["[[worker]]", f'name = "w{number}"', f'ssh = "{login}10.0.0.{number}"']
    return "\n".join(lines)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hosts")
    make_package(folder)
    with ssh_hosts(folder, 10, {SMALL: "1m"}) as (operator, hosts):
        yield operator, dict(enumerate(hosts, 1))


@pytest.fixture(autouse=True)
def nothing_there(place):
    yield
    operator, hosts = place
    (operator.folder / "hosts.toml").write_text(file_of([GOOD]))
    operator.type("fairway cluster down hosts.toml --purge")
    for host in hosts.values():
        for path in (host.local / "bin").iterdir():
            path.unlink()


def write(operator, text):
    (operator.folder / "hosts.toml").write_text(text)


def failing_up(operator):
    """What `up` says of each host that fails, by its name."""
    done = operator.type("fairway cluster up hosts.toml", code=1)
    said = dict(re.findall(r"^fairway cluster up: (\S+) \([^)]*\): (.*)$", done.stderr, re.M))
    return done, said


def test_each_fault_is_one_line_and_the_others_go_on(place):
    operator, hosts = place
    for number in LOGINS:
        hosts[number].add_login("somebody", 1500)
    # With a folder that root alone can write, a login is not enough.
    hosts[SILENT].cut()
    hosts[REFUSES].stop_sshd()
    known = operator.folder / "known_hosts"
    key = (hosts[GOOD].root / "etc/ssh/host_key.pub").read_text().split()[1]
    known.write_text("".join(
        "" if number == UNKNOWN else host.known().replace(host.known().split()[2], key) if number == CHANGED else host.known()
        for number, host in hosts.items()))
    (hosts[SHUT].root / "root/.ssh/authorized_keys").write_text("")
    hosts[ODD].program("uname", "[ $1 = -m ] && echo riscv64 || exec /usr/bin/uname $1")
    write(operator, file_of([n for n in hosts if n != PLAIN], 'folder = "/opt/fairway"'))
    done, said = failing_up(operator)
    starts = {
        "10.0.0.2": "ssh cannot reach it: it does not answer: is it on, and is there a way to it?",
        "10.0.0.3": "ssh cannot reach it: nothing listens at its ssh port",
        "10.0.0.4": "ssh cannot reach it: its host key is not the one that ssh knows: another host answers there",
        "10.0.0.5": "ssh cannot reach it: ssh does not know its host key: type `ssh 10.0.0.5` once",
        "10.0.0.6": "ssh cannot reach it: it does not let this user in",
        "10.0.0.7": "the package is for Linux on x86_64, and this host has Linux on riscv64",
        "10.0.0.8": "/opt/fairway has 1 MiB free, and what is to be copied takes ",
        "somebody@10.0.0.9": "user somebody can make nothing in /opt: name another folder",
    }
    assert said.keys() == starts.keys(), done.stderr
    for name, start in starts.items():
        assert said[name].startswith(start), said[name]
    assert re.match(r"10\.0\.0\.1 \(controller, w1\): installed .*, started w1\n$", done.stdout), done.stdout
    assert done.stderr.splitlines()[-1] == "fairway cluster up: 8 of 9 hosts failed; the others are up"
    # Nothing was begun where it could not be ended.
    assert not any((hosts[n].root / "opt/fairway").exists() for n in hosts if n != GOOD)
    # When they are mended the same command brings them in.
    hosts[SILENT].mend()
    hosts[REFUSES].start()
    operator.learn_keys()
    hosts[SHUT].let_in_again("root")
    (hosts[ODD].local / "bin/uname").unlink()
    write(operator, file_of([n for n in hosts if n not in (SMALL, NO_RIGHTS)]))
    said = operator.type("fairway cluster up hosts.toml").stdout.splitlines()
    assert said[0] == "10.0.0.1 (controller, w1): no change"
    assert [line.rpartition(", ")[2] for line in said[1:8]] == [f"started w{n}" for n in (2, 3, 4, 5, 6, 7, 10)]
    # A user who is not root has all in the home folder, as processes of that user.
    (pid,) = hosts[PLAIN].daemons().values()
    assert (hosts[PLAIN].root / "home/somebody/.local/fairway/workers/w10/worker.pem").is_file()
    assert os.stat(f"/proc/{pid}").st_uid == 1500
    operator.type("fairway cluster down hosts.toml --purge")


def test_what_the_controller_does_not_take_is_said_and_no_worker_starts(place):
    operator, hosts = place
    write(operator, file_of([GOOD], controller="devcies = 2"))
    done, said = failing_up(operator)
    assert "unknown setting devcies" in said["10.0.0.1"] or "devcies" in said["10.0.0.1"], done.stderr
    assert "no worker was started, since there is no controller" in done.stderr and not hosts[GOOD].daemons()
    # A port that something else has.
    taker = subprocess.Popen(["ip", "netns", "exec", hosts[GOOD].namespace, "python3", "-c",
                              "import socket, sys; s = socket.create_server(('10.0.0.1', 29000)); print(flush=True); "
                              "sys.stdin.read()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    taker.stdout.readline()
    write(operator, file_of([GOOD]))
    done, said = failing_up(operator)
    assert re.match(r"the controller has ended: .*10\.0\.0\.1:29000.*", said["10.0.0.1"]), done.stderr
    taker.communicate()
    assert "started w1" in operator.type("fairway cluster up hosts.toml").stdout


def test_sudo_must_ask_nothing_and_then_does_all(place):
    operator, hosts = place
    hosts[GOOD].program("sudo", 'echo "sudo: a password is required" >&2; exit 1')
    write(operator, file_of([GOOD], more="sudo = true"))
    done, said = failing_up(operator)
    assert said["10.0.0.1"].startswith("sudo does not let this user in without a password"), done.stderr
    hosts[GOOD].program("sudo", '[ "$1" = -n ] && shift && exec "$@"')
    said = operator.type("fairway cluster up hosts.toml").stdout
    assert "ssh -F" in said and " sudo -n runuser -u fairway-controller -- " in said


def test_programs_that_do_not_run_there_are_not_installed(place):
    operator, hosts = place
    (operator.folder / "broken").mkdir(exist_ok=True)
    package = make_package(operator.folder / "broken", programs={
        "fairway-worker": "#!/bin/sh\necho \"libc.so.6: version 'GLIBC_2.99' not found\"; exit 1\n"})
    write(operator, file_of([GOOD]).replace("fairway-0.1.0", f"broken/{package.name}".replace("-linux-x86_64.tar.gz", "")))
    done, said = failing_up(operator)
    assert "its programs do not run here: libc.so.6: version 'GLIBC_2.99' not found" in said["10.0.0.1"], done.stderr
    assert list((hosts[GOOD].root / "opt/fairway/releases").iterdir()) == []
    # A disk that gets full while it is copied.
    hosts[GOOD].program("tar", "cat >/dev/null; echo 'tar: bin/fairway: Cannot write: No space left on device' >&2; exit 2")
    write(operator, file_of([GOOD]))
    done, said = failing_up(operator)
    assert re.match(r"cannot install 0\.1\.0-\w+: tar: .* No space left on device", said["10.0.0.1"]), done.stderr
    assert list((hosts[GOOD].root / "opt/fairway/releases").iterdir()) == []


def test_an_up_that_is_killed_leaves_nothing_that_the_next_one_trips_over(place):
    operator, hosts = place
    write(operator, file_of([GOOD]))
    hosts[GOOD].program("tar", "head -c 1000000 >/tmp/some; exec sleep 600 </dev/null")
    killed = subprocess.Popen(operator.words("exec fairway cluster up hosts.toml"), cwd=operator.folder, env=operator.environment(),
                              stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for((hosts[GOOD].root / "tmp/some").exists, "the copy")
    killed.send_signal(signal.SIGKILL)
    killed.wait(60)
    (hosts[GOOD].local / "bin/tar").unlink()
    sockets = f"fairway-ssh-{killed.pid}-*"
    assert len(list(pathlib.Path("/tmp").glob(sockets))) == 1
    assert "started w1" in operator.type("fairway cluster up hosts.toml").stdout
    (release,) = (path for path in (hosts[GOOD].root / "opt/fairway/releases").iterdir() if path.name[0] != ".")
    assert (release / "bin/fairway-worker").is_file()
    assert not list(pathlib.Path("/tmp").glob(sockets))


def test_two_operators_at_once_make_one_cluster(place):
    operator, hosts = place
    write(operator, file_of([GOOD]))
    both = [subprocess.Popen(operator.words("fairway cluster up hosts.toml"), cwd=operator.folder, env=operator.environment(),
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            for _ in range(2)]
    said = [process.communicate(timeout=300)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    assert set(hosts[GOOD].daemons()) == {"controller", "w1"}
    assert "no change" in operator.type("fairway cluster up hosts.toml").stdout


def test_no_token_is_in_an_argument_or_an_environment(place):
    operator, hosts = place
    # All that is done as the daemons' user goes through it.
    hosts[GOOD].program("setpriv", 'echo "$@" >>/tmp/said; env >>/tmp/said; exec /usr/bin/setpriv "$@"')
    write(operator, file_of([GOOD]))
    operator.type("fairway cluster up hosts.toml")
    said = (hosts[GOOD].root / "tmp/said").read_text()
    assert "fairway join" in said and "token create" in said and "fw_" not in said
    (hosts[GOOD].local / "bin/setpriv").unlink()
    kept = subprocess.run(["grep", "-rl", "fw_", hosts[GOOD].root / "opt/fairway"], capture_output=True, text=True, check=False)
    assert [line for line in kept.stdout.splitlines() if "/releases/" not in line] == [
        f"{hosts[GOOD].root}/opt/fairway/controller/admin.token"]


def test_a_worker_of_another_cluster_is_not_taken_over(place):
    operator, hosts = place
    write(operator, file_of([GOOD, SILENT]))
    operator.type("fairway cluster up hosts.toml")
    write(operator, file_of([GOOD]))
    operator.type("fairway cluster down hosts.toml --purge")  # the other host is forgotten
    os.kill(hosts[SILENT].daemons()["w2"], signal.SIGKILL)
    wait_for(lambda: not hosts[SILENT].daemons(), "its end")
    write(operator, file_of([GOOD, SILENT]))
    _, said = failing_up(operator)
    assert said["10.0.0.2"] == ("w2 joined another cluster before: remove /opt/fairway/workers/w2 there, and type the same again")
    operator.type("fairway cluster down hosts.toml --purge")


def test_what_others_made_is_not_touched(place):
    operator, hosts = place
    mine = hosts[GOOD].root / "opt/mine"
    mine.mkdir()
    (mine / "file").write_text("kept")
    write(operator, file_of([GOOD], 'folder = "/opt/mine"'))
    _, said = failing_up(operator)
    assert "/opt/mine has files that are not of `fairway cluster`" in said["10.0.0.1"]
    done = operator.type("fairway cluster down hosts.toml --purge", code=1)
    assert "/opt/mine was not made by `fairway cluster`, so nothing in it is removed" in done.stderr
    assert [path.name for path in mine.iterdir()] == ["file"]
