# SPDX-License-Identifier: Apache-2.0
"""The table of docs/design/0054: the cost per step of a chain of gangs with collectives.

Run ./dev python tests/gpu/chain_figures.py. It measures an island of CPUs, where a gang waits until
its inputs are computed, and an island of the stand-in plugin, where a gang is handed over behind
those that compute them; by how far ahead the controller launches. Wakes are those of the executor's
loop (voluntary context switches of its thread), medians of five chains.
"""

import pathlib
import re
import statistics
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1] / "tests/e2e")]

from cluster import BIN, Cluster  # noqa: E402

STEPS, CHAINS = 1000, 5
CLIENT = f"""
import jax, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
step = jax.jit(lambda x: x / x.sum())
x = jax.device_put(np.arange(1, 5, dtype=np.float32), NamedSharding(Mesh(np.array(jax.devices()), ("x",)), P("x")))
jax.block_until_ready(step(step(x)))
while True:
    print("ready", flush=True)
    input()
    for _ in range({STEPS}):
        x = step(x)
    jax.block_until_ready(x)
"""


def wakes(pid):
    status = pathlib.Path("/proc", str(pid), "task", str(pid), "status").read_text()
    return int(re.search(r"^voluntary_ctxt_switches:\s+(\d+)", status, re.M)[1])


def reading(cluster):
    metrics = cluster.metrics()
    sent = metrics.by("fairway_link_messages_total", "direction")
    return [wakes(cluster.executors()[0].pid), *(sent[name] for name in sorted(sent))]


def main():
    print("| island | launches ahead | wakes of the executor's loop | messages from, to executors |")
    print("|---|---|---|---|")
    stand_in = ["--plugin-kind=cuda", f"--plugin={BIN.parent / 'tests/fairway_stand_in_gpu.so'}"]
    for name, flags, ahead in [("CPUs", [], 16), ("stand-in", stand_in, 1), ("stand-in", stand_in, 16)]:
        with tempfile.TemporaryDirectory() as folder, Cluster(islands=1, flags=flags, environment={
                "TMPDIR": folder, "FAIRWAY_LAUNCHES_AHEAD": str(ahead)}) as cluster:
            process = cluster.start_python("-c", CLIENT)
            rows = []
            assert process.stdout.readline() == "ready\n"
            for _ in range(CHAINS):
                before = reading(cluster)
                process.stdin.write("\n")
                process.stdin.flush()
                assert process.stdout.readline() == "ready\n"
                rows.append([(b - a) / STEPS for a, b in zip(before, reading(cluster))])
            process.kill()
            process.wait()
        woken, received, sent = (statistics.median(column) for column in zip(*rows))
        print(f"| {name} | {ahead} | {woken:.2f} | {received:.2f}, {sent:.2f} |", flush=True)


if __name__ == "__main__":
    main()
