# SPDX-License-Identifier: Apache-2.0
"""Types what the chart's notes tell who installed it to type."""

import os
import re

from cluster import HELM, KUBECTL
from release import BIN


def commands(notes):
    """Number of a step -> its lines."""
    steps = re.split(r"^(\d)\. ", notes, flags=re.M)[1:]
    return {int(number): [line.strip() for line in text.splitlines()[1:] if re.match(r" {3}\w", line)]
            for number, text in zip(steps[::2], steps[1::2])}


def follow(release):
    """Steps 1 to 3, in one shell. Returns the folder in which it was."""
    folder = release.cluster.folder / "user"
    folder.mkdir()
    steps = commands(release.notes)
    lines = [*steps[1], *steps[2], *steps[3]]
    assert len(lines) == 8 and lines[5].endswith("29000 &"), lines
    # Until the port is open, which a person waits for by looking.
    lines.insert(6, "until : 2>/dev/null </dev/tcp/127.0.0.1/29000; do kill -0 $!; done")
    (folder / "bin").mkdir()
    for path in (KUBECTL, HELM, BIN / "fairway"):
        os.symlink(path, folder / "bin" / path.name)
    script = "\n".join(["set -eu", "trap 'kill $!' EXIT", *lines])
    done = release.cluster.run("env", f"PATH={folder}/bin:{os.environ['PATH']}", "bash", "-c", script, cwd=folder, seconds=300)
    release.typed = done.stdout
    assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"
    return folder
