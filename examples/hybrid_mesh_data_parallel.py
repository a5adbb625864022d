# SPDX-License-Identifier: Apache-2.0
"""Data parallel training over all islands, on a hybrid mesh.

create_hybrid_device_mesh puts the islands along the first axis. Inside an island the compiler makes
one computation of a step; between islands only gradients travel, by jax.device_put, and each island
averages them and updates its own copy of the parameters. Nothing here knows of Fairway:

  JAX_PLATFORMS=fairway,cpu FAIRWAY_CONTROLLER=host:port python hybrid_mesh_data_parallel.py
  JAX_PLATFORMS=cpu XLA_FLAGS=--xla_force_host_platform_device_count=8 \\
      python hybrid_mesh_data_parallel.py

Needs optax and scikit-learn, whose 1,797 handwritten digits it learns.
"""

import argparse
import json

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.experimental import mesh_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from sklearn.datasets import load_digits

BATCH = 256
optimizer = optax.sgd(0.1, momentum=0.9)


def device_grid():
    """Devices, [islands, devices of one]. A backend without islands counts as two of them."""
    count = len({getattr(d, "slice_index", None) for d in jax.devices()})
    if count == 1:
        return np.array(jax.devices()[:8]).reshape(2, -1)
    shape = (1, len(jax.devices()) // count)
    return mesh_utils.create_hybrid_device_mesh(shape, (count, 1))


def init(key):
    one, two = jax.random.split(key)
    glorot = jax.nn.initializers.glorot_uniform()
    params = {"w1": glorot(one, (64, 128)), "b1": jnp.zeros(128), "w2": glorot(two, (128, 10))}
    return params, optimizer.init(params)


def loss_of(params, images, labels):
    logits = jnp.tanh(images @ params["w1"] + params["b1"]) @ params["w2"]
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


def update(state, gradients):
    """`gradients`: one tree for each island, all here."""
    params, opt = state
    mean = jax.tree.map(lambda *parts: sum(parts) / len(parts), *gradients)
    updates, opt = optimizer.update(mean, opt, params)
    return optax.apply_updates(params, updates), opt


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=100, help="optimizer steps (default 100)")
    parser.add_argument("--json", metavar="FILE", help="write losses and accuracy there")
    args = parser.parse_args()

    meshes = [Mesh(devices, ("batch",)) for devices in device_grid()]
    split = [NamedSharding(mesh, P("batch")) for mesh in meshes]
    everywhere = [NamedSharding(mesh, P()) for mesh in meshes]
    backward = [jax.jit(jax.value_and_grad(loss_of), out_shardings=here) for here in everywhere]
    apply = [jax.jit(update, out_shardings=here, donate_argnums=0) for here in everywhere]
    states = [jax.jit(init, out_shardings=here)(jax.random.key(0)) for here in everywhere]

    digits = load_digits()
    images, labels = (digits.data / 16.0).astype(np.float32), digits.target.astype(np.int32)
    order = np.random.default_rng(0).permutation(len(images))
    train, test = order[:-360], order[-360:]

    rng, losses = np.random.default_rng(1), []
    for _ in range(args.steps):
        rows = np.split(rng.choice(train, BATCH, replace=False), len(meshes))
        results = [
            run(state[0], *jax.device_put((images[mine], labels[mine]), place))
            for run, state, mine, place in zip(backward, states, rows, split)
        ]
        gradients = [grads for _, grads in results]
        states = [
            run(state, jax.device_put(gradients, here))
            for run, state, here in zip(apply, states, everywhere)
        ]
        losses.append([loss for loss, _ in results])
    losses = [float(np.mean([float(part) for part in parts])) for parts in losses]

    copies = [jax.device_get(params) for params, _ in states]
    jax.tree.map(lambda *same: [np.testing.assert_array_equal(same[0], s) for s in same], *copies)
    hidden = np.tanh(images[test] @ copies[0]["w1"] + copies[0]["b1"])
    accuracy = float(np.mean((hidden @ copies[0]["w2"]).argmax(axis=1) == labels[test]))
    print(f"{len(meshes)} islands of {meshes[0].size} devices: loss {losses[0]:.4f} -> {losses[-1]:.4f}")
    print(f"test accuracy: {accuracy:.4f}")
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump({"losses": losses, "accuracy": accuracy}, file)


if __name__ == "__main__":
    main()
