# SPDX-License-Identifier: Apache-2.0
"""`fairway cluster` on the hosts of docs/hosts.md, when a daemon has ended, and when the file changes."""

import re

from cluster import wait_for
from cluster_page import STATUS, UNCHANGED, UP, UPGRADE, place, up, write_file, write_settings
from ssh_hosts import make_package

__all__ = ["place", "up"]  # pytest's fixtures


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
    write_settings(operator, 'drain-limit = "5s"')
    said = operator.type(UP).stdout.splitlines()
    note = "w1 runs with other settings: `fairway cluster upgrade` has it run what the file says"
    assert said[:3] == [*UNCHANGED[:2], f"{UNCHANGED[2]}; {note}"]
    assert operator.type(UPGRADE).stdout.splitlines() == [*UNCHANGED[:2], "10.0.0.3 (w1): ended w1, started w1"]
    assert [host.daemons() for host in hosts[:2]] == before[:2]
    assert operator.type(UPGRADE).stdout.splitlines() == UNCHANGED
    # Those that the controller does not take.
    write_settings(operator, "devices = 1")
    done = operator.type(UPGRADE, code=1)
    assert done.stderr.splitlines()[0].startswith(
        "fairway cluster upgrade: 10.0.0.3 (w1): w1 does not come up: executor ends with code 4: fenced by the "
        'controller: worker "w1" was known with 2 devices')
    assert "it stopped at island1" in done.stderr and done.stdout.splitlines() == UNCHANGED[:2]
    assert "`fairway cluster down` and `up` let it be another" in done.stderr
    write_file(operator)
    assert operator.type(UPGRADE).stdout.splitlines() == [*UNCHANGED[:2], "10.0.0.3 (w1): ended w1, started w1"]
    # Another package.
    (operator.folder / "next").mkdir()
    make_package(operator.folder / "next", "fairway-0.1.0-linux-x86_64.tar.gz", "another", operator.folder)
    write_file(operator, lambda text: text.replace("fairway-0.1.0", "next/fairway-0.1.0"))
    said = operator.type(UP).stdout
    assert said.count("installed 0.1.0-") == 3 and said.count("`fairway cluster upgrade` has it run") == 3
    hosts[0].program("mv", '/usr/bin/mv "$@" || exit; [ -e /opt/fairway/current ] || touch /tmp/lost')
    said = operator.type(UPGRADE).stdout.splitlines()
    (hosts[0].local / "bin" / "mv").unlink()
    assert not (hosts[0].root / "tmp" / "lost").exists()  # the link to the current release is there all the time
    assert said == ["10.0.0.1 (controller): ended the controller, and all sessions with it, started the controller",
                    "10.0.0.2 (w0): ended w0, started w0", "10.0.0.3 (w1): ended w1, started w1"]
    shown = operator.type(STATUS).stdout
    assert len(set(re.findall(r"0\.1\.0-[0-9a-f]{12}", shown))) == 1 and shown.count("devices: 2") == 2
    # And back.
    write_file(operator)
    assert "installed" not in operator.type(UPGRADE).stdout
    assert [len(list((host.root / "opt/fairway/releases").iterdir())) for host in hosts] == [2, 2, 2]
    assert operator.type(UP).stdout.splitlines()[:3] == UNCHANGED


def test_an_upgrade_whose_copy_or_settings_fail_on_one_host_ends_nothing_anywhere(up):
    operator, hosts, _ = up
    before = [host.daemons() for host in hosts]
    (operator.folder / "failing").mkdir()
    make_package(operator.folder / "failing", "fairway-0.1.0-linux-x86_64.tar.gz", "a third", operator.folder)
    write_file(operator, lambda text: text.replace("fairway-0.1.0", "failing/fairway-0.1.0"))
    hosts[2].program("tar", "cat >/dev/null; echo 'tar: bin: No space left on device' >&2; exit 2")
    said = operator.type(UPGRADE, code=1).stderr.splitlines()
    (hosts[2].local / "bin" / "tar").unlink()
    assert re.fullmatch(r"fairway cluster upgrade: 10\.0\.0\.3 \(w1\): cannot install 0\.1\.0-\w+: tar: .* No space left on device",
                        said[0]), said
    assert len(said) == 2 and "it stopped before anything was ended" in said[1]
    assert [host.daemons() for host in hosts] == before
    # Settings of one worker, and of the controller, that the package refuses.
    for name, number, change in (
            ("w1", 3, lambda text: text.replace('island = "island1"', 'island = "island1"\nsettings = { drain-limit = "soon" }')),
            ("controller", 1, lambda text: text.replace("log-level", "lgo-level"))):
        write_file(operator, change)
        etc = hosts[number - 1].root / "opt/fairway/etc"
        kept = (etc / f"{name}.toml").read_text()
        said = operator.type(UPGRADE, code=1).stderr.splitlines()
        assert re.match(rf"fairway cluster upgrade: 10\.0\.0\.{number} \({name}\): 0\.1\.0-\w+ would not take the settings of {name}: ",
                        said[0]), said
        assert len(said) == 2 and "it stopped before anything was ended" in said[1]
        assert [host.daemons() for host in hosts] == before
        assert (etc / f"{name}.toml").read_text() == kept and not list(etc.glob("*.part"))
    write_file(operator)
    assert operator.type(UPGRADE).stdout.splitlines() == UNCHANGED
