# SPDX-License-Identifier: Apache-2.0
"""`fairway cluster` on three hosts that only ssh leads to (docs/hosts.md)."""

import pytest

from ssh_hosts import make_package, ssh_hosts

HOSTS = """
package = "fairway-0.1.0-linux-x86_64.tar.gz"
plugin = "xla_cpu_pjrt.so"
ssh-config = "ssh_config"

[controller]
ssh = "10.0.0.1"

[[worker]]
name = "w0"
ssh = "10.0.0.2"
island = "island0"
settings = { devices = 2 }

[[worker]]
name = "w1"
ssh = "10.0.0.3"
island = "island1"
settings = { devices = 2 }
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """An operator and three hosts."""
    folder = tmp_path_factory.mktemp("hosts")
    make_package(folder)
    with ssh_hosts(folder) as (operator, hosts):
        yield operator, hosts


def test_up_brings_a_cluster_up_and_changes_nothing_the_second_time(place):
    import xla_plugins.xla_cpu_pjrt as plugin, pathlib, time
    operator, hosts = place
    (operator.folder / "xla_cpu_pjrt.so").symlink_to(pathlib.Path(plugin.__file__).with_name("xla_cpu_pjrt.so"))
    (operator.folder / "hosts.toml").write_text(HOSTS)
    for i in range(2):
        a = time.time()
        said = operator.type("fairway cluster up hosts.toml")
        print(said.stdout, said.stderr, time.time() - a)
    for verb in ("status", "down", "status", "up", "upgrade", "down --purge"):
        import subprocess
        a = time.time()
        said = subprocess.run(operator.words("fairway cluster " + verb + " hosts.toml"), cwd=operator.folder, capture_output=True, text=True, env=operator.environment())
        print(verb, said.returncode, said.stdout, said.stderr, time.time() - a)
    assert 0
