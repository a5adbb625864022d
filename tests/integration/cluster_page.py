# SPDX-License-Identifier: Apache-2.0
"""The commands and the file of docs/hosts.md, the hosts that it names, and a JAX program for them."""

import pathlib
import re
import shutil
import subprocess
import sys

import pytest

from cluster import wait_for
from ssh_hosts import make_package, ssh_hosts

HERE = pathlib.Path(__file__).resolve().parent
PAGE = HERE.parents[1] / "docs" / "hosts.md"
UP, STATUS, UPGRADE, DOWN, PURGE = re.findall(r"^(fairway cluster .*?)(?:\s+#.*)?$", PAGE.read_text(), re.M)
UNCHANGED = [f"10.0.0.{n} ({name}): no change" for n, name in ((1, "controller"), (2, "w0"), (3, "w1"))]


def file_of_the_page():
    return PAGE.read_text().partition("```toml\n")[2].partition("```")[0]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """The operator and the hosts of the page, with nothing on them."""
    plugin = pytest.importorskip("xla_plugins.xla_cpu_pjrt")
    folder = tmp_path_factory.mktemp("hosts")
    make_package(folder)
    (folder / "xla_cpu_pjrt.so").symlink_to(pathlib.Path(plugin.__path__[0]) / "xla_cpu_pjrt.so")
    with ssh_hosts(folder) as (operator, hosts):
        yield operator, hosts


def write_file(operator, change=lambda text: text):
    (operator.folder / "hosts.toml").write_text(f'ssh-config = "ssh_config"\n{change(file_of_the_page())}')


def write_settings(operator, settings):
    """The same with these settings of w1."""
    write_file(operator, lambda text: text.replace('island = "island1"', f'island = "island1"\nsettings = {{ {settings} }}'))


@pytest.fixture
def up(place):
    """The same, with the cluster up, as the page says."""
    operator, hosts = place
    write_file(operator)
    said = operator.type(UP).stdout
    return operator, hosts, said


def type_token(operator, said):
    """Types the line for a token that `up` ended with, and then that line's. Returns what sets a client's variables."""
    line = re.search(r"^  (ssh .* token create .*)$", said, re.M)[1].replace("NAME", "red")
    lines = operator.type(line).stdout
    return f"{lines}export JAX_PLATFORMS=fairway,cpu\n"


class Program:
    """two_hosts_program.py, on the operator's machine."""

    def __init__(self, operator, variables):
        shutil.copy(HERE / "two_hosts_program.py", operator.folder)
        self.enough, self.log = operator.folder / "enough", operator.folder / "program.log"
        self.enough.unlink(missing_ok=True)
        with self.log.open("w") as log:
            self.process = subprocess.Popen(operator.words(f"{variables}{sys.executable} two_hosts_program.py"),
                                            cwd=operator.folder, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                                            env=operator.environment())

    def steps(self):
        return len(re.findall(r"^step ", self.log.read_text(), re.M))

    def goes_on(self):
        steps = self.steps()
        wait_for(lambda: self.steps() > steps + 5 or self.process.poll() is not None, "steps of the program")
        assert self.process.poll() is None, self.log.read_text()[-3000:]

    def result(self):
        self.enough.touch()
        return self.process.wait(120), self.log.read_text()

    def stop(self):
        self.process.kill()
        self.process.wait(60)


def retransmits(host):
    """Whether it has sent something on a connection that was not acknowledged for a while."""
    shown = subprocess.run(["ip", "netns", "exec", host.namespace, "cat", "/proc/net/tcp"], capture_output=True,
                           text=True, check=True).stdout
    return any(int(line.split()[6], 16) > 0 for line in shown.splitlines()[1:])
