# SPDX-License-Identifier: Apache-2.0
"""The way of the bytes when arrays move, as counted by the controller and the executors."""

import contextlib
import json

import pytest

from cluster import wait_for

SIZE = 1 << 20
COUNTED = ("fairway_uploaded_bytes_total", "fairway_fetched_bytes_total")
PROGRAM = """
import sys, jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P, SingleDeviceSharding
d = np.array(jax.devices())
here, there, all_ = (Mesh(part, "x") for part in (d[:4], d[4:8], d))
value = np.arange(1 << 18, dtype=np.float32).reshape(512, 512)
to = {
    "one": SingleDeviceSharding(d[0]), "rows": NamedSharding(here, P("x")),
    "columns": NamedSharding(here, P(None, "x")), "copies": NamedSharding(here, P()),
    "reordered": NamedSharding(Mesh(d[[1, 3, 0, 2]], "x"), P("x")),
    "rows there": NamedSharding(there, P("x")), "columns there": NamedSharding(there, P(None, "x")),
    "copies there": NamedSharding(there, P()), "one there": SingleDeviceSharding(d[6]),
    "everywhere": NamedSharding(all_, P("x")), "turned": NamedSharding(Mesh(d[::-1], "x"), P("x")),
    "copies everywhere": NamedSharding(all_, P()),
}
to |= {f"{name} pinned": to[name].with_memory_kind("pinned_host")
       for name in ("rows", "columns", "copies there", "everywhere")}
held = {name: jax.device_put(value, s).block_until_ready() for name, s in to.items()}
loose = {"here": jnp.zeros((512, 512)) + 1}  # uncommitted
twice = {name: jax.jit(lambda v: v * 2, in_shardings=to[name]) for name in ("columns",)}
twice["columns"](loose["here"]).block_until_ready()
print("ready", flush=True)
for line in sys.stdin:
    a, b = line.strip().split(">")
    if a == "jit":
        made = twice[b](loose["here"])
    elif a == "all":
        made = jax.device_put(list(held.values()), to[b])
    else:
        made = jax.device_put(held[a], to[b])
    jax.block_until_ready(made)
    print("moved", flush=True)
    kept = made
    if sys.stdin.readline().strip() == "check":
        for array in made if isinstance(made, list) else [made]:
            np.testing.assert_array_equal(np.asarray(array), np.full_like(value, 2) if a == "jit" else value)
        print("right", flush=True)
"""

# From, to, the bytes that island 1 pulls from island 0, and the other way, in sizes of the array.
MOVES = [
    ("rows", "columns", 0, 0),
    ("columns", "copies", 0, 0),
    ("copies", "rows", 0, 0),
    ("one", "rows", 0, 0),
    ("one", "copies", 0, 0),
    ("rows", "one", 0, 0),
    ("rows", "reordered", 0, 0),
    ("jit", "columns", 0, 0),
    ("rows", "rows there", 1, 0),
    ("rows", "columns there", 1, 0),
    ("one", "columns there", 1, 0),
    ("rows", "copies there", 1, 0),
    ("copies", "copies there", 1, 0),
    ("one", "copies there", 1, 0),
    ("columns", "one there", 1, 0),
    ("columns there", "one", 0, 1),
    ("copies there", "columns", 0, 1),
    ("rows there", "copies", 0, 1),
    ("rows", "everywhere", 0.5, 0),
    ("everywhere", "columns there", 0.5, 0),
    ("everywhere", "copies everywhere", 0.5, 0.5),
    ("everywhere", "turned", 0.5, 0.5),
    ("copies everywhere", "everywhere", 0, 0),
    # Between memories of the devices, too.
    ("rows", "rows pinned", 0, 0),
    ("rows pinned", "columns", 0, 0),
    ("columns pinned", "copies there pinned", 1, 0),
    ("copies there pinned", "rows", 0, 1),
    ("rows", "everywhere pinned", 0.5, 0),
    ("everywhere pinned", "copies everywhere", 0.5, 0.5),
]


@contextlib.contextmanager
def mover(cluster, process=None):
    """ask(move, word): tells PROGRAM, by default one of the project's own Python, and awaits a word."""
    process = process or cluster.start_python("-c", PROGRAM)

    def hear(word):
        lines = []
        for line in process.stdout:
            if line.strip() == word:
                return
            lines.append(line)
        raise AssertionError("".join(lines[-30:]))

    def ask(text, word):
        process.stdin.write(text + "\n")
        process.stdin.flush()
        hear(word)

    try:
        hear("ready")
        yield ask
    finally:
        process.stdin.close()
        process.stdout.read()
        process.wait(120)


def readings(cluster):
    metrics = cluster.metrics()
    pulled = {}
    for name, labels, value in metrics.samples:
        if name == "fairway_transferred_bytes_total":
            pulled[labels["from_island"], labels["to_island"]] = value
    return (sum(metrics.total(name) for name in COUNTED),
            pulled.get(("island0", "island1"), 0), pulled.get(("island1", "island0"), 0))


def compare_ways(cluster, ask):
    """Asks for all MOVES. Fails unless no byte of them goes through the controller, and each comes to an
    executor once."""
    found, wanted = {}, {}
    for source, target, there, back in MOVES:
        before = readings(cluster)
        ask(f"{source}>{target}", "moved")
        expected = [before[0], before[1] + there * SIZE, before[2] + back * SIZE]
        # Executors report their pulls in heartbeats.
        wait_for(lambda: all(a >= b for a, b in zip(readings(cluster), expected)),
                 f"{source} to {target}: {expected}")
        after = readings(cluster)
        found[f"{source} to {target}"] = [(a - b) / SIZE for a, b in zip(after, before)]
        wanted[f"{source} to {target}"] = [0, there, back]
        ask("check", "right")
    assert found == wanted, json.dumps(found, indent=1)


def test_no_byte_goes_through_the_controller_and_each_comes_to_an_executor_once(cluster):
    with mover(cluster) as ask:
        compare_ways(cluster, ask)


def test_a_tree_of_arrays_is_one_request_between_executors(cluster):
    with mover(cluster) as ask:
        before = readings(cluster)[0]
        nodes = cluster.metrics().total("fairway_nodes_total")
        ask("all>columns", "moved")
        assert readings(cluster)[0] == before
        # One receive for each array that has to move, not one for each shard.
        assert cluster.metrics().total("fairway_nodes_total") - nodes <= 15
        ask("check", "right")


@pytest.mark.parametrize("source, target", [("rows", "columns"), ("one", "copies there")])
def test_the_detour_would_be_counted(cluster, source, target):
    """The count of the first test grows when an array is fetched and uploaded."""
    with mover(cluster) as ask:
        ask(f"{source}>{target}", "moved")
        before = readings(cluster)[0]
        ask("check", "right")  # the check fetches it
        assert readings(cluster)[0] - before >= SIZE
