# SPDX-License-Identifier: Apache-2.0
"""The Debian packages, as an administrator meets them: installed in a bare Debian 12, started, upgraded, removed, purged."""

import json
import os
import pathlib
import re
import shutil
import signal
import stat
import subprocess
import sys
import tarfile
import time
import zipfile

import pytest

import bare
import test_image
import units
from debs import DOUBLE, HERE, commands_in_the_page, joining, tell, upgrade_of

ROOT = bare.ROOT
sys.path.insert(0, str(ROOT / "tests" / "support"))

import affine  # noqa: E402

PROGRAMS = ("fairway", "fairway-controller", "fairway-worker")
CONTROLLER, WORKER = units.UNITS


@pytest.fixture(scope="session")
def deb():
    bare.require_tools()
    (path,) = HERE.glob("fairway_*.deb")
    return path


@pytest.fixture(scope="session")
def symbols():
    (path,) = HERE.glob("fairway-dbgsym_*.deb")
    return path


@pytest.fixture(scope="session")
def unpacked(deb, symbols, tmp_path_factory):
    folder = tmp_path_factory.mktemp("deb")
    for path in (deb, symbols):
        tell("dpkg-deb", "-x", path, folder)
    return folder


# ---- the files ----


def test_a_second_packing_gives_the_same_bytes():
    sums = [(folder / "SHA256SUMS").read_text() for folder in (HERE, HERE / "again")]
    assert sums[0] == sums[1] and len(sums[0].splitlines()) == 8
    tell("sha256sum", "--check", "--strict", "SHA256SUMS", cwd=HERE)


def test_it_needs_debians_own_libraries_and_brings_none(deb, unpacked):
    depends = re.split(r", | \| ", tell("dpkg-deb", "-f", deb, "Depends"))
    names = {text.split()[0] for text in depends}
    assert {"libgrpc++1.51", "libprotobuf32", "libssl3", "libc6", "libopenblas64-0-pthread", "adduser", "procps"} <= names
    files = [path for path in unpacked.rglob("*") if path.is_file() and not path.is_symlink()]
    assert not [path for path in files if ".so" in path.name]
    (link,) = (unpacked / "usr/lib/fairway").iterdir()
    there = os.path.normpath(link.parent / os.readlink(link)).removeprefix(str(unpacked))
    assert link.is_symlink() and tell("dpkg", "-S", there).startswith("libopenblas64-0-pthread:")


def test_symbols_are_apart_and_fit_the_programs(unpacked):
    for name in PROGRAMS:
        program = unpacked / "usr" / "bin" / name
        sections = tell("readelf", "-SW", program)
        assert ".debug_" not in sections and ".symtab" not in sections
        build_id = re.search(r"Build ID: (\w{40})$", tell("readelf", "-n", program), re.MULTILINE)[1]
        debug = unpacked / "usr/lib/debug/.build-id" / build_id[:2] / f"{build_id[2:]}.debug"
        assert f"Build ID: {build_id}" in tell("readelf", "-n", debug)
        assert ".debug_info" in tell("readelf", "-SW", debug)
        main = re.search(r"^(\w+) T main$", tell("nm", debug), re.MULTILINE)[1]
        assert re.search(r"main\.cc:\d+", tell("addr2line", "-e", debug, main))


def test_owners_modes_and_times_are_those_of_a_package(deb, symbols):
    for path in (deb, symbols):
        lines = tell("dpkg-deb", "-c", path).splitlines()
        assert {line.split()[1] for line in lines} == {"root/root"}
        modes = {line.split()[0] for line in lines}
        assert modes <= {"drwxr-xr-x", "-rwxr-xr-x", "-rw-r--r--", "lrwxrwxrwx"}
        assert len({tuple(line.split()[3:5]) for line in lines}) == 1


def test_lintian_finds_no_error(deb, symbols):
    done = subprocess.run(["lintian", "--allow-root", "--fail-on", "error", deb, symbols], text=True, capture_output=True)
    print(done.stdout + done.stderr)
    assert done.returncode == 0 and not re.search(r"^E: ", done.stdout, re.MULTILINE)
    for path in (deb, symbols):
        assert "usr/share/lintian" not in tell("dpkg-deb", "-c", path)


