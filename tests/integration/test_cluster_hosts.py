# SPDX-License-Identifier: Apache-2.0
"""`fairway cluster` on three hosts to which only ssh leads, by the commands of docs/hosts.md."""

import pathlib
import re
import shutil
import subprocess
import sys

import pytest

from cluster import wait_for
from ssh_hosts import make_package, ssh_hosts

HERE = pathlib.Path(__file__).resolve().parent
PAGE = HERE.parents[1] / "docs" / "hosts.md"
UP, STATUS, UPGRADE, DOWN, PURGE = re.findall(r"^(fairway cluster .*?)(?:\s+#.*)?$", PAGE.read_text(), re.M)
UNCHANGED = [f"10.0.0.{n} ({name}): no change" for n, name in ((1, "controller"), (2, "w0"), (3, "w1"))]


def file_of_the_page():
    return PAGE.read_text().partition("```toml\n")[2].partition("```")[0]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """The operator and the hosts of the page, with nothing on them."""
    plugin = pytest.importorskip("xla_plugins.xla_cpu_pjrt")
    folder = tmp_path_factory.mktemp("hosts")
    make_package(folder)
    (folder / "xla_cpu_pjrt.so").symlink_to(pathlib.Path(plugin.__path__[0]) / "xla_cpu_pjrt.so")
    with ssh_hosts(folder) as (operator, hosts):
        yield operator, hosts


def write_file(operator, change=lambda text: text):
    (operator.folder / "hosts.toml").write_text(f'ssh-config = "ssh_config"\n{change(file_of_the_page())}')


def with_settings(operator, settings):
    """The same with these settings of w1."""
    write_file(operator, lambda text: text.replace('island = "island1"', f'island = "island1"\nsettings = {{ {settings} }}'))


@pytest.fixture
def up(place):
    """The same, with the cluster up, as the page says."""
    operator, hosts = place
    write_file(operator)
    said = operator.type(UP).stdout
    return operator, hosts, said


def type_token(operator, said):
    """Types the line for a token that `up` ended with, and then that line's. Returns what sets a client's variables."""
    line = re.search(r"^  (ssh .* token create .*)$", said, re.M)[1].replace("NAME", "red")
    lines = operator.type(line).stdout
    return f"{lines}export JAX_PLATFORMS=fairway,cpu\n"


class Program:
    """two_hosts_program.py, on the operator's machine."""

    def __init__(self, operator, variables):
        shutil.copy(HERE / "two_hosts_program.py", operator.folder)
        self.enough, self.log = operator.folder / "enough", operator.folder / "program.log"
        self.enough.unlink(missing_ok=True)
        with self.log.open("w") as log:
            self.process = subprocess.Popen(operator.words(f"{variables}{sys.executable} two_hosts_program.py"),
                                            cwd=operator.folder, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                                            env=operator.environment())

    def steps(self):
        return len(re.findall(r"^step ", self.log.read_text(), re.M))

    def goes_on(self):
        steps = self.steps()
        wait_for(lambda: self.steps() > steps + 5 or self.process.poll() is not None, "steps of the program")
        assert self.process.poll() is None, self.log.read_text()[-3000:]

    def result(self):
        self.enough.touch()
        return self.process.wait(120), self.log.read_text()

    def stop(self):
        self.process.kill()
        self.process.wait(60)


def retransmits(host):
    """Whether it has sent something on a connection that was not acknowledged for a while."""
    shown = subprocess.run(["ip", "netns", "exec", host.namespace, "cat", "/proc/net/tcp"], capture_output=True,
                           text=True, check=True).stdout
    return any(int(line.split()[6], 16) > 0 for line in shown.splitlines()[1:])


