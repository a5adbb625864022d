# SPDX-License-Identifier: Apache-2.0
"""The container images: what is inside, and a cluster of them under Debian's runc, on a read-only root, without capabilities,
as a user who is not root."""

import errno
import gzip
import hashlib
import io
import json
import os
import pathlib
import re
import subprocess
import sys
import tarfile

import numpy
import pytest

import bare
import containers

ROOT = bare.ROOT
sys.path[:0] = [str(ROOT / "tests" / "support"), str(ROOT / "package")]

import affine  # noqa: E402

HERE = ROOT / "build" / "package"
KINDS = ("controller", "worker")
ADDRESSES = ("10.0.0.1", "10.0.0.2")
# Unpacked, in the units of the limits: of all files.
MOST_BYTES = {"controller": 60_000_000, "worker": 400_000_000}
DATA = "/var/lib/fairway"


def archive_of(kind):
    (path,) = HERE.glob(f"fairway-{kind}-*.oci.tar")
    return path


class Image:
    """The parts of an archive, read by themselves."""

    def __init__(self, path):
        self.path, self.layers = path, []
        with tarfile.open(path) as tar:
            self.entries = tar.getmembers()
            self.blobs = {entry.name.rpartition("/")[2]: tar.extractfile(entry).read() for entry in self.entries
                          if entry.isfile() and entry.name.startswith("blobs/")}
            self.index = json.load(tar.extractfile("index.json"))
        (self.descriptor,) = self.index["manifests"]
        self.manifest = json.loads(self.blob(self.descriptor))
        self.config = json.loads(self.blob(self.manifest["config"]))

    def blob(self, descriptor):
        data = self.blobs[descriptor["digest"].removeprefix("sha256:")]
        assert len(data) == descriptor["size"]
        return data


def files_in(path):
    """(name, bytes) of each file below usr/share in the layers of an archive."""
    parts = Image(path)
    for layer in parts.manifest["layers"]:
        with tarfile.open(fileobj=io.BytesIO(parts.blob(layer)), mode="r|gz") as tar:
            for entry in tar:
                if entry.isfile() and entry.name.startswith("usr/share/"):
                    yield entry.name, tar.extractfile(entry).read()


@pytest.fixture(scope="session", params=KINDS)
def image(request):
    return request.param, Image(archive_of(request.param))


@pytest.fixture(scope="session")
def bundles(tmp_path_factory):
    containers.require_tools()
    return {kind: containers.unpack(archive_of(kind), tmp_path_factory.mktemp(kind)) for kind in KINDS}


# ---- the files ----


def test_blobs_are_what_their_names_say(image):
    _, parts = image
    for name, data in parts.blobs.items():
        assert hashlib.sha256(data).hexdigest() == name
    named = {parts.descriptor["digest"], parts.manifest["config"]["digest"], *(layer["digest"] for layer in parts.manifest["layers"])}
    assert named == {f"sha256:{name}" for name in parts.blobs}


def test_the_configuration_says_how_it_runs(image):
    kind, parts = image
    settings, version = parts.config["config"], re.search(r"-([\d.]+)\.oci\.tar$", parts.path.name)[1]
    assert (parts.config["architecture"], parts.config["os"]) == ("amd64", "linux")
    assert settings["User"] == "65532:65532" and settings["StopSignal"] == "SIGTERM" and settings["Volumes"] == {DATA: {}}
    assert settings["Entrypoint"] == [f"/usr/bin/fairway-{kind}"]
    labels = {name.removeprefix("org.opencontainers.image."): value for name, value in settings["Labels"].items()}
    head = subprocess.run(["git", "-C", ROOT, "rev-parse", "HEAD"], text=True, capture_output=True).stdout.strip()
    assert labels["version"] == version and labels["licenses"] == "Apache-2.0"
    assert not head or re.fullmatch(rf"{head}(-dirty)?", labels["revision"]), "of this commit; ./dev package all makes it anew"


