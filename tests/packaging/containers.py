# SPDX-License-Identifier: Apache-2.0
"""Containers of our images under Debian's runc, without an engine: umoci unpacks an image, and each container gets a bundle
with a read-only root, no capability, a volume, and a network namespace of a pair. All is taken down at the end of a `with`."""

import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import tarfile
import time

USER = 65532
PROGRAMS = ("ip", "runc", "umoci")


def tell(*words, **keywords):
    done = subprocess.run(list(map(str, words)), text=True, capture_output=True, timeout=300, **keywords)
    assert done.returncode == 0, f"{words}\n{done.stdout}{done.stderr}"
    return done.stdout


def require_tools():
    assert os.geteuid() == 0, "containers are made by root: run these tests as root"
    for tool in PROGRAMS:
        assert shutil.which(tool), f"{tool} is missing; `./dev test packages` installs it"


def wait_for(look, what, seconds=120):
    last = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < last, f"no {what} within {seconds} s"
        time.sleep(0.05)
    return found


def unpack(archive, folder):
    """The root file system and configuration of an image: folder/bundle."""
    layout = folder / "layout"
    with tarfile.open(archive) as tar:
        tar.extractall(layout, filter="data")
    (manifest,) = json.loads((layout / "index.json").read_text())["manifests"]
    tag = manifest["annotations"]["org.opencontainers.image.ref.name"]
    tell("umoci", "unpack", "--image", f"{layout}:{tag}", folder / "bundle")
    return folder / "bundle"


@contextlib.contextmanager
def networks(*addresses):
    """A namespace for each address, all at one switch; yields their names."""
    names = [f"fairway-image-{os.getpid()}-{number}" for number in range(len(addresses) + 1)]
    made = []
    try:
        for name in names:
            tell("ip", "netns", "add", name)
            made.append(name)
        switch, *hosts = names
        tell("ip", "-n", switch, "link", "add", "bridge", "type", "bridge")
        tell("ip", "-n", switch, "link", "set", "bridge", "up")
        for number, (name, address) in enumerate(zip(hosts, addresses)):
            tell("ip", "link", "add", f"port{number}", "netns", switch, "type", "veth", "peer", "name", "up0", "netns", name)
            tell("ip", "-n", switch, "link", "set", f"port{number}", "master", "bridge", "up")
            tell("ip", "-n", name, "address", "add", f"{address}/24", "dev", "up0")
            tell("ip", "-n", name, "link", "set", "up0", "up")
            tell("ip", "-n", name, "link", "set", "lo", "up")
        yield hosts
    finally:
        for name in made:
            subprocess.run(["ip", "netns", "del", name], check=False)


class Host:
    """What its containers have in common: a network and a volume. `containers` run until the `with` ends."""

    def __init__(self, folder, network):
        self.folder, self.network, self.volume, self.containers = folder, network, folder / "volume", []
        self.volume.mkdir(parents=True)
        os.chown(self.volume, USER, USER)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for container in reversed(self.containers):
            container.remove()

    def give(self, source, name=None):
        """Copies a file into the volume; returns where containers see it."""
        place = self.volume / (name or pathlib.Path(source).name)
        shutil.copy(source, place)
        os.chown(place, USER, USER)
        return f"/var/lib/fairway/{place.name}"

    def start(self, bundle, *arguments, program=None, said=""):
        """`said`: what it reads from standard input."""
        self.containers.append(Container(self, bundle, arguments, program, said))
        return self.containers[-1]

    def type(self, bundle, *arguments, program="/usr/bin/fairway", said=""):
        """(code, output, errors) of a container that ends by itself."""
        container = self.start(bundle, *arguments, program=program, said=said)
        code = container.process.wait(240)
        return code, container.out.read_text(), container.err.read_text()


class Container:
    """One that runs. Its configuration is umoci's, of the image, but for what Kubernetes' restricted pods have."""

    def __init__(self, host, bundle, arguments, program, said):
        self.name = f"{host.network}-{len(host.containers)}"
        self.folder = host.folder / self.name
        self.folder.mkdir()
        self.state = host.folder / "runc"
        config = json.loads((bundle / "config.json").read_text())
        process = config["process"]
        process["args"] = ([program] if program else process["args"]) + list(map(str, arguments))
        process["terminal"], process["noNewPrivileges"] = False, True
        process["capabilities"] = {kind: [] for kind in process["capabilities"]}
        process["rlimits"] = []  # those of this process
        config["root"] = {"path": str(bundle / "rootfs"), "readonly": True}
        for mount in config["mounts"]:
            if mount["destination"] == "/var/lib/fairway":  # for the volume that the image names
                mount |= {"type": "bind", "source": str(host.volume), "options": ["bind", "rw"]}
        spaces = [{"type": kind} for kind in ("pid", "ipc", "uts", "mount")]
        config["linux"]["namespaces"] = [*spaces, {"type": "network", "path": f"/run/netns/{host.network}"}]
        (self.folder / "config.json").write_text(json.dumps(config))
        self.out, self.err = self.folder / "out", self.folder / "err"
        (self.folder / "in").write_text(said)
        with self.out.open("w") as out, self.err.open("w") as err, (self.folder / "in").open() as given:
            self.process = subprocess.Popen(self._runc("run", "--bundle", str(self.folder), self.name), stdout=out, stderr=err,
                                            stdin=given)

    def _runc(self, *words):
        return ["runc", "--root", str(self.state), *words]

    def said(self):
        return self.out.read_text() + self.err.read_text()

    def says(self, text):
        """Waits for that; a container that ends before it fails."""
        def look():
            assert self.process.poll() is None or text in self.said(), self.said()
            return text in self.said()
        wait_for(look, f"'{text}' in what {self.name} says:\n{self.said()}")
        return self

    def pid(self):
        """Of its first process, as the host sees it."""
        return json.loads(tell(*self._runc("state", self.name)))["pid"]

    def processes(self):
        return json.loads(tell(*self._runc("ps", "--format", "json", self.name)))

    def stop(self):
        """(exit code, seconds) after SIGTERM."""
        started = time.monotonic()
        tell(*self._runc("kill", self.name, "TERM"))
        return self.process.wait(120), time.monotonic() - started

    def remove(self):
        subprocess.run(self._runc("delete", "--force", self.name), capture_output=True, check=False, timeout=60)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
