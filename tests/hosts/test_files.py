# SPDX-License-Identifier: Apache-2.0
"""`fairway cluster` and its files: here while they are copied, and on the hosts, where others must not reach them."""

import os
import pathlib
import re
import shutil
import signal
import subprocess

import pytest

from cluster import wait_for
from ssh_hosts import ONE_HOST, make_package, ssh_hosts

FILE = ONE_HOST + "[settings.controller]\n"
UP, DOWN, PURGE, STATUS = (f"fairway cluster {verb}" for verb in (
    "up hosts.toml", "down hosts.toml", "down hosts.toml --purge", "status hosts.toml"))


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hosts")
    make_package(folder)
    with ssh_hosts(folder, 1) as (operator, (host,)):
        yield operator, host


@pytest.fixture(autouse=True)
def nothing_there(place):
    operator, host = place
    write(operator)
    yield
    for path in (host.local / "bin").iterdir():
        path.unlink()
    write(operator)
    operator.type(PURGE)


def write(operator, change=lambda text: text):
    (operator.folder / "hosts.toml").write_text(change(FILE))


def start(operator, script):
    """In a process group of its own, as a shell starts what is typed."""
    return subprocess.Popen(operator.words(f"exec {script}"), cwd=operator.folder, env=operator.environment(),
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                            start_new_session=True)


def test_a_package_that_is_replaced_while_it_is_copied_is_refused(place):
    operator, host = place
    host.program("tar", "touch /tmp/begun; until [ -e /tmp/go ]; do sleep 0.1; done; exec /usr/bin/tar \"$@\"")
    begun, go = host.root / "tmp/begun", host.root / "tmp/go"
    up = start(operator, UP)
    wait_for(begun.exists, "the copy")
    package = operator.folder / "fairway-0.1.0-linux-x86_64.tar.gz"
    shutil.copy(package, package.with_suffix(".next"))
    package.with_suffix(".next").rename(package)
    go.touch()
    said = up.communicate(timeout=300)[0]
    assert up.returncode == 1 and re.search(
        r"10\.0\.0\.1 \(controller, w1\): cannot install 0\.1\.0-\w+: .*gz was changed while it was copied, so", said), said
    assert not list((host.root / "opt/fairway/releases").iterdir())
    (host.local / "bin/tar").unlink()
    assert "started w1" in operator.type(UP).stdout


@pytest.mark.parametrize("end", [lambda up: os.killpg(up.pid, signal.SIGINT), *(lambda up, number=number: up.send_signal(number) for number in (
    signal.SIGTERM, signal.SIGINT, signal.SIGKILL))], ids=["ctrl-c", "term", "int", "kill"])
def test_a_command_that_is_ended_leaves_no_ssh_behind(place, end):
    operator, host = place
    some = host.root / "tmp/some"
    some.unlink(missing_ok=True)
    host.program("tar", "touch /tmp/some; exec sleep 600 </dev/null")
    up = start(operator, UP)
    wait_for(some.exists, "the copy")

    def copies():
        """Those of its ssh that have a command. What holds the connection ends by itself."""
        found = []
        for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = path.read_bytes().decode(errors="replace").split("\0")
            except OSError:
                continue
            if any(f"/fairway-ssh-{up.pid}-" in word for word in words) and any("tar -xzf" in word for word in words):
                found.append(words)
        return found

    assert copies()
    end(up)
    assert up.wait(60) != 0
    wait_for(lambda: not copies(), "the end of its ssh")


def test_a_plugin_can_be_read_by_its_daemon_whatever_the_umask_of_the_login_is(place):
    operator, host = place
    (operator.folder / "plugin.so").write_bytes(b"a plugin")
    host.program("dd", 'umask 077; exec /usr/bin/dd "$@"')
    write(operator, lambda text: f'plugin = "plugin.so"\n{text}')
    assert "copied the plugin" in operator.type(UP).stdout
    (plugin,) = (host.root / "opt/fairway/plugins").glob("*/plugin.so")
    assert plugin.stat().st_mode & 0o777 == 0o644


def test_nothing_is_installed_where_somebody_else_may_write(place):
    operator, host = place
    theirs = host.root / "opt/fairway"
    theirs.mkdir()
    os.chown(theirs, 1500, 1500)
    said = operator.type(UP, code=1).stderr
    assert "/opt/fairway is UNKNOWN's with mode 755, and must be root's alone to write: give it that owner" in said
    os.chown(theirs, 0, 0)
    theirs.chmod(0o777)
    assert "with mode 777, and must be root's alone" in operator.type(UP, code=1).stderr
    assert not list(theirs.iterdir())
    theirs.rmdir()


def test_the_workers_user_does_not_read_the_cas_key_on_a_host_that_the_controller_shares(place):
    operator, host = place
    said = operator.type(UP).stdout
    assert "started the controller, w1 joined, started w1" in said
    owner = {name: os.stat(f"/proc/{pid}").st_uid for name, pid in host.daemons().items()}
    assert owner["controller"] != owner["w1"] and 0 not in owner.values()
    for name in ("ca.key", "controller.key", "admin.token"):
        done = operator.run("ssh -F ssh_config 10.0.0.1 setpriv --reuid fairway --regid fairway --init-groups "
                            f"cat /opt/fairway/controller/{name}")
        assert done.returncode == 1 and "Permission denied" in done.stderr, done
    # The command that it shows still makes tokens.
    line = re.search(r"^  (ssh .* token create .*)$", said, re.M)[1].replace("NAME", "red")
    assert "fairway-controller" in line and "fw_" in operator.type(line).stdout


