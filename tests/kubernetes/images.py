# SPDX-License-Identifier: Apache-2.0
"""Images that pods need besides Fairway's, made here by umoci: busybox (Debian's), kubectl, and what holds a pod's network."""

import os
import pathlib
import subprocess

APPLETS = ("sh cat cp chmod mv mkdir ls tr sleep test base64 sha256sum env id nc grep wget touch rm").split()
TOOLS, KUBECTL, PAUSE = "localhost/busybox:test", "localhost/kubectl:test", "localhost/pause:test"


def _umoci(*words):
    done = subprocess.run(["umoci", *map(str, words)], text=True, capture_output=True, timeout=300)
    assert done.returncode == 0, f"umoci {words}\n{done.stderr}"


def _busybox(root):
    (root / "bin").mkdir()
    program = root / "bin" / "busybox"
    program.write_bytes(pathlib.Path("/bin/busybox").read_bytes())
    program.chmod(0o755)
    for name in APPLETS:
        (root / "bin" / name).symlink_to("busybox")
    (root / "tmp").mkdir(mode=0o1777)


def _kubectl(program):
    def fill(root):
        (root / "bin").mkdir()
        os.link(program, root / "bin" / "kubectl")
    return fill


def _make(folder, name, fill, *entry):
    """An archive that containerd imports under that name."""
    layout, bundle, archive = folder / "layout", folder / "bundle", folder / f"{name.split('/')[1].split(':')[0]}.tar"
    _umoci("init", "--layout", layout)
    _umoci("new", "--image", f"{layout}:test")
    _umoci("unpack", "--image", f"{layout}:test", bundle)
    fill(bundle / "rootfs")
    _umoci("repack", "--image", f"{layout}:test", bundle)
    settings = [f"--config.entrypoint={word}" for word in entry]
    _umoci("config", "--image", f"{layout}:test", *settings, "--config.user=65532:65532", "--config.env=PATH=/bin")
    subprocess.run(["tar", "-C", layout, "-cf", archive, "."], check=True)
    return archive


def make(folder, kubectl):
    """Name -> archive."""
    out = {}
    for name, fill, entry in ((TOOLS, _busybox, ()), (KUBECTL, _kubectl(kubectl), ("/bin/kubectl",)),
                              (PAUSE, _busybox, ("/bin/sleep", "2147483647"))):
        place = folder / name.split("/")[1].split(":")[0]
        place.mkdir(parents=True)
        out[name] = _make(place, name, fill, *entry)
    return out