def test_up_leads_to_jax_on_two_hosts_and_changes_nothing_the_second_time(place):
    operator, hosts = place
    write_file(operator)
    said = operator.type(UP).stdout
    assert [re.sub(r"0\.1\.0-[0-9a-f]{12}", "RELEASE", line) for line in said.splitlines()[:3]] == [
        "10.0.0.1 (controller): installed RELEASE, made the cluster's CA, started the controller",
        "10.0.0.2 (w0): installed RELEASE, copied the plugin, w0 joined, started w0",
        "10.0.0.3 (w1): installed RELEASE, copied the plugin, w1 joined, started w1"]
    program = Program(operator, type_token(operator, said))
    try:
        program.goes_on()
        running = [host.daemons() for host in hosts]
        assert [set(daemons) for daemons in running] == [{"controller"}, {"w0"}, {"w1"}]
        again = operator.type(UP)
        assert again.stdout.splitlines()[:3] == UNCHANGED and again.stderr == ""
        assert [host.daemons() for host in hosts] == running
        shown = operator.type(STATUS).stdout
        assert re.findall(r"up.*$", shown, re.M) == ["up", "up, devices: 2", "up, devices: 2"]
        code, text = program.result()
        assert code == 0 and text.endswith("as NumPy computes them\n"), text
    finally:
        program.stop()
    # Executors run clients' code, so nothing of it is root's.
    for host in hosts:
        for pid in host.daemons().values():
            assert "\nUid:\t0\t" not in pathlib.Path(f"/proc/{pid}/status").read_text()


def test_a_host_that_is_cut_for_a_moment_costs_nothing(up):
    operator, hosts, said = up
    for _ in range(3):  # a second counts here, and this system may be busy
        program = Program(operator, type_token(operator, said))
        try:
            program.goes_on()
            hosts[2].cut()
            wait_for(lambda: retransmits(hosts[2]), "bytes that do not arrive", seconds=30)
            hosts[2].mend()
            steps = program.steps()
            wait_for(lambda: program.steps() > steps + 20 or program.process.poll() is not None, "more steps")
            code, text = program.result()
        finally:
            hosts[2].mend()
            program.stop()
        if code == 0:
            break
        wait_for(lambda: operator.run(STATUS).returncode == 0, "the host")
    assert code == 0 and text.endswith("as NumPy computes them\n"), text


def test_a_host_that_is_cut_for_longer_is_lost_and_comes_back_by_itself(up):
    operator, hosts, said = up
    variables = type_token(operator, said)
    program = Program(operator, variables)
    try:
        program.goes_on()
        hosts[2].cut()
        shown = wait_for(lambda: "has lost it" in (done := operator.run(STATUS)).stdout and done, "the loss of the host")
        assert shown.returncode == 1 and re.search(r"^w0 .* up, devices: 2$", shown.stdout, re.M)
        assert re.search(r"^w1 .* its host is not reached; the controller has lost it$", shown.stdout, re.M)
        assert re.search(r"^fairway cluster status: 10\.0\.0\.3 \(w1\): ssh cannot reach it: it does not answer", shown.stderr)
        hosts[2].mend()
        assert program.process.wait(120) != 0 and "acknowledged nothing for 3 s" in program.log.read_text()
    finally:
        hosts[2].mend()
        program.stop()
    wait_for(lambda: operator.run(STATUS).returncode == 0, "the host")
    program = Program(operator, variables)
    try:
        assert program.result()[0] == 0
    finally:
        program.stop()
    assert operator.type(UP).stdout.splitlines()[:3] == UNCHANGED


def test_up_starts_what_has_ended_and_nothing_else(up):
    operator, hosts, _ = up
    before = [host.daemons() for host in hosts]
    assert operator.type(f"kill -9 {before[1]['w0']}").returncode == 0
    wait_for(lambda: not hosts[1].daemons(), "the end of the worker")
    shown = operator.type(STATUS, code=1).stdout
    assert re.search(r"^w0 .* does not run$", shown, re.M) and re.search(r"^w1 .* up, devices: 2$", shown, re.M)
    said = operator.type(UP).stdout.splitlines()[:3]
    assert said == [UNCHANGED[0], "10.0.0.2 (w0): started w0", UNCHANGED[2]]
    after = [host.daemons() for host in hosts]
    assert (after[0], after[2]) == (before[0], before[2]) and after[1] != before[1]


