# SPDX-License-Identifier: Apache-2.0
"""The wheel, as a new user meets it: installed in bare Debian systems, used, and uninstalled."""

import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile

import pytest

import bare

ROOT = bare.ROOT
sys.path.insert(0, str(ROOT / "package"))

import elf  # noqa: E402

HERE = pathlib.Path(os.environ.get("FAIRWAY_WHEEL_DIR", ROOT / "build" / "package"))
INSTALL = "python3 -m venv venv && . venv/bin/activate && pip install -q {}"
UP = "fairway up --islands 2 --devices 4 --detach"
EXAMPLE = "python -m fairway.examples.digits_pipeline"


@pytest.fixture(scope="session")
def wheel():
    bare.require_tools()
    (path,) = HERE.glob("fairway-*.whl")
    return path


@pytest.fixture(scope="session")
def unpacked(wheel, tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    with zipfile.ZipFile(wheel) as file:
        file.extractall(folder)
    for program in (folder / "fairway" / "_native" / "bin").iterdir():
        program.chmod(0o755)  # pip does so; zipfile does not
    return folder


@pytest.fixture(scope="session")
def roots():
    folder = ROOT / "build" / "wheel-roots" / os.environ.get("PYTEST_XDIST_WORKER", "alone")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    yield folder
    shutil.rmtree(folder)


def version_of(wheel):
    return wheel.name.split("-")[1]


@pytest.fixture(scope="session")
def other(wheel, roots):
    """The same wheel as another release: only the version differs, in the programs too."""
    before = version_of(wheel)
    after = before.rpartition(".")[0] + ".9"
    assert len(after) == len(before) and after != before
    path = roots / wheel.name.replace(before, after)
    with zipfile.ZipFile(wheel) as source, zipfile.ZipFile(path, "w") as target:
        for entry in source.infolist():
            data = source.read(entry)
            name = entry.filename.replace(f"fairway-{before}.dist-info", f"fairway-{after}.dist-info")
            if "/bin/" in name or name.endswith("METADATA"):
                data = data.replace(before.encode(), after.encode())
            if name.endswith("RECORD"):
                data = re.sub(rb",sha256=[^,]*,\d*", b",,", data)
                data = data.replace(f"fairway-{before}".encode(), f"fairway-{after}".encode())
            copy = zipfile.ZipInfo(name, entry.date_time)
            copy.external_attr = entry.external_attr
            target.writestr(copy, data)
    return path


def elf_files(folder):
    return [path for path in sorted(folder.rglob("*"))
            if path.is_file() and path.open("rb").read(4) == b"\x7fELF"]


def one_line(text):
    """The text without its newline; it must be one line."""
    lines = [line for line in text.splitlines() if line.strip()]
    assert len(lines) == 1, text
    return lines[0]


# ---- the file ----


def test_it_is_small_and_its_record_is_right(wheel, unpacked):
    assert wheel.stat().st_size <= 30_000_000
    (info,) = unpacked.glob("*.dist-info")
    recorded = {}
    for line in (info / "RECORD").read_text().splitlines():
        name, digest, size = line.rsplit(",", 2)
        recorded[name] = size
        if digest:
            assert (unpacked / name).stat().st_size == int(size)
    assert set(recorded) == {str(p.relative_to(unpacked)) for p in unpacked.rglob("*") if p.is_file()}
    with zipfile.ZipFile(wheel) as file:
        assert len({entry.date_time for entry in file.infolist()}) == 1
        modes = {entry.filename: entry.external_attr >> 16 & 0o777 for entry in file.infolist()}
    assert {mode for name, mode in modes.items() if "/_native/bin/" in name} == {0o755}
    assert {mode for name, mode in modes.items() if "/_native/bin/" not in name} == {0o644}


def test_every_library_but_libcs_is_inside_and_found_there(wheel, unpacked):
    native = unpacked / "fairway" / "_native"
    floor = tuple(map(int, re.search(r"manylinux_(\d+)_(\d+)_x86_64", wheel.name).groups()))
    files = elf_files(unpacked)
    assert {"fairway", "fairway-controller", "fairway-worker"} <= {path.name for path in files}
    for path in files:
        assert elf.glibc_floor(path) <= floor <= (2, 36), path
        rpath, runpath = elf.search_path(path)
        assert runpath is None, f"{path} has a DT_RUNPATH, which hides what its users' DT_RPATH says"
        private = path.parent == native / "lib" / "fairway"
        assert rpath == (None if private else
                         "$ORIGIN/fairway" if path.parent.name == "lib" else "$ORIGIN/../lib/fairway")
        for name, where in elf.libraries(path).items() if not private else ():
            assert pathlib.Path(where).resolve().is_relative_to(unpacked), f"{path} takes {where}"
        for name in elf.needed(path):
            assert elf.is_libc(name) or (native / "lib" / "fairway" / name).is_file(), (path, name)
        sections = subprocess.run(["objdump", "-h", path], text=True, capture_output=True).stdout
        assert ".debug_" not in sections and ".symtab" not in sections, path


def test_nothing_inside_tells_where_it_was_built(unpacked):
    homes = [path for path in (ROOT, pathlib.Path.home()) if path != path.parent]
    told = re.compile(rb"(?<![\w./-])(" + b"|".join(re.escape(f"{p}/".encode()) for p in homes) + b")")
    for path in unpacked.rglob("*"):
        data = path.read_bytes() if path.is_file() else b""
        assert not told.search(data), path


def test_the_licence_of_every_library_is_inside(unpacked):
    (info,) = unpacked.glob("*.dist-info")
    told = (info / "licenses" / "THIRD_PARTY.txt").read_text()
    for path in (unpacked / "fairway" / "_native" / "lib" / "fairway").iterdir():
        assert path.name in told, path.name
    texts = {path.stem for path in (info / "licenses" / "debian").iterdir()}
    assert texts == set(re.findall(r"^(\S+) \(source \S+ \S+\): ", told, re.MULTILINE))
    assert "Apache License" in (info / "licenses" / "LICENSE").read_text()
    for path in (info / "licenses" / "debian").iterdir():
        for name in re.findall(r"/usr/share/common-licenses/([A-Z][A-Za-z]*(?:-[0-9.]*\d)?)", path.read_text()):
            if pathlib.Path("/usr/share/common-licenses", name).is_file():
                assert (info / "licenses" / "common-licenses" / f"{name}.txt").is_file(), (path, name)


def test_a_second_packing_gives_the_same_bytes(wheel):
    (again,) = (HERE / "again").glob("*.whl")
    assert again.name == wheel.name
    digests = {hashlib.sha256(path.read_bytes()).hexdigest() for path in (wheel, again)}
    assert len(digests) == 1


# ---- used ----


@pytest.mark.parametrize("suite", [
    pytest.param(suite, marks=pytest.mark.xdist_group(suite)) for suite in ("bookworm", "trixie")])
def test_three_commands_train_a_pipeline_and_uninstalling_leaves_nothing(suite, wheel, other, roots):
    with bare.Bare(suite, roots / suite) as system:
        print(f"\n==== Debian {suite}: downloads took {system.download(wheel):.1f} s")
        for one in (wheel, other):
            shutil.copy(one, system.path / "root")
        before = system.files()
        installed, up, example = commands = [
            system.run(INSTALL.format(f"'{wheel.name}[cpu,examples]'")), system.run(UP),
            system.run(EXAMPLE)]
        for command in commands:
            print(command, end="")
        print(f"three commands: {sum(c.wall for c in commands):.1f} s")
        assert [c.code for c in commands] == [0, 0, 0]
        assert "The cluster is ready." in up.out
        assert "fairway.examples: on the cluster at 127.0.0.1:29000" in example.err
        assert float(re.search(r"^test accuracy: (\S+)$", example.out, re.MULTILINE).group(1)) > 0.95
        assert system.run("command -v g++ gcc cc clang").code != 0  # none may be there
        # A script that imports another one from its folder.
        program = system.run("python -m fairway.examples.digits_program --steps 5 --quiet")
        assert program.code == 0 and "accuracy" in program.out, program

        beside_another_version(system, wheel, other)
        the_ports_are_taken(system)
        prefix = pathlib.Path(one_line(system.run("python -m fairway.sdk").out))
        assert (system.path / prefix.relative_to("/") / "include" / "fairway" / "fairway.h").is_file()

        assert system.run("fairway down").code == 0
        assert system.run("pip uninstall -y fairway").code == 0
        assert system.processes() == []
        left = system.files() - before
        # Logs are the user's; docs/install.md says where they are.
        logs = "root/.local/state/fairway"
        outside = {p for p in left if not p.startswith(("root/venv/", "root/other/", logs))}
        assert outside <= {"root/venv", "root/other", "root/.local", "root/.local/state"}
        assert not [p for p in left if "fairway" in p and p.startswith("root/venv/")]


def beside_another_version(system, wheel, other):
    """A second version in its own environment: its command names the version that it talks to."""
    ours, theirs = version_of(wheel), version_of(other)
    done = system.run(f"python3 -m venv other && other/bin/pip install -q --no-deps {other.name}")
    assert done.code == 0, done.err
    told = system.run("other/bin/fairway status", activate="none")
    print(told, end="")
    assert told.code == 0
    assert f"this command is version {theirs}, the controller {ours}" in one_line(told.err)
    assert system.run("fairway status").err == ""
    # One environment holds one version: a later one replaces the earlier.
    for one in (other, wheel):
        done = system.run(f"pip install -q --no-deps {one.name} && fairway --version")
        assert done.out == f"fairway {version_of(one)}\n", done


def the_ports_are_taken(system):
    again = system.run("fairway up --port 29000")
    print(again, end="")
    assert again.code == 5
    assert "--port=29000: a cluster of another `fairway up` has this port" in one_line(again.err)
    second = system.run("fairway up --detach")
    print(second, end="")
    assert second.code == 0
    assert "port 29000 is taken" in second.out.splitlines()[0]
    address = re.search(r"FAIRWAY_CONTROLLER=(\S+)", second.out).group(1)
    assert system.run(f"fairway down --controller {address}").code == 0


# ---- a machine that it does not fit ----


@pytest.fixture(scope="session")
def plain(roots):
    """A bare system without anything of ours."""
    with bare.Bare("bookworm", roots / "plain") as system:
        assert system.run("python3 -m venv venv").code == 0
        yield system


@pytest.mark.parametrize("tag", ["musllinux_1_2_x86_64", "manylinux_2_99_x86_64", "manylinux_2_36_aarch64"])
def test_pip_refuses_a_wheel_for_another_machine_in_one_line(tag, wheel, plain):
    name = re.sub(r"manylinux\S*(?=\.whl)", tag, wheel.name)
    shutil.copy(wheel, plain.path / "root" / name)
    done = plain.run(f"pip install --no-deps {name}")
    print(done, end="")
    assert done.code != 0
    assert "is not a supported wheel on this platform" in one_line(done.err)


@pytest.mark.parametrize("platform", ["musllinux_1_2_x86_64", "manylinux_2_35_x86_64", "manylinux_2_36_aarch64"])
def test_other_machines_refuse_this_wheel_in_one_line(platform, wheel, plain):
    shutil.copy(wheel, plain.path / "root")
    done = plain.run(f"pip install --platform {platform} --target none --only-binary=:all: --no-deps {wheel.name}")
    print(done, end="")
    assert done.code != 0
    assert "is not a supported wheel on this platform" in one_line(done.err)


def test_pip_refuses_this_wheel_for_too_old_a_python_in_one_line(wheel, plain):
    shutil.copy(wheel, plain.path / "root")
    ask = "pip download -q --no-index --no-deps --only-binary=:all: --dest got --python-version {} " + wheel.name
    old, oldest_served = (plain.run(ask.format(version)) for version in ("3.10", "3.11"))
    print(old, oldest_served, end="")
    assert old.code != 0 and oldest_served.code == 0
    assert "'fairway' requires a different Python: 3.10.0 not in '>=3.11'" in one_line(old.err)


def test_a_full_disk_is_one_line_and_the_next_try_works(wheel, plain):
    shutil.copy(wheel, plain.path / "root")
    made = plain.run("mkdir -p small && mount -t tmpfs -o size=60m none small && python3 -m venv small/venv")
    assert made.code == 0, made.err
    full = plain.run(f"pip install -q --no-deps {wheel.name}", activate="small/venv")
    print(full, end="")
    assert full.code != 0
    assert "No space left on device" in one_line(full.err)
    assert plain.run("fairway --version", activate="small/venv").code != 0
    # pip leaves the files that it had written, but nothing is installed, and there is no command.
    assert "fairway" not in plain.run("pip list", activate="small/venv").out
    again = plain.run(
        f"mount -o remount,size=300m small && pip install -q --no-deps {wheel.name} && fairway --version",
        activate="small/venv")
    assert again.out == f"fairway {version_of(wheel)}\n", again
    told = plain.run("fairway up", activate="small/venv")  # the extra "cpu" is missing
    assert told.code == 2
    assert "no PJRT plugin found: `pip install xla-cpu-pjrt`" in one_line(told.err)
    assert plain.run("pip uninstall -y fairway", activate="small/venv").code == 0
    assert plain.run("find small -name '*fairway*'").out == ""
    assert plain.run("umount small").code == 0


# ---- without the programs ----


def test_the_python_package_alone_says_in_one_line_what_it_lacks(plain, roots):
    work = roots / "pure"
    shutil.copytree(ROOT / "client" / "python", work,
                    ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__"))
    made = subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "-q", "--disable-pip-version-check", "--no-deps",
         "--no-build-isolation", "--no-index", "-w", plain.path / "root" / "pure", work],
        text=True, capture_output=True)
    assert made.returncode == 0, made.stderr
    done = plain.run("python3 -m venv alone && alone/bin/pip install -q --no-deps pure/*.whl", activate="none")
    assert done.code == 0, done.err
    told = plain.run("alone/bin/fairway up", activate="none")
    print(told, end="")
    assert told.code == 1
    assert one_line(told.err).startswith("fairway: this is the Python package alone")


