# SPDX-License-Identifier: Apache-2.0
"""`fairway cluster` on three hosts to which only ssh leads, by the commands of docs/hosts.md. More: tests/hosts."""

import pathlib
import re

from cluster import wait_for
from cluster_page import DOWN, PURGE, STATUS, UNCHANGED, UP, Program, place, retransmits, type_token, up, write_file

__all__ = ["place", "up"]  # pytest's fixtures


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


def left_sockets():
    """Of commands that have ended; other tests may have some of their own at work."""
    return {path for path in pathlib.Path("/tmp").glob("fairway-ssh-*")
            if not pathlib.Path("/proc", path.name.split("-")[2]).exists()}


def test_down_ends_all_and_purge_leaves_nothing(up):
    operator, hosts, _ = up
    sockets = left_sockets()
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
    assert left_sockets() <= sockets