def test_upgrade_restarts_only_what_runs_otherwise_than_the_file_says(up):
    operator, hosts, _ = up
    before = [host.daemons() for host in hosts]
    # Other settings of one worker: `up` leaves it alone.
    with_settings(operator, 'drain-limit = "5s"')
    said = operator.type(UP).stdout.splitlines()
    note = "w1 runs with other settings: `fairway cluster upgrade` has it run what the file says"
    assert said[:3] == [*UNCHANGED[:2], f"{UNCHANGED[2]}; {note}"]
    assert operator.type(UPGRADE).stdout.splitlines() == [*UNCHANGED[:2], "10.0.0.3 (w1): ended w1, started w1"]
    assert [host.daemons() for host in hosts[:2]] == before[:2]
    assert operator.type(UPGRADE).stdout.splitlines() == UNCHANGED
    # Those that the controller does not take.
    with_settings(operator, "devices = 1")
    done = operator.type(UPGRADE, code=1)
    assert done.stderr.splitlines()[0].startswith(
        "fairway cluster upgrade: 10.0.0.3 (w1): w1 does not come up: executor ends with code 4: fenced by the "
        'controller: worker "w1" was known with 2 devices')
    assert "it stopped at island1" in done.stderr and done.stdout.splitlines() == UNCHANGED[:2]
    # Another package.
    (operator.folder / "next").mkdir()
    make_package(operator.folder / "next", "fairway-0.1.0-linux-x86_64.tar.gz", "another", operator.folder)
    write_file(operator, lambda text: text.replace("fairway-0.1.0", "next/fairway-0.1.0"))
    said = operator.type(UP).stdout
    assert said.count("installed 0.1.0-") == 3 and said.count("`fairway cluster upgrade` has it run") == 3
    said = operator.type(UPGRADE).stdout.splitlines()
    assert said == ["10.0.0.1 (controller): ended the controller, and all sessions with it, started the controller",
                    "10.0.0.2 (w0): ended w0, started w0", "10.0.0.3 (w1): ended w1, started w1"]
    shown = operator.type(STATUS).stdout
    assert len(set(re.findall(r"0\.1\.0-[0-9a-f]{12}", shown))) == 1 and shown.count("devices: 2") == 2
    # And back.
    write_file(operator)
    assert "installed" not in operator.type(UPGRADE).stdout
    assert [len(list((host.root / "opt/fairway/releases").iterdir())) for host in hosts] == [2, 2, 2]
    assert operator.type(UP).stdout.splitlines()[:3] == UNCHANGED


def test_down_ends_all_and_purge_leaves_nothing(up):
    operator, hosts, _ = up
    assert operator.type(DOWN).stdout.splitlines() == [
        "10.0.0.1 (controller): ended controller", "10.0.0.2 (w0): ended w0", "10.0.0.3 (w1): ended w1"]
    assert not any(host.daemons() for host in hosts)
    assert operator.type(DOWN).stdout.splitlines() == UNCHANGED
    assert operator.type(UP).stdout.splitlines()[:3] == [
        "10.0.0.1 (controller): started the controller", "10.0.0.2 (w0): started w0", "10.0.0.3 (w1): started w1"]
    assert operator.type(PURGE).stdout.splitlines() == [
        "10.0.0.1 (controller): ended controller, removed /opt/fairway",
        "10.0.0.2 (w0): ended w0, removed /opt/fairway", "10.0.0.3 (w1): ended w1, removed /opt/fairway"]
    assert not any((host.root / "opt" / "fairway").exists() or host.daemons() for host in hosts)
    assert operator.type(PURGE).stdout.splitlines() == UNCHANGED
    assert not [path for path in pathlib.Path("/tmp").glob("fairway-ssh-*") if path.stat().st_uid == 0]
