# SPDX-License-Identifier: Apache-2.0
"""Types commands of docs/operate.md: those of an island that is taken out of service, and of logs. tests/lint/test_pages.py says who types the others."""

import os
import pathlib
import re
import subprocess

from cluster import BIN, wait_for

PAGE = (pathlib.Path(__file__).resolve().parents[2] / "docs" / "operate.md").read_text(encoding="utf-8")


def lines_below(heading):
    block = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0].partition("```sh\n")[2].partition("```")[0]
    return block.splitlines()


def type_line(cluster, line):
    """What it prints; it must end with 0, and have no error to tell."""
    done = subprocess.run(["sh", "-c", line], text=True, capture_output=True, timeout=240, check=False, env={
        **cluster.environment, "PATH": f"{BIN}:{os.environ['PATH']}", "FAIRWAY_CONTROLLER": cluster.address})
    assert done.returncode == 0 and done.stderr == "", f"{line}\n{done.stdout}{done.stderr}"
    return done.stdout


def test_the_commands_of_the_page_take_an_island_out_and_show_logs(new_cluster):
    cluster = new_cluster(4, 1, ("--runtime=host",))

    def state():
        return re.search(r"^island1 +(\S+(?:, \w+)?)  ", cluster.cli("get", "islands", "--controller", cluster.address).stdout, re.M)[1]

    before, comment, after = lines_below("Taking an island out of service")
    assert "drained" in type_line(cluster, before) and state() == "up, drained"
    assert comment.startswith("#")
    cluster.cli("restart", "w1", "--controller", cluster.address)
    wait_for(lambda: state() == "up, drained", "the island to be back, and out of service yet")
    assert type_line(cluster, after) == "island1 takes new sessions\n" and state() == "up"

    of_one, of_controller, of_all, as_json = (type_line(cluster, line) for line in lines_below("Logs"))
    assert "executor started" in of_one and "listening on" in of_controller
    assert {line.split()[0] for line in of_all.splitlines()} >= {"controller", "w0", "w1", "w2", "w3"}
    assert '"processes"' in as_json