@pytest.mark.parametrize("name, most", [(CONTROLLER, 2.0), (WORKER, 3.5)])
def test_units_are_closed(name, most):
    fits, number = units.exposure(name, most)
    print(f"{name}: {number}")
    assert fits and number <= most
    assert units.exposure(name, number - 0.1)[0] is False, "the threshold decides"


def licences_in_files():
    """Name of a file that brings libraries -> the list of their packages that it has itself."""
    (wheel,), (tarball,) = HERE.glob("*.whl"), HERE.glob("*.tar.gz")
    out = {}
    with zipfile.ZipFile(wheel) as file:
        (name,) = (name for name in file.namelist() if name.endswith("/licenses/THIRD_PARTY.txt"))
        out[wheel.name] = file.read(name).decode()
    with tarfile.open(tarball) as file:
        (name,) = (name for name in file.getnames() if name.endswith("/licenses/THIRD_PARTY.txt"))
        out[tarball.name] = file.extractfile(name).read().decode()
    for path in HERE.glob("*.oci.tar"):
        (text,) = (data for name, data in test_image.files_in(path) if name.endswith("/third-party/THIRD_PARTY.txt"))
        out[path.name] = text.decode()
    assert len(out) == 4
    return out


def test_the_sbom_is_valid_and_names_what_is_inside(deb):
    (path,) = HERE.glob("fairway-*.spdx.json")
    tell(ROOT / ".venv-packages" / "bin" / "pyspdxtools", "-i", path)
    told = json.loads(path.read_text())
    packages = {package["SPDXID"]: package for package in told["packages"]}
    described = {packages[link["relatedSpdxElement"]]["name"] for link in told["relationships"]
                 if link["relationshipType"] == "DESCRIBES"}
    assert described == {file.name for file in HERE.iterdir() if file.suffix in (".whl", ".deb", ".gz", ".tgz", ".tar")}
    for name, licences in licences_in_files().items():
        inside = {packages[link["relatedSpdxElement"]]["name"] for link in told["relationships"]
                  if link["relationshipType"] == "CONTAINS" and packages[link["spdxElementId"]]["name"] == name}
        bundled = re.findall(r"^(\S+) \(source \S+ \S+\): (?!code of its headers)", licences, re.MULTILINE)
        plugin = {"xla-cpu-pjrt"} if "xla_cpu_pjrt.so" in licences else set()
        assert inside == set(bundled) | plugin and len(inside) > 10, name
    # It is no valid one without what SPDX demands.
    del told["creationInfo"]
    broken = HERE / "work.spdx.json"
    broken.write_text(json.dumps(told))
    assert subprocess.run([ROOT / ".venv-packages" / "bin" / "pyspdxtools", "-i", broken], capture_output=True).returncode != 0
    broken.unlink()


# ---- installed ----


class Machine:
    """A bare system on which the commands of the page are typed."""

    def __init__(self, system):
        self.system, self.running = system, {}

    def type(self, line):
        """What it prints. systemctl is done here; what installs has the network."""
        print(f"$ {line}")
        words = line.split()
        if words[0] == "systemctl":
            return self.systemctl([word for word in words[1:] if word != "--now"])
        if words[0] == "apt-get" or "pip install" in line:
            done = self.system.online(line)
            assert done.returncode == 0, done.stdout + done.stderr
            return done.stdout
        done = self.system.run(line, PATH="/usr/sbin:/usr/bin:/sbin:/bin")
        assert done.code == 0, done.out + done.err
        return done.out

    def systemctl(self, words):
        verb, names = words[0], words[1:]
        assert verb in ("enable", "restart", "stop") and names, words
        for name in names:
            if verb in ("restart", "stop") and name in self.running:
                assert self.running.pop(name).stop() == 0
            if verb != "stop":
                self.running[name] = units.Running(self.system, name).wait_for("READY=1")
        return ""

    def stop(self):
        for name in list(self.running):
            self.running.pop(name).stop()


