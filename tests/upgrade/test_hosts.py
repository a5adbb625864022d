# SPDX-License-Identifier: Apache-2.0
"""`fairway cluster` leads from the version before to this one and back, by the commands of docs/upgrade.md."""

import pathlib
import re

import pytest

from cluster_page import PURGE, Program, type_token, write_file
from ssh_hosts import make_package, ssh_hosts

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "upgrade.md"
UP, UPGRADE, STATUS = re.findall(r"^(fairway cluster .*)$", PAGE.read_text(), re.M)
PACKAGE = "fairway-0.1.0-linux-x86_64.tar.gz"


@pytest.fixture
def place(previous, tmp_path):
    plugin = pytest.importorskip("xla_plugins.xla_cpu_pjrt")
    make_package(tmp_path, binaries=previous)
    (tmp_path / "next").mkdir()
    make_package(tmp_path / "next")
    (tmp_path / "xla_cpu_pjrt.so").symlink_to(pathlib.Path(plugin.__path__[0]) / "xla_cpu_pjrt.so")
    with ssh_hosts(tmp_path) as (operator, hosts):
        yield operator, hosts


def trains(operator, said):
    program = Program(operator, type_token(operator, said))
    try:
        program.goes_on()
        code, text = program.result()
        assert code == 0 and text.endswith("as NumPy computes them\n"), text
    finally:
        program.stop()


def releases(operator):
    shown = operator.type(STATUS).stdout
    assert shown.count("devices: 2") == 2, shown
    return re.findall(r"0\.1\.0-[0-9a-f]{12}", shown)


def protocols(hosts):
    """What the workers' logs say last."""
    logs = [(host.root / f"opt/fairway/log/w{n}.log").read_text() for n, host in enumerate(hosts[1:])]
    return [re.findall(r"by link protocol (\d+)", log)[-1:] for log in logs]


def test_fairway_cluster_leads_to_this_version_and_back(place):
    operator, hosts = place
    write_file(operator)
    said = operator.type(UP).stdout
    old = releases(operator)
    trains(operator, said)
    write_file(operator, lambda text: text.replace(PACKAGE, f"next/{PACKAGE}"))
    assert operator.type(UP).stdout.count("`fairway cluster upgrade` has it run") == 3
    assert releases(operator) == old
    operator.type(UPGRADE)
    new = releases(operator)
    assert len(set(old)) == len(set(new)) == 1 and set(old) != set(new)
    assert protocols(hosts) == [["14"], ["14"]]
    trains(operator, said)
    write_file(operator)
    operator.type(UPGRADE)
    assert releases(operator) == old
    trains(operator, said)
    operator.type(PURGE)
