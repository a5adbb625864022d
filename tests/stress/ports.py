# SPDX-License-Identifier: Apache-2.0
"""Where a process listens."""

import pathlib


def listening(pid):
    """The TCP ports of IPv4 on which a process listens."""
    inodes = set()
    for entry in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        try:
            inodes.add(entry.readlink().name)
        except OSError:
            continue
    fields = [line.split() for line in pathlib.Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    ports = [int(f[1].split(":")[1], 16) for f in fields if f[3] == "0A" and f"socket:[{f[9]}]" in inodes]
    assert ports, f"process {pid} listens nowhere"
    return ports