@pytest.fixture(scope="module")
def machine(deb):
    folder = ROOT / "build" / "deb-root"
    shutil.rmtree(folder, ignore_errors=True)
    with bare.Bare("bookworm", folder) as system:
        shutil.copy(deb, system.path / "root")
        machine = Machine(system)
        machine.before = system.files()
        assert system.online("apt-get -qq update").returncode == 0
        yield machine
        print(*(path.read_text()[-3000:] for path in system.path.glob("root/*.log")), sep="\n----\n")


def test_the_page_tells_how_to_install_and_start_it(machine):
    system, (install, start, *_) = machine.system, commands_in_the_page("The Debian package")
    for line in install:
        machine.type(line)
    facts = (system.path / "var/lib/fairway").stat()
    user = re.search(r"^fairway:x:(\d+):", (system.path / "etc/passwd").read_text(), re.MULTILINE)
    assert stat.S_IMODE(facts.st_mode) == 0o700 and str(facts.st_uid) == user[1]
    # No compiler, no Python of ours; and nothing is enabled before somebody says so.
    assert not list(system.path.glob("etc/systemd/system/multi-user.target.wants/fairway*"))
    verified = subprocess.run(["systemd-analyze", f"--root={system.path}", "--man=no", "verify",
                               *(f"{name}.service" for name in units.UNITS)], text=True, capture_output=True)
    print(verified.stderr)
    # It tells of other units, too, and this bare system has no systemd.
    lacks = "Unit sysinit.target not found."
    assert not [line for line in verified.stderr.splitlines()
                if "fairway-" in line and lacks not in line]
    told = "".join(machine.type(line) for line in start)
    assert set(machine.running) == set(units.UNITS)
    assert re.search(r"island0.*\bup\b", told), told


def test_services_say_that_they_live_and_run_programs(machine):
    (machine.system.path / "root/double.txtpb").write_text(DOUBLE)
    assert machine.type("fairway run double.txtpb --arg x=1.5") == "y  f32[4]  [3, 3, 3, 3]\n"
    for service in machine.running.values():
        service.signs_of_life(3)


FETCH = "import urllib.request as u, sys; print(u.urlopen(sys.argv[1]).read().decode(), end='')"
PROMETHEUS = """
global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [/usr/share/doc/fairway/fairway.rules.yaml]
scrape_configs: [{job_name: fairway, static_configs: [{targets: ["127.0.0.1:29001"]}]}]
"""


@pytest.fixture(scope="module")
def prometheus(machine):
    """The folder of Debian's programs, which are unpacked and not installed: the package would start a service."""
    done = machine.system.online("apt-get -qq download prometheus && dpkg-deb -x prometheus_*.deb /root/prometheus")
    assert done.returncode == 0, done.stdout + done.stderr
    yield "/root/prometheus/usr/bin"
    machine.type("rm -r prometheus prometheus_*.deb")


def test_promtool_finds_nothing_in_the_metrics(machine, prometheus):
    check = f"{prometheus}/promtool check metrics < "
    metrics = machine.type(f'python3 -c "{FETCH}" http://127.0.0.1:29001/metrics | tee metrics.txt')
    assert "fairway_executor_up" in metrics
    assert machine.type(check + "metrics.txt") == ""
    (machine.system.path / "root/wrong.txt").write_text("# HELP bad Bad.\n# TYPE bad counter\nbad 1\n")
    assert machine.system.run(check + "wrong.txt").code != 0, "it looks"
    machine.type("rm metrics.txt wrong.txt")


def test_each_alert_fires_where_it_should(machine, prometheus):
    folder = machine.system.path / "root/rules"
    shutil.copytree(ROOT / "deploy" / "prometheus", folder)
    machine.type(f"cd rules && {prometheus}/promtool check rules fairway.rules.yaml")
    machine.type(f"cd rules && {prometheus}/promtool test rules fairway.rules_test.yaml")
    alerts = set(re.findall(r"alert: (\w+)", (folder / "fairway.rules.yaml").read_text()))
    tests = (folder / "fairway.rules_test.yaml").read_text()
    assert alerts == set(re.findall(r"alertname: (\w+)$", tests, re.MULTILINE)), "which fires in a test"
    assert alerts == set(re.findall(r"alertname: (\w+), .*exp_alerts: \[\]", tests)), "which does not"
    shutil.rmtree(folder)


