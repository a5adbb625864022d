# SPDX-License-Identifier: Apache-2.0
"""The .deb's services under a real systemd, the first process of a Debian 12: what docs/install.md says of them. In order, on one machine."""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / name) for name in ("packaging", "support", "integration", "e2e")]

import affine  # noqa: E402
import bare  # noqa: E402
from debs import DOUBLE, HERE as PACKAGES, commands_in_the_page, joining, tell, upgrade_of  # noqa: E402
from machine import Machine, Service  # noqa: E402
from ssh_hosts import ONE_HOST, make_package  # noqa: E402
from waiting import wait_for  # noqa: E402

NAMES = ("fairway-controller", "fairway-worker")
DOUBLED = "y  f32[4]  [3, 3, 3, 3]\n"
TRIED = """
for place in /etc/fairway/new /usr/new /opt/new /var/new /var/lib/new /root/new /home/other/new /boot/new /new /sys/new; do
  echo x 2>/dev/null >"$place" && echo "wrote $place"
done
ls /home/other/secret /root/secret 2>/dev/null
true
"""


@pytest.fixture(scope="module")
def deb():
    bare.require_tools()
    (path,) = PACKAGES.glob("fairway_*.deb")
    return path


@pytest.fixture(scope="module")
def machine(deb):
    with Machine(bare.ROOT / "build" / "systemd-root") as machine:
        shutil.copy(deb, machine.path / "root")
        (machine.path / "root/double.txtpb").write_text(DOUBLE)
        for home in ("home/other", "root"):
            (machine.path / home).mkdir(exist_ok=True)
            (machine.path / home / "secret").write_text("secret")
        machine.online("apt-get -qq install -y --no-install-recommends openssh-server")
        machine.online(f"apt-get -qq install -y --download-only ./{deb.name}")  # it has no network when it runs
        machine.before = machine.files()
        machine.boot()
        yield machine
        print(machine.run("journalctl --no-pager -n 200").stdout)


@pytest.fixture(scope="module")
def controller(machine):
    return Service(machine, NAMES[0])


@pytest.fixture(scope="module")
def worker(machine):
    return Service(machine, NAMES[1])


def as_the_service(machine, service, *words):
    """As a program that a client has made run there, but for the filter of system calls."""
    ids = dict(re.findall(r"^(Uid|Gid):\t(\d+)", pathlib.Path(f"/proc/{service.main()}/status").read_text(), re.MULTILINE))
    return machine.inside(service.main(), "setpriv", f"--reuid={ids['Uid']}", f"--regid={ids['Gid']}", "--clear-groups", *words)


def restart(machine, *services):
    """At once works what is asked of it."""
    names = " ".join(service.name for service in services)
    machine.type(f"systemctl reset-failed {names}; systemctl restart {names}")


def test_the_page_tells_how_to_install_it_and_nothing_starts(machine, controller, worker):
    install, start, *_ = commands_in_the_page("The Debian package")
    for line in install:
        machine.type(line)
    assert not controller.is_active() and not worker.is_active()
    assert machine.type("systemctl is-enabled fairway-controller fairway-worker", code=1) == "disabled\ndisabled\n"
    machine.how_to_start = start


def test_a_worker_without_a_controller_starts_and_waits(machine, controller, worker):
    machine.type("systemctl start fairway-worker")
    assert worker.is_active() and not controller.is_active()
    assert machine.run("fairway status").returncode != 0


