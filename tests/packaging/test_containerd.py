# SPDX-License-Identifier: Apache-2.0
"""The images under Debian's containerd, one for each of two hosts, by the commands of docs/install.md."""

import os
import pathlib
import re
import shutil
import sys
import tempfile

import pytest

import bare
import containers
import engine
import debs
import test_image

sys.path.insert(0, str(bare.ROOT / "tests" / "support"))

import affine  # noqa: E402

PROGRAMS = bare.ROOT / "build" / "release" / "bin"


class Shell:
    """The administrator of a host, whose lines go on from those before."""

    def __init__(self, host, kind):
        self.host, self.before = host, ""
        os.link(test_image.archive_of(kind), host.folder / test_image.archive_of(kind).name)

    def type(self, line, said=""):
        """What it prints. The hosts are one machine here, so each has its own /srv."""
        line = line.replace("/srv/", f"{self.host.folder}/srv/")
        if re.match(r"\w+=", line):
            self.before += line + "\n"
            return ""
        return self.host.type(self.before + line + (f" <<'END'\n{said}\nEND" if said else ""))


@pytest.fixture(scope="module")
def hosts():
    engine.require_tools()
    build = bare.ROOT / "build"
    folder = pathlib.Path(tempfile.mkdtemp(prefix="ctr-", dir=build))  # on the file system of the archives
    try:
        with containers.networks(*test_image.ADDRESSES) as names, engine.Engine(folder / "a", names[0]) as one, \
                engine.Engine(folder / "b", names[1]) as two:
            yield Shell(one, "controller"), Shell(two, "worker")
        assert not one.shims() and not two.shims()
    finally:
        shutil.rmtree(folder)


def states(shell):
    return dict(re.findall(r"^(\S+) +\d+ +(\w+)", shell.host.run("ctr tasks ls").stdout, re.MULTILINE))


def serves(shell):
    """Whether the controller of that host listens for clients."""
    (pid,) = shell.host.pids("controller")
    return re.search(rf":{29000:04X} 0+:0000 0A", pathlib.Path(f"/proc/{pid}/net/tcp").read_text())


def run_as_client(network, lines, folder):
    """A program on a client's host, on which those lines were typed."""
    containers.tell(sys.executable, "-c", affine.EXPORT, folder / "f.bytecode", env={**os.environ, "JAX_PLATFORMS": "cpu"})
    (folder / "affine.txtpb").write_text(affine.PROGRAM)
    return containers.tell("ip", "netns", "exec", network, "bash", "-euc",
                           f"{lines}\nexec fairway run affine.txtpb --code f=f.bytecode --arg x=3", cwd=folder,
                           env={"PATH": f"{PROGRAMS}:/usr/bin:/bin", "HOME": str(folder)})


def test_the_page_leads_to_a_cluster_of_containers(hosts, tmp_path):
    one, two = hosts
    controller, worker, end = debs.commands_in_the_page("Container images")
    for line in controller:
        told = one.type(line)
        if "--detach" in line:
            containers.wait_for(lambda: serves(one), "controller that listens")
    join, token, *_ = told.splitlines()
    for line in worker:
        if " fairway join " in line:
            assert join.startswith("fairway join ") and " --to w0 --token-file " in join
            line = line.replace("...", join.partition("join ")[2].partition(" --to ")[0])
        two.type(line, said=token if "/dev/stdin" in line else "")
    page = (bare.ROOT / "docs" / "install.md").read_text()
    lines = one.type(re.search(r"`(\$run --rm \$image user .*?)`", page)[1])
    assert run_as_client(two.host.network, lines, tmp_path) == "y  f32[4]  [7, 7, 7, 7]\n"
    for shell, name in ((one, "controller"), (two, "worker")):
        for pid in shell.host.pids(name):
            status = pathlib.Path(f"/proc/{pid}/status").read_text()
            assert re.search(r"^Uid:(\t65532){4}$", status, re.MULTILINE)
            assert re.search(r"^CapEff:\t0{16}$", status, re.MULTILINE) and "NoNewPrivs:\t1\n" in status
            limits = pathlib.Path(f"/proc/{pid}/limits").read_text()
            assert re.search(r"^Max open files +1024 ", limits, re.MULTILINE), "as the page says"
    for line in end:
        two.type(line)
        if "kill" in line:
            containers.wait_for(lambda: states(two) == {"worker": "STOPPED"}, "end of the worker", 20)
    assert states(two) == {} and states(one) == {"controller": "RUNNING"}
    assert two.host.type("ctr containers ls -q") == ""