def test_promtool_parses_each_expression_of_the_dashboard(machine, prometheus):
    text = (ROOT / "deploy" / "helm" / "fairway" / "files" / "dashboard.json").read_text()
    asked = [target["expr"] for panel in json.loads(text)["panels"] for target in panel["targets"]]
    assert len(asked) > 10
    path = machine.system.path / "root/dashboard.yaml"

    def check(expressions):
        # Grafana puts a duration there.
        rules = [{"record": f"a{number}", "expr": one.replace("$__rate_interval", "5m")} for number, one in enumerate(expressions)]
        path.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
        return machine.system.run(f"{prometheus}/promtool check rules dashboard.yaml").code

    assert check(asked) == 0
    assert check([*asked, "rate(fairway_sessions)"]) != 0, "it looks"
    path.unlink()


class Alerts:
    """Prometheus with the package's rules."""

    def __init__(self, system, programs):
        self.system = system
        (system.path / "root/prometheus.yml").write_text(PROMETHEUS)
        self.process = subprocess.Popen(system.words(
            f"exec {programs}/prometheus --config.file=prometheus.yml --storage.tsdb.path=/root/tsdb --log.level=warn "
            "--web.listen-address=127.0.0.1:9090"), stdin=subprocess.DEVNULL)

    def wait_for(self, name):
        last = time.monotonic() + 240
        while True:
            told = self.system.run(f'python3 -c "{FETCH}" http://127.0.0.1:9090/api/v1/alerts')
            alerts = json.loads(told.out)["data"]["alerts"] if told.code == 0 else []
            if any(alert["labels"]["alertname"] == name and alert["state"] == "firing" for alert in alerts):
                return
            assert time.monotonic() < last and self.process.poll() is None, (name, told.out, told.err)
            time.sleep(1)

    def stop(self):
        self.process.terminate()
        self.process.wait(60)
        self.system.run("rm -r tsdb prometheus.yml")


def test_faults_fire_alerts_in_prometheus(machine, prometheus):
    alerts = Alerts(machine.system, prometheus)
    try:
        alerts.wait_for("FairwayControllerRestarted")
        (executor,) = [pid for pid in machine.system.processes()
                       if b"--role=executor" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()]
        os.kill(executor, signal.SIGSTOP)
        alerts.wait_for("FairwayExecutorStalled")
        os.kill(executor, signal.SIGCONT)
        machine.systemctl(["stop", WORKER])
        alerts.wait_for("FairwayIslandDown")
        machine.systemctl(["stop", CONTROLLER])
        alerts.wait_for("FairwayControllerAbsent")
    finally:
        alerts.stop()
    machine.systemctl(["restart", CONTROLLER, WORKER])


def test_a_service_that_hangs_gives_no_sign_of_life(machine):
    controller = machine.running[CONTROLLER]
    controller.signs_of_life(1)
    controller.process.send_signal(signal.SIGSTOP)
    controller.is_silent_for(0.1)  # what it had sent
    silent = controller.is_silent_for(2)  # the watchdog's time is 0.6 s
    controller.process.send_signal(signal.SIGCONT)
    assert silent
    controller.signs_of_life(1)


def test_the_data_is_the_services_alone(machine):
    """Without certificates the controller serves the user fairway and root."""
    become = "setpriv --reuid=4242 --clear-groups"
    done = machine.system.run(f"{become} fairway status")
    assert done.code != 0 and "4242" in (machine.system.path / f"root/{CONTROLLER}.log").read_text(), done
    assert machine.system.run(f"{become} ls /var/lib/fairway").code != 0