def test_a_worker_that_was_there_first_does_not_see_the_controllers_files(machine, controller, worker):
    machine.type("systemctl start fairway-controller")
    machine.type("install -o fairway -g fairway -m 0600 /root/secret /var/lib/fairway/controller/ca.key")
    inside = controller.show("MainPID")
    paths = ["/var/lib/fairway/controller/ca.key", f"/proc/{inside}/root/var/lib/fairway/controller/ca.key", f"/proc/{inside}/environ"]
    for service, seen in ((worker, []), (controller, paths)):
        told = as_the_service(machine, service, "bash", "-c", f'for path in {" ".join(paths)}; do head -c 1 "$path" >/tmp/got && echo "$path"; done')
        assert told.stdout.split() == seen, (service.name, told)
        # Nor its process.
        assert (inside in as_the_service(machine, service, "ls", "/proc").stdout.split()) == bool(seen)
    machine.type("rm /var/lib/fairway/controller/ca.key")
    machine.type("systemctl stop fairway-worker fairway-controller")


def test_the_page_tells_how_to_start_it(machine, controller, worker):
    told = "".join(machine.type(line) for line in machine.how_to_start)
    assert re.search(r"island0.*\bup\b", told), told
    assert controller.is_active() and worker.is_active()


def test_a_client_works_as_soon_as_a_start_returns(machine, controller, worker):
    for _ in range(3):
        restart(machine, controller, worker)
        assert machine.type("fairway run double.txtpb --arg x=1.5") == DOUBLED


def test_a_reload_changes_settings_and_ends_nothing(machine, controller, worker):
    for service, name in ((controller, "controller"), (worker, "worker")):
        settings, main = machine.path / f"etc/fairway/{name}.toml", service.main()
        kept = settings.read_text()
        settings.write_text(kept + '\nlog-level = "debug"\n')
        machine.type(f"systemctl reload {service}")
        wait_for(lambda: "log-level" in service.journal(), service.journal)
        settings.write_text(kept)
        machine.type(f"systemctl reload {service}")
        assert service.main() == main
    machine.type("fairway run double.txtpb --arg x=1.5")


def test_who_is_killed_is_started_again(machine, controller, worker):
    for service in (controller, worker):
        before, main = service.pids(), service.main()
        other = worker if service is controller else controller
        untouched = other.main()
        os.kill(main, signal.SIGKILL)
        wait_for(lambda: service.main() not in (None, main) and service.is_active(), service.journal)
        assert not set(before) & set(service.pids()) and other.main() == untouched
        assert not [pid for pid in before if pathlib.Path(f"/proc/{pid}").exists()]
        wait_for(lambda: machine.run("fairway run double.txtpb --arg x=1.5").stdout == DOUBLED, machine.run("fairway status").stdout)


def test_who_hangs_is_ended_by_the_watchdog_and_started_again(machine, controller, worker):
    for service in (controller, worker):
        service.drop_in("[Service]\nWatchdogSec=10\n")
    restart(machine, controller, worker)
    mains = {service: service.main() for service in (controller, worker)}
    for main in mains.values():
        os.kill(main, signal.SIGSTOP)
    for service, main in mains.items():
        wait_for(lambda: service.main() not in (None, main) and service.is_active(), service.journal)
        assert re.search(r"Watchdog timeout \(limit 10s\)!", service.journal()), service.journal()
    wait_for(lambda: machine.run("fairway run double.txtpb --arg x=1.5").stdout == DOUBLED, machine.run("fairway status").stdout)
    for service in mains:
        service.drop_in(None)


def test_after_a_power_cut_the_services_start_with_the_host(machine, controller, worker):
    machine.cut_power()
    machine.boot()
    assert controller.is_active() and worker.is_active()
    assert machine.type("fairway run double.txtpb --arg x=1.5") == DOUBLED


# ---- confinement ----


