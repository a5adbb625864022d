# SPDX-License-Identifier: Apache-2.0
"""`fairway cluster` on a host with systemd: its units, given to a stand-in for systemctl, since no systemd runs here."""

import hashlib
import os
import re
import shutil
import signal

from cluster import wait_for
from ssh_hosts import ONE_HOST, make_package, ssh_hosts

SYSTEMCTL = r"""
echo "$@" >>/tmp/calls
for unit in "$@"; do :; done
file=/etc/systemd/system/$unit pid=/run/$unit.pid
value() { sed -n "s/^$1=//p" "$file"; }
case $1 in
  show) [ "$3" = InvocationID ] && echo now || cat "$pid" 2>/dev/null || echo 0 ;;
  start)
    umask 077
    setsid setpriv --reuid "$(value User)" --regid "$(value Group)" --init-groups $(value ExecStart) \
      </dev/null >"/run/$unit.log" 2>&1 9>&- &
    echo $! >"$pid" ;;
  disable)
    if [ -e /tmp/refuses ]; then echo "Failed to disable unit: Access denied" >&2; exit 1; fi
    [ -f "$pid" ] || exit 0
    kill "$(cat "$pid")"
    while readlink "/proc/$(cat "$pid")/exe" >/dev/null; do sleep 0.1; done
    rm "$pid" ;;
esac
"""


def give_systemd(host):
    (host.root / "run/systemd/system").mkdir(parents=True)
    (host.root / "etc/systemd/system").mkdir(parents=True, exist_ok=True)
    host.program("systemctl", SYSTEMCTL)
    host.program("journalctl", 'unit=$(ls -t /run/*.log | head -n 1); tail -n 5 "$unit"')


def units(host):
    return {path.name: path for path in (host.root / "etc/systemd/system").glob("fairway-cluster*")}


def test_daemons_are_confined_services_that_start_with_the_host(tmp_path):
    make_package(tmp_path)
    (tmp_path / "hosts.toml").write_text(ONE_HOST)
    with ssh_hosts(tmp_path, 1) as (operator, (host,)):
        give_systemd(host)
        (tmp_path / "hosts.toml").write_text(f'folder = "~/fairway"\n{ONE_HOST}')
        assert "services do not see home folders, such as /root/fairway: name" in operator.type(
            "fairway cluster up hosts.toml", code=1).stderr
        (tmp_path / "hosts.toml").write_text(ONE_HOST)
        assert "started the controller" in operator.type("fairway cluster up hosts.toml").stdout
        calls = (host.root / "tmp/calls").read_text()
        for name in ("controller", "w1"):
            unit = f"fairway-cluster-{name}.service"
            assert f"enable --quiet {unit}\nstart --no-block {unit}\n" in calls
            text = (host.root / "etc/systemd/system" / unit).read_text()
            assert re.search(rf"^ExecStart=/opt/fairway/releases/0\.1\.0-\w+/bin/fairway-\w+ --config /opt/fairway/etc/{name}\.toml$",
                             text, re.M)
            user = {"controller": "fairway-controller", "w1": "fairway"}[name]
            assert f"\nUser={user}\nGroup={user}\n" in text and "\nProtectSystem=strict\n" in text and "/var/lib" not in text
            assert "\nTimeoutStopSec=60\n" in text
        assert "\nReadWritePaths=/opt/fairway/workers/w1\n" in text
        assert "\nInaccessiblePaths=-/opt/fairway/controller\n" in text
        if shutil.which("systemd-analyze"):
            judged = operator.run("ssh -F ssh_config 10.0.0.1 systemd-analyze verify --man=no "
                                  "/etc/systemd/system/fairway-cluster-*.service")
            assert judged.returncode == 0 and "fairway-cluster" not in judged.stderr, judged.stderr
        assert operator.type("fairway cluster up hosts.toml").stdout.splitlines()[0] == "10.0.0.1 (controller, w1): no change"
        operator.type("fairway cluster status hosts.toml")
        # What it says of a daemon that ends is in the journal.
        running = host.daemons()
        os.kill(running["w1"], signal.SIGKILL)
        wait_for(lambda: "w1" not in host.daemons(), "its end")
        (tmp_path / "hosts.toml").write_text(ONE_HOST + "drain-limit = '5m'\n")
        assert "started w1" in operator.type("fairway cluster up hosts.toml").stdout
        assert "\nTimeoutStopSec=350\n" in units(host)["fairway-cluster-w1.service"].read_text()
        assert host.daemons()["controller"] == running["controller"]
        # What systemd refuses is not told as done.
        running = host.daemons()
        (host.root / "tmp/refuses").touch()
        done = operator.type("fairway cluster down hosts.toml --purge", code=1)
        assert "cannot end w1: systemd refuses: Failed to disable unit: Access denied" in done.stderr
        assert "ended" not in done.stdout and "removed" not in done.stdout and host.daemons() == running
        (host.root / "tmp/refuses").unlink()
        # The unit of a worker that the file and the folder have forgotten.
        forgotten = host.root / "etc/systemd/system/fairway-cluster-w9.service"
        forgotten.write_text(text.replace("w1", "w9"))
        said = operator.type("fairway cluster down hosts.toml --purge").stdout
        assert said == "10.0.0.1 (controller, w1): ended w1, ended controller, removed /opt/fairway\n"
        assert not list((host.root / "etc/systemd/system").glob("*fairway-*")) and not host.daemons()


