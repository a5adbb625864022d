# SPDX-License-Identifier: Apache-2.0
"""A training run that moves from one island to another by an Orbax checkpoint.

It trains on the first island, its parameters split over four devices, and saves asynchronously;
restores the checkpoint onto the second island, split the other way; and goes on there. The losses
are those of a run that never moved. Nothing here knows of Fairway:

  JAX_PLATFORMS=fairway,cpu FAIRWAY_CONTROLLER=host:port python orbax_across_islands.py
  JAX_PLATFORMS=cpu XLA_FLAGS=--xla_force_host_platform_device_count=8 \\
      python orbax_across_islands.py

Needs optax and orbax-checkpoint.
"""

import argparse
import json
import pathlib
import tempfile

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

optimizer = optax.adam(1e-2)


def islands():
    """Two lists of four devices: two islands, or the halves of a backend without islands."""
    groups = {}
    for device in jax.devices():
        groups.setdefault(getattr(device, "slice_index", None), []).append(device)
    if len(groups) > 1:
        return [groups[index][:4] for index in sorted(groups)][:2]
    return [jax.devices()[:4], jax.devices()[4:8]]


def init(key):
    one, two = jax.random.split(key)
    params = {"one": jax.random.normal(one, (16, 64)) / 4, "two": jax.random.normal(two, (64, 1)) / 8}
    return {"params": params, "opt": optimizer.init(params), "step": jnp.int32(0)}


@jax.jit
def train_step(state, x, y):
    def loss_of(params):
        return ((jnp.tanh(x @ params["one"]) @ params["two"] - y) ** 2).mean()

    loss, grads = jax.value_and_grad(loss_of)(state["params"])
    updates, opt = optimizer.update(grads, state["opt"])
    params = optax.apply_updates(state["params"], updates)
    return {"params": params, "opt": opt, "step": state["step"] + 1}, loss


def shardings(state, mesh, axis):
    """Matrices split along dimension `axis` of the larger ones, all else on every device."""
    def of(leaf):
        if leaf.ndim == 2 and leaf.shape[axis] % mesh.size == 0:
            return NamedSharding(mesh, P(*[None] * axis, "x"))
        return NamedSharding(mesh, P())

    return jax.tree.map(of, state)


def train(state, mesh, steps):
    """Trains for `steps` more; returns the state and the losses."""
    losses = []
    for _ in range(steps):
        rng = np.random.default_rng(len(losses))
        x = rng.standard_normal((128, 16)).astype(np.float32)
        y = np.sin(x.sum(axis=1, keepdims=True))
        state, loss = train_step(state, *jax.device_put((x, y), NamedSharding(mesh, P())))
        losses.append(loss)
    return state, [float(loss) for loss in losses]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=20, help="on each island (default 20)")
    parser.add_argument("--json", metavar="FILE", help="write the losses there")
    args = parser.parse_args()

    left, right = (Mesh(np.array(devices), ("x",)) for devices in islands())
    shapes = jax.eval_shape(init, jax.random.key(0))
    state = jax.jit(init, out_shardings=shardings(shapes, left, 0))(jax.random.key(0))
    state, losses = train(state, left, args.steps)

    with tempfile.TemporaryDirectory() as folder:
        with ocp.CheckpointManager(pathlib.Path(folder) / "run") as manager:
            manager.save(int(state["step"]), args=ocp.args.StandardSave(state))
            stayed, reference = train(state, left, args.steps)  # while it is being saved
            manager.wait_until_finished()
            target = jax.tree.map(
                lambda leaf, sharding: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding),
                shapes, shardings(shapes, right, 1))
            state = manager.restore(manager.latest_step(), args=ocp.args.StandardRestore(target))

    assert all(leaf.sharding.device_set <= set(right.devices.flat) for leaf in jax.tree.leaves(state))
    state, moved = train(state, right, args.steps)
    assert int(state["step"]) == int(stayed["step"]) == 2 * args.steps
    worst = max(abs(a - b) for a, b in zip(moved, reference))
    print(f"step {int(state['step'])}, loss {losses[0]:.4f} -> {moved[-1]:.4f}")
    print(f"largest difference from the run that stayed: {worst:.1e}")
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump({"losses": losses + moved, "difference": worst}, file)


if __name__ == "__main__":
    main()