def test_the_source_is_labelled_by_whoever_packs(monkeypatch):
    import image as packing
    monkeypatch.delenv("FAIRWAY_SOURCE_URL", raising=False)
    source = "org.opencontainers.image.source"
    assert source not in packing.labels(packing.IMAGES["worker"], "1.2")
    monkeypatch.setenv("FAIRWAY_SOURCE_URL", "https://fairway.invalid/source")
    assert packing.labels(packing.IMAGES["worker"], "1.2")[source] == "https://fairway.invalid/source"


def test_files_are_roots_sorted_and_of_one_time(image, bundles):
    kind, parts = image
    size = 0
    for number, layer in enumerate(parts.manifest["layers"]):
        unpacked = gzip.decompress(parts.blob(layer))
        assert f"sha256:{hashlib.sha256(unpacked).hexdigest()}" == parts.config["rootfs"]["diff_ids"][number]
        with tarfile.open(fileobj=io.BytesIO(unpacked)) as tar:
            entries = tar.getmembers()
        size += sum(entry.size for entry in entries)
        assert [entry.name for entry in entries] == sorted(entry.name for entry in entries)
        assert len({entry.mtime for entry in entries}) == 1
        assert not [entry.name for entry in entries if not (entry.isfile() or entry.isdir()) or entry.mode & 0o6000]
        others = {entry.name: (entry.uid, entry.gid) for entry in entries if (entry.uid, entry.gid) != (0, 0)}
        assert others == ({DATA[1:]: (65532, 65532)} if number == 0 else {})
        assert [entry.name for entry in entries if entry.mode & 0o022] == (["tmp"] if number == 0 else [])
    print(f"{kind}: {size:,} bytes unpacked, {parts.path.stat().st_size:,} as an archive")
    assert size <= MOST_BYTES[kind]
    page = (ROOT / "docs" / "install.md").read_text()
    assert abs(int(re.search(rf"`fairway-{kind}-\S+` \((\d+) MB", page)[1]) - size / 1e6) < 5, "the page says how large it is"
    assert not [name for name in os.listdir(bundles[kind] / "rootfs/usr/bin") if not name.startswith("fairway")], "no shell"


