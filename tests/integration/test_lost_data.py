# SPDX-License-Identifier: Apache-2.0
"""A controller whose data directory is lost, as with a volume, by the row of docs/errors.md."""

import os
import re
import shutil
import subprocess

from cluster import BIN, clean_environment
from test_tokens import ROOT, cluster

__all__ = ["cluster"]  # pytest's fixture


def test_a_controller_that_has_lost_its_data_serves_workers_and_an_admin_who_is_made_on_its_host(cluster):
    viewer, _ = cluster.make("viewer")
    cluster.controller.stop()
    data = cluster.directory / "data"
    shutil.rmtree(data)
    data.mkdir(mode=0o700)
    cluster.start()
    cluster.island()  # by certificates of the same CA
    for token in (viewer, "admin.token"):
        refused = cluster.do("status", token=token)
        assert refused.returncode == 1 and refused.stderr.count("\n") == 1, refused.stderr
        assert "this cluster does not know the token; " in refused.stderr
    for daemon in reversed(cluster.daemons):
        if daemon.process.poll() is None:
            daemon.stop()
    cluster.daemons.clear()
    row = re.search(r"^\| a volume with the controller's data is lost \|.*`(fairway token create .*?)`", (ROOT / "docs" / "errors.md").read_text(), re.M)
    done = subprocess.run(["sh", "-c", row[1]], cwd=cluster.directory, text=True, capture_output=True, timeout=240, check=False,
                          env=clean_environment(PATH=f"{BIN}:{os.environ['PATH']}"))
    assert done.returncode == 0, done.stderr
    cluster.start()
    assert cluster.do("status", token="new.token").returncode == 0
    assert "does not know the token" in cluster.do("status", token=viewer).stderr
