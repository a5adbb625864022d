# SPDX-License-Identifier: Apache-2.0
"""Flax (nnx) and optax on the devices of one island: parameters on all, batches split.

Nothing here knows of Fairway:

  JAX_PLATFORMS=fairway,cpu FAIRWAY_CONTROLLER=host:port python flax_on_one_island.py
  JAX_PLATFORMS=cpu XLA_FLAGS=--xla_force_host_platform_device_count=8 \\
      python flax_on_one_island.py

Needs flax, optax and scikit-learn, whose 1,797 handwritten digits it learns.
"""

import argparse
import json

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from sklearn.datasets import load_digits

BATCH = 256


class Net(nnx.Module):
    """Images, float32 [rows, 8, 8, 1], to logits, float32 [rows, 10]."""

    def __init__(self, rngs: nnx.Rngs):
        self.conv = nnx.Conv(1, 16, kernel_size=(3, 3), rngs=rngs)
        self.norm = nnx.LayerNorm(16, rngs=rngs)
        self.out = nnx.Linear(4 * 4 * 16, 10, rngs=rngs)

    def __call__(self, images):
        hidden = nnx.relu(self.norm(self.conv(images)))
        hidden = nnx.avg_pool(hidden, (2, 2), strides=(2, 2))
        return self.out(hidden.reshape(images.shape[0], -1))


@nnx.jit
def train_step(model, optimizer, images, labels):
    def loss_of(model):
        logits = model(images)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    loss, grads = nnx.value_and_grad(loss_of)(model)
    optimizer.update(model, grads)
    return loss


@nnx.jit
def predict(model, images):
    return model(images).argmax(axis=1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=150, help="optimizer steps (default 150)")
    parser.add_argument("--json", metavar="FILE", help="write losses and accuracy there")
    args = parser.parse_args()

    first = getattr(jax.devices()[0], "slice_index", None)
    devices = [d for d in jax.devices() if getattr(d, "slice_index", None) == first][:4]
    mesh = Mesh(np.array(devices), ("batch",))
    split, everywhere = NamedSharding(mesh, P("batch")), NamedSharding(mesh, P())

    digits = load_digits()
    images = (digits.images / 16.0).astype(np.float32)[..., None]
    labels = digits.target.astype(np.int32)
    order = np.random.default_rng(0).permutation(len(images))
    train, test = order[:-360], order[-360:]

    @nnx.jit
    def make():
        model = Net(nnx.Rngs(0))
        return model, nnx.Optimizer(model, optax.sgd(0.1, momentum=0.9), wrt=nnx.Param)

    model, optimizer = make()
    for module in (model, optimizer):
        nnx.update(module, jax.device_put(nnx.state(module), everywhere))

    rng, losses = np.random.default_rng(1), []
    for _ in range(args.steps):
        rows = rng.choice(train, BATCH, replace=False)
        losses.append(train_step(model, optimizer, *jax.device_put((images[rows], labels[rows]), split)))
    predicted = np.asarray(predict(model, jax.device_put(images[test], split)))
    accuracy = float(np.mean(predicted == labels[test]))

    print(f"loss {float(losses[0]):.4f} -> {float(losses[-1]):.4f}")
    print(f"test accuracy: {accuracy:.4f}")
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump({"losses": np.asarray(jnp.stack(losses)).tolist(), "accuracy": accuracy}, file)


if __name__ == "__main__":
    main()