def test_every_process_of_the_services_is_confined(machine, controller, worker):
    for service in (controller, worker):
        pids = service.pids()
        assert len(pids) >= (2 if service is worker else 1)
        for pid in pids:
            status = dict(line.split(":\t", 1) for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line)
            print(service, pid, status["Name"], {key: status[key] for key in ("Uid", "NoNewPrivs", "Seccomp", "CapEff", "CapBnd")})
            assert status["NoNewPrivs"] == "1" and status["Seccomp"] == "2"
            assert {status[key] for key in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0" * 16}
            uid = (machine.path / "var/lib/fairway").stat().st_uid
            assert set(status["Uid"].split()) == {str(uid)} and uid != 0
            assert os.readlink(f"/proc/{pid}/ns/mnt") != os.readlink(f"/proc/{machine.first_process()}/ns/mnt")


def test_not_even_root_writes_where_a_service_may_not(machine, controller, worker):
    for service in (controller, worker):
        told = machine.inside(service.main(), "bash", "-c", TRIED)
        assert told.returncode == 0 and told.stdout == "", told
        state = f"/var/lib/{service.name.replace('-', '/')}"
        told = machine.inside(service.main(), "bash", "-euc", f"echo x >{state}/new; rm {state}/new; echo x >/tmp/new; ls -A /tmp; rm /tmp/new")
        assert told.returncode == 0 and told.stdout == "new\n", told
    assert not (machine.path / "tmp/new").exists()


def test_systemd_judges_the_running_units(machine, controller, worker):
    for service, most in ((controller, 20), (worker, 35)):
        told = machine.run(f"systemd-analyze security --no-pager --threshold={most} {service}")
        print(told.stdout.strip().splitlines()[-1])
        assert told.returncode == 0, told.stdout


# ---- faults ----


def test_a_wrong_setting_fails_the_start_once_and_the_journal_and_the_doctor_say_what_to_do(machine, controller, worker):
    for service, name, wrong, said, found in (
            (controller, "controller", "no-such-name = 1", "unknown setting 'no-such-name' in [controller]",
             "unknown setting 'no-such-name' in [controller]  (fix: correct it, and try it: fairway config check /etc/fairway/controller.toml)"),
            (worker, "worker", 'plugin = "/opt/none.so"', "cannot load the plugin /opt/none.so: cannot load /opt/none.so: /opt/none.so: "
             "cannot open shared object file: No such file or directory",
             "plugin file: /opt/none.so: No such file or directory  (fix: ")):
        settings = machine.path / f"etc/fairway/{name}.toml"
        kept = settings.read_text()
        settings.write_text(kept.replace('runtime = "host"', 'runtime = "pjrt"') + f"\n{wrong}\n")
        machine.type(f"systemctl restart {service}", code=1)
        assert machine.type(f"systemctl is-failed {service}") == "failed\n" and service.show("NRestarts") == "0"
        assert [line for line in service.journal().splitlines() if said in line], service.journal()
        assert [line for line in machine.type("fairway doctor", code=1).splitlines() if line.startswith("FAIL") and found in line]
        settings.write_text(kept)
        machine.type(f"systemctl restart {service}")
    wait_for(lambda: machine.run("fairway run double.txtpb --arg x=1.5").stdout == DOUBLED, "the worker")
    machine.type("fairway doctor")


def test_diagnose_has_the_journal(machine, controller, worker):
    machine.type("fairway diagnose -o report.tar.gz")
    journal = machine.type("tar xzOf report.tar.gz --wildcards '*/logs-journal.txt'")
    for service, says in ((controller, "islands up: 1"), (worker, "registered at 127.0.0.1:29002")):
        assert f"Started {service}.service" in journal and says in journal


# ---- JAX ----

SLOW = r"""
#include <unistd.h>
__attribute__((constructor)) static void wait_for_a_word(void) {
  while (access("/var/lib/fairway/worker/go", F_OK) != 0) usleep(10000);
}
"""
# On each line that it reads it computes on the cluster, and tells what became of it.
JAX = """
import sys, jax, jax.numpy as jnp
f = jax.jit(lambda x: (2 * x + 1).sum())
for _ in sys.stdin:
    try:
        print(float(f(jnp.arange(4.0))), flush=True)
    except Exception as error:
        print(type(error).__name__, str(error).replace("\\n", " "), flush=True)
"""


@pytest.fixture(scope="module")
def jax_client(machine, slow_worker):
    """A function that has JAX of this checkout, on the machine's network, compute once more, and returns what it says."""
    process = subprocess.Popen(
        ["nsenter", f"--target={machine.first_process()}", "--net", sys.executable, "-c", JAX], text=True, stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, env={**os.environ, "JAX_PLATFORMS": "fairway,cpu", "FAIRWAY_CONTROLLER": "127.0.0.1:29000"})

    def once():
        process.stdin.write("\n")
        process.stdin.flush()
        return process.stdout.readline()

    yield once
    process.stdin.close()
    process.wait(60)


@pytest.fixture(scope="module")
def slow_worker(machine, worker, tmp_path_factory):
    """The settings name a plugin for CPUs whose library loads when somebody says so. A function that says so."""
    (plugin,) = (bare.ROOT / ".venv").glob("lib/python3*/site-packages/xla_plugins/xla_cpu_pjrt/xla_cpu_pjrt.so")
    settings = machine.path / "etc/fairway/worker.toml"
    named = re.search(r'^#plugin = "(.*)"', settings.read_text(), re.MULTILINE)[1]
    place = machine.path / named.lstrip("/")
    place.parent.mkdir(parents=True)
    shutil.copy(plugin, place)
    source = tmp_path_factory.mktemp("slow") / "slow.c"
    source.write_text(SLOW)
    tell("gcc", "-shared", "-fPIC", "-o", place.with_name("slow.so"), source, f"-L{place.parent}", "-Wl,--no-as-needed", f"-l:{place.name}",
         f"-Wl,-rpath,{pathlib.Path(named).parent}")
    settings.write_text(settings.read_text().replace('runtime = "host"', 'runtime = "pjrt"').replace(f'#plugin = "{named}"',
                                                                                                      f'plugin = "{pathlib.Path(named).parent}/slow.so"'))
    return (machine.path / "var/lib/fairway/worker/go").touch


def maps(pid, library):
    try:
        return library in pathlib.Path(f"/proc/{pid}/maps").read_text()
    except OSError:
        return False


def test_a_start_lasts_until_the_executor_has_its_devices(machine, controller, worker, slow_worker):
    restart(machine, controller)
    start = subprocess.Popen(machine.words("systemctl restart fairway-worker"), stdin=subprocess.DEVNULL)
    wait_for(lambda: any(maps(pid, "/slow.so") for pid in worker.pids()), "the plugin's library")
    assert worker.show("ActiveState") == "activating" and start.poll() is None
    slow_worker()
    assert start.wait(120) == 0 and worker.is_active()


def test_jax_computes_on_the_service_and_native_programs_compile_there(machine, jax_client):
    assert jax_client() == "16.0\n"
    code = machine.path / "root/f.bytecode"
    tell(sys.executable, "-c", affine.EXPORT, code, env={**os.environ, "JAX_PLATFORMS": "cpu"})
    (machine.path / "root/affine.txtpb").write_text(affine.PROGRAM)
    assert machine.type("fairway run affine.txtpb --code f=f.bytecode --arg x=3") == "y  f32[4]  [7, 7, 7, 7]\n"


# ---- the package's life ----


def install_upgrade(machine, deb, folder, version):
    """By the commands of docs/upgrade.md, with the option of docs/install.md that keeps the administrator's settings."""
    shutil.copy(upgrade_of(deb, folder, version), machine.path / "root")
    ((install, look),) = commands_in_the_page("Hosts with the Debian package", "upgrade.md")
    machine.type(install.replace("apt-get install", "apt-get -o Dpkg::Options::=--force-confold install").replace("0.1.0-1", version))
    return look


def test_an_upgrade_restarts_what_runs_ends_its_sessions_and_keeps_settings(machine, controller, worker, deb, tmp_path, jax_client):
    etc = machine.path / "etc/fairway"
    with (etc / "controller.toml").open("a") as file:
        file.write("\n# Of the administrator.\n")
    changed = {name: (etc / name).read_text() for name in ("controller.toml", "worker.toml")}
    assert jax_client() == "16.0\n"
    mains = {service: service.main() for service in (controller, worker)}
    machine.type(install_upgrade(machine, deb, tmp_path, "99.0-1"))
    assert all(service.is_active() and service.main() != main for service, main in mains.items())
    assert {name: (etc / name).read_text() for name in changed} == changed
    assert "# A line of version 99.0-1." in (etc / "worker.toml.dpkg-dist").read_text()
    told = jax_client()
    print(told)
    assert "UNAVAILABLE" in told
    assert machine.type("fairway run affine.txtpb --code f=f.bytecode --arg x=3") == "y  f32[4]  [7, 7, 7, 7]\n"


def test_an_upgrade_starts_nothing_that_the_administrator_has_stopped(machine, controller, worker, deb, tmp_path):
    machine.type("systemctl stop fairway-worker")
    main = controller.main()
    install_upgrade(machine, deb, tmp_path, "99.1-1")
    assert not worker.is_active() and controller.is_active() and controller.main() != main
    machine.type("systemctl start fairway-worker")


def test_the_page_tells_how_to_make_certificates(machine, controller, worker):
    *_, for_controller, for_worker = commands_in_the_page("The Debian package")
    for line in for_controller:
        told = machine.type(line.replace("10.0.0.1", "127.0.0.1"))
    plugin = re.search(r'^plugin = "(.*)"', (machine.path / "etc/fairway/worker.toml").read_text(), re.MULTILINE)[1]
    for line in joining(for_worker, told, f"--plugin {plugin}"):
        machine.type(line)
    assert controller.is_active() and worker.is_active()
    tls = "--tls-ca /var/lib/fairway/controller/ca.pem --token-file /var/lib/fairway/controller/admin.token"
    wait_for(lambda: re.search(r"island0.*\bup\b", machine.run(f"fairway status {tls}").stdout), worker.journal)
    machine.type(f"fairway token create --role user --tenant red --to red.token {tls}")
    user = tls.replace("/var/lib/fairway/controller/admin.token", "red.token")
    assert machine.type(f"fairway run affine.txtpb --code f=f.bytecode --arg x=3 {user}") == "y  f32[4]  [7, 7, 7, 7]\n"


def test_removing_stops_the_services_and_keeps_settings_and_data(machine, controller, worker):
    pids = controller.pids() + worker.pids()
    assert len(pids) > 2
    machine.type("apt-get -qq remove -y fairway")
    assert not [pid for pid in pids if pathlib.Path(f"/proc/{pid}").exists()]
    assert not controller.is_active() and not worker.is_active()
    left = machine.files()
    assert {"etc/fairway/controller.toml", "etc/fairway/worker.toml", "var/lib/fairway/controller/ca.key"} <= left
    assert not [name for name in left if name.startswith(("usr/bin/fairway", "lib/systemd/system/fairway"))]


def test_installed_again_it_goes_on_with_its_settings(machine, controller, worker):
    machine.type("apt-get -qq install -y ./fairway_99.1-1_amd64.deb")
    assert not controller.is_active() and not worker.is_active()
    machine.type("systemctl enable --now fairway-controller fairway-worker")
    tls = "--tls-ca /var/lib/fairway/controller/ca.pem --token-file /var/lib/fairway/controller/admin.token"
    wait_for(lambda: re.search(r"island0.*\bup\b", machine.run(f"fairway status {tls}").stdout), worker.journal)


def test_purging_leaves_nothing_but_the_user(machine, controller, worker):
    machine.type("apt-get -qq purge -y fairway")
    assert "fairway" not in machine.type("systemctl list-units --all --no-legend 'fairway*'; systemctl list-unit-files --no-legend 'fairway*'; true")
    left = {name for name in machine.files() - machine.before if "fairway" in name}
    ours = ("root/", "run/", "var/cache/apt", "opt/", "var/log/")
    assert {name for name in left if not name.startswith(ours)} == set(), left
    assert re.search(r"^fairway:", (machine.path / "etc/passwd").read_text(), re.MULTILINE)  # its uid is not given to another


# ---- `fairway cluster`, by ssh, on this host with systemd ----

SSH_CONFIG = """
Host *
  User root
  IdentityFile /root/cluster/key
  StrictHostKeyChecking accept-new
  UserKnownHostsFile /root/cluster/known_hosts
"""
FAIRWAY = "cd cluster && fairway-0.1.0/bin/fairway"


@pytest.fixture(scope="module")
def host(machine):
    """The address that clusters have: the machine is its own host, reached by ssh."""
    folder = machine.path / "root/cluster"
    folder.mkdir()
    tell("nsenter", f"--target={machine.first_process()}", "--net", "ip", "address", "add", "10.0.0.1/32", "dev", "lo")
    tell("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / "key")
    (machine.path / "root/.ssh").mkdir(mode=0o700, exist_ok=True)
    shutil.copy(folder / "key.pub", machine.path / "root/.ssh/authorized_keys")
    (folder / "ssh_config").write_text(SSH_CONFIG)
    (folder / "hosts.toml").write_text(ONE_HOST)
    package = make_package(folder)
    tell("tar", "-C", folder, "-xf", package)
    shutil.rmtree(folder / "tree")
    return folder


def test_fairway_cluster_makes_services_of_its_daemons(machine, host):
    controller, worker = Service(machine, "fairway-cluster-controller"), Service(machine, "fairway-cluster-w1")
    told = machine.type(f"{FAIRWAY} cluster up hosts.toml")
    assert "started the controller" in told
    assert controller.is_active() and worker.is_active()
    assert machine.type(f"{FAIRWAY} cluster status hosts.toml").count(" up") == 2
    assert machine.type(f"systemctl is-enabled {controller} {worker}") == "enabled\nenabled\n"
    assert "no change" in machine.type(f"{FAIRWAY} cluster up hosts.toml")
    for service in (controller, worker):
        main = service.main()
        os.kill(main, signal.SIGKILL)
        wait_for(lambda: service.main() not in (None, main) and service.is_active(), service.journal)
    wait_for(lambda: machine.run(f"{FAIRWAY} cluster status hosts.toml").stdout.count(" up") == 2, worker.journal)
    paths = ["/opt/fairway/controller/ca.key", f"/proc/{controller.show('MainPID')}/root/opt/fairway/controller/ca.key"]
    for service, seen in ((worker, []), (controller, paths)):
        told = as_the_service(machine, service, "bash", "-c", f'for path in {" ".join(paths)}; do head -c 1 "$path" >/dev/null && echo "$path"; done')
        assert told.stdout.split() == seen, told


def test_fairway_cluster_upgrades_and_removes_its_services(machine, host):
    controller, worker = Service(machine, "fairway-cluster-controller"), Service(machine, "fairway-cluster-w1")
    mains = {service: service.main() for service in (controller, worker)}
    shutil.copy(host / "fairway-0.1.0-linux-x86_64.tar.gz", host / "before.tar.gz")
    (host / "fairway-0.1.0/EXTRA").write_text("another release")
    tell("tar", "-C", host, "-czf", host / "fairway-0.1.0-linux-x86_64.tar.gz", "fairway-0.1.0")
    machine.type(f"{FAIRWAY} cluster upgrade hosts.toml")
    assert all(service.is_active() and service.main() != main for service, main in mains.items())
    wait_for(lambda: machine.run(f"{FAIRWAY} cluster status hosts.toml").stdout.count(" up") == 2, worker.journal)
    machine.type(f"{FAIRWAY} cluster down hosts.toml --purge")
    assert "fairway" not in machine.type("systemctl list-units --all --no-legend 'fairway-cluster*'; systemctl list-unit-files --no-legend 'fairway-cluster*'; true")
    assert not (machine.path / "opt/fairway").exists()
