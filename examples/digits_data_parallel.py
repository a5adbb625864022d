# SPDX-License-Identifier: Apache-2.0
"""Data parallel training on the four devices of one island, in plain JAX and optax.

Every device holds all parameters and a quarter of each batch; the compiler puts the all-reduce of
the gradients into the one jit that is a training step. Nothing here knows of Fairway:

  JAX_PLATFORMS=fairway,cpu FAIRWAY_CONTROLLER=host:port python digits_data_parallel.py
  JAX_PLATFORMS=cpu XLA_FLAGS=--xla_force_host_platform_device_count=8 \\
      python digits_data_parallel.py

Data: the 1,797 images of 8x8 pixels that come with scikit-learn (1,437 to train, 360 to test).
"""

import argparse
import json
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from sklearn.datasets import load_digits
from tqdm import tqdm

BATCH = 256
AHEAD = 8  # steps that may be in flight before the script looks at a loss

optimizer = optax.sgd(0.05, momentum=0.9)


def load_data():
    """Train and test images, float32 [rows, 64] in 0..1, and labels, int32 [rows]."""
    digits = load_digits()
    images = (digits.data / 16.0).astype(np.float32)
    labels = digits.target.astype(np.int32)
    order = np.random.default_rng(0).permutation(len(images))
    train, test = order[:-360], order[-360:]
    return images[train], labels[train], images[test], labels[test]


def batches(images, labels, steps):
    """Yields `steps` batches (images, labels), shuffled anew in every epoch."""
    rng = np.random.default_rng(1)
    done = 0
    while True:
        order = rng.permutation(len(images))
        for start in range(0, len(order) - BATCH + 1, BATCH):
            if done == steps:
                return
            done += 1
            rows = order[start : start + BATCH]
            yield images[rows], labels[rows]


def init(seed):
    keys = jax.random.split(jax.random.key(seed), 3)
    sizes = [64, 128, 128, 10]
    params = [
        {
            "w": jax.nn.initializers.glorot_uniform()(key, (rows, columns), jnp.float32),
            "b": jnp.zeros((columns,), jnp.float32),
        }
        for key, rows, columns in zip(keys, sizes[:-1], sizes[1:])
    ]
    return {"params": params, "opt": optimizer.init(params)}


def apply(params, images):
    for layer in params[:-1]:
        images = jnp.tanh(images @ layer["w"] + layer["b"])
    return images @ params[-1]["w"] + params[-1]["b"]


def loss_of(params, images, labels):
    logits = apply(params, images)
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


def train_step(state, images, labels):
    loss, grads = jax.value_and_grad(loss_of)(state["params"], images, labels)
    updates, opt = optimizer.update(grads, state["opt"], state["params"])
    return {"params": optax.apply_updates(state["params"], updates), "opt": opt}, loss


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=200, help="optimizer steps (default 200)")
    parser.add_argument("--json", metavar="FILE", help="write losses and accuracy there")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    args = parser.parse_args()

    devices = [
        d for d in jax.devices()
        if getattr(d, "slice_index", None) == getattr(jax.devices()[0], "slice_index", None)
    ][:4]
    if len(devices) < 4:
        sys.exit(f"this example needs 4 devices of one island; JAX has {len(devices)}")
    mesh = Mesh(np.array(devices), ("batch",))
    split, copied = NamedSharding(mesh, P("batch")), NamedSharding(mesh, P())

    state = jax.jit(init, out_shardings=copied)(1)
    step = jax.jit(train_step, donate_argnums=0, out_shardings=copied)
    predict = jax.jit(lambda p, x: apply(p, x).argmax(axis=1), out_shardings=split)

    train_images, train_labels, test_images, test_labels = load_data()
    pending, losses = [], []
    started = time.monotonic()
    progress = tqdm(
        batches(train_images, train_labels, args.steps),
        total=args.steps, unit="step", disable=args.quiet,
    )
    for batch in progress:
        state, loss = step(state, *jax.device_put(batch, split))
        pending.append(loss)
        if len(pending) > AHEAD:
            losses.append(float(pending.pop(0)))
            progress.set_postfix(loss=f"{losses[-1]:.4f}", refresh=False)
    losses += [float(loss) for loss in pending]
    seconds = time.monotonic() - started
    predicted = np.asarray(predict(state["params"], jax.device_put(test_images, split)))
    accuracy = float(np.mean(predicted == test_labels))

    print(f"devices {[d.id for d in devices]}: {args.steps} steps in {seconds:.1f} s")
    print(f"test accuracy: {accuracy:.4f}", flush=True)
    if args.json:
        report = {"losses": losses, "accuracy": accuracy, "seconds": seconds, "steps": args.steps}
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(report, file)


if __name__ == "__main__":
    main()