def test_clusters_in_other_folders_have_their_own_units_on_a_host(tmp_path):
    make_package(tmp_path)
    other = ONE_HOST.replace("10.0.0.1", "10.0.0.2", 1)  # its controller; its worker is w1 on the same host
    (tmp_path / "one.toml").write_text(ONE_HOST)
    (tmp_path / "two.toml").write_text(f'folder = "/srv/two"\n{other}')
    with ssh_hosts(tmp_path, 2) as (operator, (host, second)):
        give_systemd(host)
        operator.type("fairway cluster up one.toml")
        running = host.processes()
        digits = hashlib.sha256(b"/srv/two").hexdigest()[:12]
        assert "started w1" in operator.type("fairway cluster up two.toml").stdout
        assert set(units(host)) == {"fairway-cluster-controller.service", "fairway-cluster-w1.service",
                                    f"fairway-cluster.{digits}.w1.service"}
        if shutil.which("systemd-analyze"):
            judged = operator.run("ssh -F ssh_config 10.0.0.1 systemd-analyze verify --man=no "
                                  "/etc/systemd/system/fairway-cluster.*.service")
            assert judged.returncode == 0 and "fairway-cluster" not in judged.stderr, judged.stderr
        assert "removed /srv/two" in operator.type("fairway cluster down two.toml --purge").stdout
        daemons = {pid: words for pid, words in running.items() if "--config" in words}
        assert len(daemons) >= 2 and daemons.items() <= host.processes().items() and not second.daemons()
        assert set(units(host)) == {"fairway-cluster-controller.service", "fairway-cluster-w1.service"}
        # A unit that starts something else by now, while its process goes on, is not told as ended.
        unit = units(host)["fairway-cluster-w1.service"]
        own, pid = unit.read_text(), host.daemons()["w1"]
        unit.write_text("[Service]\nExecStart=/usr/bin/theirs\n")
        done = operator.type("fairway cluster down one.toml", code=1)
        assert (f"cannot end w1: {unit.name} starts another program than one in /opt/fairway, and process {pid} goes on: "
                f"end that process by `kill {pid}`") in done.stderr
        assert "ended w1" not in done.stdout and host.daemons()["w1"] == pid
        unit.write_text(own)
        # A unit that somebody else wrote is neither replaced nor ended.
        operator.type("fairway cluster down one.toml")
        theirs = units(host)["fairway-cluster-w1.service"]
        theirs.write_text("[Service]\nExecStart=/usr/bin/theirs\n")
        said = operator.type("fairway cluster up one.toml", code=1).stderr
        assert "fairway-cluster-w1.service starts another program than one in /opt/fairway: /usr/bin/theirs: end" in said
        operator.type("fairway cluster down one.toml --purge")
        assert units(host) == {theirs.name: theirs}


def test_units_from_before_their_names_followed_from_the_folder_are_found(tmp_path):
    make_package(tmp_path)
    (tmp_path / "hosts.toml").write_text(f'folder = "/srv/two"\n{ONE_HOST}')
    with ssh_hosts(tmp_path, 1) as (operator, (host,)):
        give_systemd(host)
        operator.type("fairway cluster up hosts.toml")
        operator.type("fairway cluster down hosts.toml")
        digits = hashlib.sha256(b"/srv/two").hexdigest()[:12]
        for name in ("controller", "w1"):
            unit = units(host)[f"fairway-cluster.{digits}.{name}.service"]
            unit.rename(unit.with_name(f"fairway-cluster-{name}.service"))
        old = {"fairway-cluster-controller.service", "fairway-cluster-w1.service"}
        assert "started w1" in operator.type("fairway cluster up hosts.toml").stdout
        assert set(units(host)) == old
        assert "no change" in operator.type("fairway cluster up hosts.toml").stdout
        assert operator.type("fairway cluster status hosts.toml").stdout.count(" up") == 2
        assert operator.type("fairway cluster down hosts.toml").stdout == "10.0.0.1 (controller, w1): ended w1, ended controller\n"
        # What is another cluster's by that name is not taken.
        theirs = units(host)["fairway-cluster-w1.service"]
        theirs.write_text(theirs.read_text().replace("ExecStart=/srv/two/", "ExecStart=/opt/fairway/"))
        operator.type("fairway cluster up hosts.toml")
        assert set(units(host)) == old | {f"fairway-cluster.{digits}.w1.service"}
        operator.type("fairway cluster down hosts.toml --purge")
        assert units(host) == {theirs.name: theirs}