# ---- for a machine with a GPU ----


def test_what_is_packed_for_a_machine_with_a_gpu_says_on_others_that_there_is_none(wheel, plain, roots):
    """With the wheel's own programs, on a system without a compiler and without JAX."""
    archive, run = roots / "gpu.tar.xz", ROOT / "tests" / "gpu" / "run.sh"
    done = subprocess.run([run, "--pack", wheel, archive], text=True, capture_output=True, timeout=300,
                          env={**os.environ, "FAIRWAY_PYTHON": sys.executable})
    assert done.returncode == 0, done.stderr
    assert archive.stat().st_size <= 64 << 20  # the limit in docs/testing.md
    with tarfile.open(archive) as file:
        file.extractall(plain.path / "root", filter="data")
    there = "fairway-gpu/site/fairway/_native/bin"
    for name in ("fairway", "fairway-controller", "fairway-worker"):
        told = plain.run(f"{there}/{name} --version")
        assert told.code == 0 and version_of(wheel) in told.out, told
    told = plain.run("fairway-gpu/tests/gpu/run.sh")
    print(told, end="")
    assert told.code == 0, told
    assert told.out.startswith("no GPU here, so nothing is run: no driver: libcuda.so.1"), told
    results = json.loads((plain.path / "root/gpu-results.json").read_text())
    assert results["gpus"] == 0 and results["steps"] == []
    assert results["commit"] == (plain.path / "root/fairway-gpu/COMMIT").read_text().strip()