def test_a_worker_with_the_plugin_for_cpus_compiles_and_runs(machine):
    """Behind its filter of system calls, with the plugin of this checkout at the place that the settings name."""
    system = machine.system
    (plugin,) = (ROOT / ".venv").glob("lib/python3*/site-packages/xla_plugins/xla_cpu_pjrt/xla_cpu_pjrt.so")
    settings = system.path / "etc/fairway/worker.toml"
    kept = settings.read_text()
    place = system.path / re.search(r'^#plugin = "/(.*)"', kept, re.MULTILINE)[1]
    place.parent.mkdir(parents=True)
    shutil.copy(plugin, place)
    code = system.path / "root/f.bytecode"
    tell(sys.executable, "-c", affine.EXPORT, code, env={**os.environ, "JAX_PLATFORMS": "cpu"})
    (system.path / "root/affine.txtpb").write_text(affine.PROGRAM)
    settings.write_text(kept.replace('runtime = "host"', 'runtime = "pjrt"').replace("#plugin", "plugin"))
    machine.systemctl(["restart", CONTROLLER, WORKER])
    assert machine.type("fairway run affine.txtpb --code f=f.bytecode --arg x=3") == "y  f32[4]  [7, 7, 7, 7]\n"
    settings.write_text(kept)
    machine.systemctl(["restart", CONTROLLER, WORKER])


def test_the_page_tells_how_to_make_certificates(machine):
    """On one host: what the page has for the controller's host, then for the worker's."""
    settings = machine.system.path / "etc/fairway/worker.toml"
    kept = settings.read_text()
    *_, controller, worker = commands_in_the_page("The Debian package")
    for line in controller:
        told = machine.type(line.replace("10.0.0.1", "127.0.0.1"))
    plugin = re.search(r'^#plugin = "(.*)"', (machine.system.path / "etc/fairway/worker.toml").read_text(), re.MULTILINE)[1]
    for line in joining(worker, told, f"--plugin {plugin}"):
        machine.type(line)
    tls = "--tls-ca /var/lib/fairway/controller/ca.pem --token-file /var/lib/fairway/controller/admin.token"
    assert re.search(r"island0.*\bup\b", machine.type(f"fairway status {tls}"))
    machine.type(f"fairway token create --role user --tenant red --to red.token {tls}")
    user = tls.replace("/var/lib/fairway/controller/admin.token", "red.token")
    assert machine.type(f"fairway run affine.txtpb --code f=f.bytecode --arg x=3 {user}") == "y  f32[4]  [7, 7, 7, 7]\n"
    assert machine.system.run("fairway status").code != 0
    settings.write_text(kept)


def test_services_end_in_order(machine):
    assert sorted(machine.running) == sorted(units.UNITS)
    for name in reversed(units.UNITS):
        machine.systemctl(["stop", name])
    assert machine.system.processes() == []


def test_an_upgrade_keeps_changed_settings_and_data(machine, deb, tmp_path):
    system, etc = machine.system, machine.system.path / "etc/fairway"
    shutil.copy(upgrade_of(deb, tmp_path), system.path / "root")
    with (etc / "controller.toml").open("a") as file:
        file.write('\n# Of the administrator.\n')
    changed = (etc / "controller.toml").read_text()
    data = system.files() & {name for name in system.files() if name.startswith("var/lib/fairway/")}
    machine.type("apt-get -qq install -y ./fairway_99.0-1_amd64.deb")
    assert "99.0-1" in machine.type("dpkg-query -W fairway")
    assert (etc / "controller.toml").read_text() == changed
    assert "# A line of version 99.0-1." in (etc / "worker.toml").read_text()
    assert data and data <= system.files()
    machine.type("fairway config check /etc/fairway/controller.toml")


def test_removing_keeps_settings_and_data_and_purging_drops_them(machine):
    system = machine.system
    machine.type("apt-get -qq remove -y fairway")
    left = system.files()
    assert "etc/fairway/controller.toml" in left and "var/lib/fairway/controller/ca.key" in left
    assert not [name for name in left if name.startswith(("usr/bin/fairway", "usr/share/doc/fairway"))]
    machine.type("apt-get -qq purge -y fairway")
    left = {name for name in system.files() - machine.before if "fairway" in name}
    ours = ("root/", "run/", "var/cache/apt", "opt/")
    assert {name for name in left if not name.startswith(ours)} <= {"var/lib/dpkg/info"}, left
    assert re.search(r"^fairway:", (system.path / "etc/passwd").read_text(), re.MULTILINE)  # its uid is not given to another