def test_each_library_is_debians_and_its_licence_is_there(image, bundles):
    kind, _ = image
    root = bundles[kind] / "rootfs"
    doc = root / "usr/share/doc/fairway"
    told = (doc / "third-party/THIRD_PARTY.txt").read_text()
    listed = re.findall(r"^(\S+) \(source \S+ \S+\): (?!code of its headers)(.*)$", told, re.MULTILINE)
    owners = {name: package for package, names in listed for name in names.split(", ")}
    there = {path.name for path in [*(root / "usr/lib/x86_64-linux-gnu").iterdir(), *(root / "lib64").iterdir()]}
    assert set(owners) == there | {"ca-certificates.crt"} and len(there) > 30
    for package, _ in listed:
        assert (doc / "third-party/debian" / f"{package}.txt").stat().st_size > 100
    for name, package in owners.items():
        listing = subprocess.run(["dpkg-query", "--listfiles", package], text=True, capture_output=True, check=True).stdout
        same = [path for path in listing.splitlines() if pathlib.Path(path).name == name] or [""]
        if name.startswith("lib") and os.path.exists(same[0]):
            (file,) = root.rglob(name)
            assert file.read_bytes() == pathlib.Path(same[0]).read_bytes(), name
    assert (doc / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    assert (root / "etc/ssl/certs/ca-certificates.crt").read_text().count("BEGIN CERTIFICATE") > 100
    assert ("The OpenXLA Authors, is the file" in told) == (kind == "worker")
    assert ("libopenblas64-0-pthread" in owners.values()) == (kind == "worker")


def test_a_file_that_is_not_its_packages_is_refused(monkeypatch):
    import image as packing
    path = "/usr/lib/x86_64-linux-gnu/libssl.so.3"
    assert packing.check_unchanged({"libssl3"}, [path]) is None
    monkeypatch.setattr(packing, "run", lambda *_: f"??5??????   {path}\n")
    with pytest.raises(SystemExit, match="libssl.so.3 is not as its Debian package has it"):
        packing.check_unchanged({"libssl3"}, [path])


def test_layers_do_not_tell_when_they_were_packed(tmp_path):
    """So the next version has the same layers where it has the same files."""
    import oci
    made = []
    for number, created in enumerate(("2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z", "2026-02-02T00:00:00Z")):
        (tmp_path / "file").write_text("contents")
        os.utime(tmp_path / "file", (number, number))
        packed = oci.Archive(tmp_path / f"work{number}")
        packed.layer({"a/file": oci.Entry(tmp_path / "file", 0o644), "a/b/other": oci.Entry(b"more", 0o755)})
        packed.write(tmp_path / f"{number}.oci.tar", "localhost/test", "1", "amd64", {}, created)
        made.append(Image(tmp_path / f"{number}.oci.tar"))
    first, again, later = made
    assert first.path.read_bytes() == again.path.read_bytes() != later.path.read_bytes()
    assert first.manifest["layers"] == later.manifest["layers"] and first.manifest["config"] != later.manifest["config"]


# ---- a cluster of containers ----


class Cluster:
    """A controller on one host, a worker on another, set up by the commands of "Several hosts" in docs/install.md. A client
    is on the worker's host."""

    def __init__(self, bundles, hosts):
        self.bundles, (self.one, self.two) = bundles, hosts
        self.tell(self.one, "controller", "init", f"{DATA}/cluster", "--bind", ADDRESSES[0])
        self.controller = self.one.start(bundles["controller"], "--config", f"{DATA}/cluster/fairway.toml",
                                         "--transit-memory", "4MiB").says("listening on")
        own = ("--from", f"{DATA}/cluster")
        line, token, *_ = self.tell(self.one, "controller", "token", "create", "--worker", "w0", *own).splitlines()
        join = line.partition(" <<")[0].removeprefix("fairway ").split()
        self.tell(self.two, "worker", *join, said=token + "\n")
        self.worker = self.two.start(bundles["worker"], "--config", f"{DATA}/w0/fairway.toml")
        admin = ("--tls-ca", f"{DATA}/cluster/ca.pem", "--token-file", f"{DATA}/cluster/admin.token", "--controller",
                 f"{ADDRESSES[0]}:29000")
        self.tell(self.one, "controller", "token", "create", "--role", "user", "--tenant", "red", "--to", f"{DATA}/red.token", *admin)
        self.controller.says("islands up: 1")
        self.client = ("--controller", f"{ADDRESSES[0]}:29000", "--tls-ca", self.two.give(self.one.volume / "cluster/ca.pem"),
                       "--token-file", self.two.give(self.one.volume / "red.token"))

    def program(self, folder, numbers):
        """What `fairway run` takes to compute 2 * x + 1 of so many numbers."""
        code, program = folder / f"{numbers}.bytecode", folder / f"{numbers}.txtpb"
        containers.tell(sys.executable, "-c", affine.EXPORT.replace("(4,)", f"({numbers},)"), code,
                        env={**os.environ, "JAX_PLATFORMS": "cpu"})
        program.write_text(affine.PROGRAM.replace("[4]", f"[{numbers}]"))
        return self.two.give(program), "--code", f"f={self.two.give(code)}"

    def tell(self, host, kind, *words, said=""):
        code, out, err = host.type(self.bundles[kind], *words, said=said)
        assert code == 0, (words, out, err)
        return out


@pytest.fixture(scope="module")
def hosts(bundles, tmp_path_factory):
    folder = tmp_path_factory.mktemp("hosts")
    with containers.networks(*ADDRESSES) as names, containers.Host(folder / "a", names[0]) as one, \
            containers.Host(folder / "b", names[1]) as two:
        yield one, two


@pytest.fixture(scope="module")
def cluster(bundles, hosts):
    return Cluster(bundles, hosts)


def test_a_compiled_program_runs_through_two_containers(cluster, tmp_path):
    run = ("run", *cluster.program(tmp_path, 4), "--arg", "x=3")
    out = cluster.tell(cluster.two, "controller", *run, *cluster.client)
    assert out == "y  f32[4]  [7, 7, 7, 7]\n"
    # The worker's image has the command, too, and without a token nothing runs.
    assert re.search(r"island0.*\bup\b", cluster.tell(cluster.two, "worker", "status", *cluster.client))
    code, out, err = cluster.two.type(cluster.bundles["worker"], *run, *cluster.client[:-2])
    assert code != 0 and out == "" and "token" in err


def test_uploads_beyond_the_memory_for_them_go_to_the_volume(cluster, tmp_path):
    count = 8 << 20
    numpy.save(tmp_path / "x.npy", numpy.arange(count, dtype=numpy.float32))
    cluster.tell(cluster.two, "controller", "run", *cluster.program(tmp_path, count), "--arg",
                 f"x={cluster.two.give(tmp_path / 'x.npy')}", "--out", f"y={DATA}/y.npy", *cluster.client)
    y = numpy.load(cluster.two.volume / "y.npy")
    assert y.shape == (count,) and y[-1] == numpy.float32(2 * (count - 1) + 1)


@pytest.mark.parametrize("kind, least", [("controller", 1), ("worker", 3)])
def test_no_process_is_root_or_has_a_capability(cluster, kind, least):
    pids = getattr(cluster, kind).processes()
    assert len(pids) >= least  # a worker has an executor and compile processes
    for pid in pids:
        status = dict(line.split(":\t", 1) for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines())
        print(pid, status["Name"], status["CapBnd"])
        assert {status[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0" * 16}
        assert status["Uid"].split() == status["Gid"].split() == ["65532"] * 4 and status["NoNewPrivs"] == "1"


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_can_be_written_but_the_data(cluster, kind):
    root = pathlib.Path(f"/proc/{getattr(cluster, kind).pid()}/root")
    for place in ("usr/bin/new", "etc/new", "tmp/new", "new"):
        with pytest.raises(OSError) as told:
            (root / place).write_text("")  # root of the host may write everywhere else
        assert told.value.errno == errno.EROFS
    host = cluster.one if kind == "controller" else cluster.two
    code, _, err = host.type(cluster.bundles[kind], "init", "/elsewhere")
    assert (code, err) == (1, "fairway init: cannot make /elsewhere: Read-only file system\n")
    new = [path for path in (cluster.bundles[kind] / "rootfs").rglob("*") if path.lstat().st_mtime != 315532800]
    assert not [path for path in new if path.is_file()]


def test_a_worker_without_its_plugin_says_so_in_one_line(hosts, bundles):
    _, two = hosts
    code, _, err = two.type(bundles["worker"], "--plugin", "/opt/none.so", program="/usr/bin/fairway-worker")
    (line,) = [line for line in err.splitlines() if '"component":"executor"' in line]
    assert code == 3 and "cannot load the plugin /opt/none.so" in line and "No such file" in line


def test_a_plugin_for_another_processor_is_told_apart(hosts, bundles, tmp_path):
    _, two = hosts
    library = (bundles["worker"] / "rootfs/usr/lib/x86_64-linux-gnu/libgcc_s.so.1").read_bytes()
    (tmp_path / "arm64.so").write_bytes(library[:18] + (183).to_bytes(2, "little") + library[20:])
    code, _, err = two.type(bundles["worker"], "--plugin", two.give(tmp_path / "arm64.so"), program="/usr/bin/fairway-worker")
    (line,) = [line for line in err.splitlines() if '"component":"executor"' in line]
    assert code == 3 and "it is for another processor (ELF machine 183; this worker needs 62)" in line


@pytest.mark.parametrize("kind, most", [("worker", 15), ("controller", 10)])
def test_sigterm_ends_it_in_order(cluster, kind, most):
    code, seconds = getattr(cluster, kind).stop()
    print(f"{kind}: code {code} after {seconds:.1f} s\n{getattr(cluster, kind).said()[-2000:]}")
    assert code == 0 and seconds < most