# ---- the C++ SDK ----


def test_cmake_finds_the_sdk_and_its_programs_need_nothing_else(unpacked, roots):
    prefix, build = unpacked / "fairway" / "_native", roots / "cpp"
    for command in (["cmake", "-S", ROOT / "examples" / "cpp", "-B", build, f"-DCMAKE_PREFIX_PATH={prefix}"],
                    ["cmake", "--build", build, "--target", "first"]):
        done = subprocess.run(list(map(str, command)), text=True, capture_output=True)
        assert done.returncode == 0, done.stdout + done.stderr
    found = elf.libraries(build / "first")
    (grpc,) = (where for name, where in found.items() if name.startswith("libgrpc.so"))
    assert pathlib.Path(grpc).resolve().is_relative_to(unpacked)
    # The compiler's own C++ library, which may be newer than the wheel's.
    assert not pathlib.Path(found["libstdc++.so.6"]).resolve().is_relative_to(unpacked)
    fairway = prefix / "bin" / "fairway"
    environment = {**os.environ, "XDG_STATE_HOME": str(roots / "state")}
    up = subprocess.run([fairway, "up", "--runtime", "host", "--detach", "--port", "0"],
                        text=True, capture_output=True, timeout=240, env=environment)
    assert up.returncode == 0, up.stderr
    (address,) = re.findall("export FAIRWAY_CONTROLLER=(.*)", up.stdout)
    try:
        done = subprocess.run([build / "first", address], text=True, capture_output=True, timeout=240)
    finally:
        down = subprocess.run([fairway, "down", "--controller", address], timeout=240)
    assert (done.returncode, down.returncode) == (0, 0), done.stderr
    assert done.stdout.splitlines()[-1].split() == ["27", "54", "81", "108"]