def test_a_worker_whose_certificate_has_expired_joins_again(place):
    operator, host = place
    write(operator, lambda text: f"{text}worker-certificate-life = '10s'\n")
    operator.type(UP)
    for signalled in (signal.SIGKILL, signal.SIGSTOP):  # one that does not run, and one that does and is silent
        pid = host.daemons()["w1"]
        os.kill(pid, signalled)
        shown = wait_for(lambda: "its certificate has expired; `fairway cluster up`" in (done := operator.run(STATUS)).stdout
                         and done, "the end of its certificate")
        assert shown.returncode == 1
        if signalled == signal.SIGSTOP:
            os.kill(pid, signal.SIGCONT)
        said = operator.type(UP).stdout
        assert "w1 joined again, since its certificate had expired" in said
        assert ("started w1" in said) == (signalled == signal.SIGKILL)
        wait_for(lambda: operator.run(STATUS).returncode == 0, "the worker")


def test_a_join_that_was_cut_is_made_whole(place):
    operator, host = place
    operator.type(UP)
    worker = host.root / "opt/fairway/workers/w1"
    for name in ("worker.pem", "worker.key"):
        operator.type(DOWN)
        certificate = (worker / "worker.pem").read_text()
        # The certificate without its key, or the key without its certificate.
        (worker / "worker.pem").write_text(certificate.partition("-----BEGIN PRIVATE")[0].partition("-----BEGIN EC")[0])
        (worker / name).unlink()
        again = " again, since its certificate or its key was missing" if name == "worker.key" else ""
        assert f"w1 joined{again}, started w1" in operator.type(UP).stdout
        assert "no change" in operator.type(UP).stdout
    # The certificate has its key in its file, and was written before the other one.
    operator.type(DOWN)
    (worker / "worker.key").unlink()
    assert operator.type(UP).stdout.startswith("10.0.0.1 (controller, w1): started the controller, started w1\n")


def test_what_a_workers_user_puts_in_place_of_its_files_holds_no_command_up(place):
    operator, host = place
    operator.type(UP)
    worker = host.root / "opt/fairway/workers/w1"
    for name, plant in (("worker.pem", os.mkfifo), ("worker.pem", lambda path: path.symlink_to("/dev/zero")), ("ca.pem", os.mkfifo)):
        (worker / name).unlink()
        plant(worker / name)
        (worker / "worker.key").unlink(missing_ok=True)
        assert operator.type(STATUS).stdout.count(" up") == 2
        assert "no change" in operator.type(UP).stdout
        assert "ended w1, ended controller" in operator.type(DOWN).stdout
        assert "started the controller, w1 joined" in operator.type(UP).stdout
        assert (worker / name).is_file() and not (worker / name).is_symlink()
    # Nor who stops a process that reads them as that user.
    host.program("head", 'kill -STOP $$; exec /usr/bin/head "$@"')
    assert operator.type(STATUS).stdout.count(" up") == 2


def test_a_certificate_with_odd_characters_is_replaced(place):
    operator, host = place
    operator.type(UP)
    for odd in (b"|", b"\0", b"\xff"):
        operator.type(DOWN)
        file = host.root / "opt/fairway/workers/w1/worker.pem"
        begin = b"-----BEGIN CERTIFICATE-----\n"
        file.write_bytes(file.read_bytes().replace(begin, begin + odd))
        assert "w1 joined again" in operator.type(UP).stdout
        assert "no change" in operator.type(UP).stdout


def test_a_join_that_another_command_was_quicker_with_is_not_told(place):
    operator, host = place
    operator.type(UP)
    operator.type(DOWN)
    worker = host.root / "opt/fairway/workers/w1"
    shutil.copytree(worker, host.root / "tmp/kept")
    for path in (host.root / "tmp/kept").iterdir():
        os.chown(path, (worker / path.name).stat().st_uid, (worker / path.name).stat().st_gid)
    (worker / "worker.pem").unlink()
    # The other command is done when this one has its token.
    host.program("setpriv", 'case "$*" in *"token create"*) cp -a /tmp/kept/* /opt/fairway/workers/w1 ;; esac\n'
                            'exec /usr/bin/setpriv "$@"')
    said = operator.type(UP).stdout
    assert "started w1" in said and "joined" not in said
    assert (worker / "worker.pem").read_bytes() == (host.root / "tmp/kept/worker.pem").read_bytes()


def test_a_certificate_without_its_ca_is_of_no_other_cluster(place):
    operator, host = place
    operator.type(UP)
    operator.type(DOWN)
    worker = host.root / "opt/fairway/workers/w1"
    own = (worker / "ca.pem").read_text()
    (worker / "ca.pem").unlink()
    assert "w1 joined again" in operator.type(UP).stdout
    # One of another cluster is refused though its key is missing.
    operator.type(DOWN)
    assert (worker / "ca.pem").read_text() == own
    operator.type(f"fairway init {operator.folder}/other")
    shutil.copy(operator.folder / "other/ca.pem", worker / "ca.pem")
    certificate = (worker / "worker.pem").read_text()
    (worker / "worker.pem").write_text(certificate.partition("-----BEGIN PRIVATE")[0].partition("-----BEGIN EC")[0])
    (worker / "worker.key").unlink()
    assert "w1 joined another cluster before" in operator.type(UP, code=1).stderr


def test_what_ends_has_its_drain_limit_and_is_killed_only_then(place):
    operator, host = place
    write(operator, lambda text: text.replace('runtime = "host"', 'runtime = "host"\ndrain-limit = "3m"'))
    operator.type(UP)
    limit = host.root / "opt/fairway/run/w1.limit"
    assert limit.read_text() == "230\n"  # s: the three minutes, and a while
    limit.write_text("1\n")
    os.kill(host.daemons()["w1"], signal.SIGSTOP)
    assert "ended w1, ended controller" in operator.type(DOWN).stdout and not host.daemons()
