# SPDX-License-Identifier: Apache-2.0
"""A two-stage pipeline with microbatches, in plain JAX and optax.

The network that reads handwritten digits is cut in two. Stage 1 lives on the devices of island 0,
stage 2 on those of island 1; each stage splits every microbatch over its own devices. Only
activations (forward) and their gradients (backward) cross, by `jax.device_put`.

Nothing here knows of Fairway. The script runs on whatever JAX offers:

  JAX_PLATFORMS=fairway,cpu FAIRWAY_CONTROLLER=host:port python digits_pipeline.py
  JAX_PLATFORMS=cpu XLA_FLAGS=--xla_force_host_platform_device_count=8 python digits_pipeline.py

The activation is smooth on purpose: with relu, a unit that another compiler rounds to the other
side of zero moves the losses visibly, and two backends could not be compared closely.

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

HIDDEN = 128  # width of the activations that cross from stage 1 to stage 2
MICROBATCHES = 4
ROWS = 64  # rows of one microbatch; every device of a stage gets a quarter of them
AHEAD = 8  # steps that may be in flight before the script looks at a loss


def stage_devices():
    """The devices of stage 1 and of stage 2: two islands, or two halves of one."""
    by_island = {}
    for device in jax.devices():
        by_island.setdefault(getattr(device, "slice_index", None), []).append(device)
    if len(by_island) >= 2:
        first, second = sorted(by_island)[:2]
        return by_island[first][:4], by_island[second][:4]
    devices = jax.devices()
    if len(devices) < 8:
        sys.exit(f"this example needs 8 devices or two islands; JAX has {len(devices)} devices")
    return devices[:4], devices[4:8]


def load_data():
    """Train and test images, float32 [rows, 64] in 0..1, and labels, int32 [rows]."""
    digits = load_digits()
    images = (digits.data / 16.0).astype(np.float32)
    labels = digits.target.astype(np.int32)
    order = np.random.default_rng(0).permutation(len(images))
    train, test = order[:-360], order[-360:]
    return images[train], labels[train], images[test], labels[test]


def batches(images, labels, steps):
    """Yields `steps` lists of microbatches (images, labels), shuffled anew in every epoch."""
    rng = np.random.default_rng(1)
    size = MICROBATCHES * ROWS
    done = 0
    while True:
        order = rng.permutation(len(images))
        for start in range(0, len(order) - size + 1, size):
            if done == steps:
                return
            done += 1
            rows = order[start : start + size].reshape(MICROBATCHES, ROWS)
            yield [(images[r], labels[r]) for r in rows]


def dense(key, rows, columns):
    return {
        "w": jax.nn.initializers.glorot_uniform()(key, (rows, columns), jnp.float32),
        "b": jnp.zeros((columns,), jnp.float32),
    }


def stage1_init(seed):
    return dense(jax.random.key(seed), 64, HIDDEN)


def stage2_init(seed):
    k1, k2 = jax.random.split(jax.random.key(seed))
    return {"hidden": dense(k1, HIDDEN, HIDDEN), "out": dense(k2, HIDDEN, 10)}


def stage1_apply(params, images):
    return jnp.tanh(images @ params["w"] + params["b"])


def stage2_apply(params, activations):
    hidden = jnp.tanh(activations @ params["hidden"]["w"] + params["hidden"]["b"])
    return hidden @ params["out"]["w"] + params["out"]["b"]


def stage2_loss(params, activations, labels):
    logits = stage2_apply(params, activations)
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


optimizer = optax.sgd(0.05, momentum=0.9)


class Stage:
    """What both stages have: a mesh of their own, and jits whose results stay on it.

    State is {params, opt, sums}: replicated over the stage's devices, donated at every update.
    `sums` gathers gradients, and the named scalars, over the microbatches of one step.
    """

    def __init__(self, devices, init, scalars=()):
        mesh = Mesh(np.array(devices), ("batch",))
        self.split = NamedSharding(mesh, P("batch"))
        self.copied = NamedSharding(mesh, P())

        def zero_sums(params):
            zeros = {name: jnp.zeros((), jnp.float32) for name in scalars}
            return {"grads": jax.tree.map(jnp.zeros_like, params), **zeros}

        def first_state(seed):
            params = init(seed)
            return {"params": params, "opt": optimizer.init(params), "sums": zero_sums(params)}

        def update(state):
            grads = jax.tree.map(lambda g: g / MICROBATCHES, state["sums"]["grads"])
            updates, opt = optimizer.update(grads, state["opt"], state["params"])
            params = optax.apply_updates(state["params"], updates)
            results = {name: state["sums"][name] / MICROBATCHES for name in scalars}
            return {"params": params, "opt": opt, "sums": zero_sums(params)}, results

        self.init = jax.jit(first_state, out_shardings=self.copied)
        self.update = jax.jit(update, donate_argnums=0, out_shardings=self.copied)

    def put(self, value):
        """Brings an array here, split by rows: from the host, or from the other stage."""
        return jax.device_put(value, self.split)


class Pipeline:
    """Both stages; every jit below runs on the devices of one stage only."""

    def __init__(self, devices1, devices2):
        self.one = Stage(devices1, stage1_init)
        self.two = Stage(devices2, stage2_init, scalars=["loss"])
        self.state1 = self.one.init(1)
        self.state2 = self.two.init(2)
        self.crossed = {"activations": 0, "gradients": 0}  # bytes between the stages
        self.uploaded = 0  # bytes of images and labels

        def backward2(params, sums, activations, labels):
            loss, (grads, grad_activations) = jax.value_and_grad(stage2_loss, argnums=(0, 1))(
                params, activations, labels
            )
            new = {"grads": grads, "loss": loss}
            return jax.tree.map(jnp.add, sums, new), grad_activations

        def backward1(params, sums, images, grad_activations):
            _, pull = jax.vjp(lambda p: stage1_apply(p, images), params)
            (grads,) = pull(grad_activations)
            return jax.tree.map(jnp.add, sums, {"grads": grads})

        self.forward1 = jax.jit(stage1_apply, out_shardings=self.one.split)
        self.backward2 = jax.jit(
            backward2, donate_argnums=1, out_shardings=(self.two.copied, self.two.split)
        )
        self.backward1 = jax.jit(backward1, donate_argnums=1, out_shardings=self.one.copied)
        self.predict2 = jax.jit(
            lambda params, h: stage2_apply(params, h).argmax(axis=1), out_shardings=self.two.split
        )

    def upload(self, stage, value):
        self.uploaded += value.nbytes
        return stage.put(value)

    def cross(self, stage, value, kind):
        self.crossed[kind] += value.nbytes
        return stage.put(value)

    def step(self, microbatches):
        """One optimizer step over all microbatches; returns the mean loss, still on its way.

        Nothing here waits: stage 1 can work on the next microbatch while stage 2 has the last.
        """
        waiting = []
        for images, labels in microbatches:
            images = self.upload(self.one, images)
            labels = self.upload(self.two, labels)
            hidden = self.forward1(self.state1["params"], images)
            waiting.append((images, labels, self.cross(self.two, hidden, "activations")))
        for images, labels, hidden in waiting:
            self.state2["sums"], grad = self.backward2(
                self.state2["params"], self.state2["sums"], hidden, labels
            )
            grad = self.cross(self.one, grad, "gradients")
            self.state1["sums"] = self.backward1(
                self.state1["params"], self.state1["sums"], images, grad
            )
        self.state1, _ = self.one.update(self.state1)
        self.state2, results = self.two.update(self.state2)
        return results["loss"]

    def predict(self, images):
        hidden = self.forward1(self.state1["params"], self.upload(self.one, images))
        hidden = self.cross(self.two, hidden, "activations")
        return np.asarray(self.predict2(self.state2["params"], hidden))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=200, help="optimizer steps (default 200)")
    parser.add_argument("--json", metavar="FILE", help="write losses, accuracy and bytes there")
    parser.add_argument("--quiet", action="store_true", help="no progress bar, no losses")
    args = parser.parse_args()

    devices1, devices2 = stage_devices()
    train_images, train_labels, test_images, test_labels = load_data()
    pipeline = Pipeline(devices1, devices2)
    print(f"stage 1: {[d.id for d in devices1]}, stage 2: {[d.id for d in devices2]}", flush=True)

    pending, losses = [], []
    started = time.monotonic()
    steps = tqdm(
        batches(train_images, train_labels, args.steps),
        total=args.steps, unit="step", disable=args.quiet,
    )
    for microbatches in steps:
        pending.append(pipeline.step(microbatches))
        if len(pending) > AHEAD:
            losses.append(float(pending.pop(0)))
            steps.set_postfix(loss=f"{losses[-1]:.4f}", refresh=False)
    losses += [float(loss) for loss in pending]
    seconds = time.monotonic() - started
    accuracy = float(np.mean(pipeline.predict(test_images) == test_labels))

    if not args.quiet:
        print("losses of the first 100 steps:", " ".join(f"{loss:.6f}" for loss in losses[:100]))
        crossed = pipeline.crossed
        print(f"{args.steps} steps in {seconds:.1f} s; bytes between the stages: "
              f"{crossed['activations']:,} of activations, {crossed['gradients']:,} of gradients")
    print(f"test accuracy: {accuracy:.4f}", flush=True)
    if args.json:
        report = {
            "losses": losses, "accuracy": accuracy, "seconds": seconds, "steps": args.steps,
            "crossed_bytes": pipeline.crossed, "uploaded_bytes": pipeline.uploaded,
        }
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(report, file)


if __name__ == "__main__":
    main()
