# SPDX-License-Identifier: Apache-2.0
"""The pipeline of digits_pipeline.py as one program: a whole training step is one message.

The same network, data, stages and microbatches. There, every jit and every transfer is a request
of its own, and each stage's backward pass is written by hand. Here the loss over all microbatches
is written down once and JAX differentiates it, through both stages; `fairway.program` sends the
graph of it to the controller, and a step runs it.

  JAX_PLATFORMS=fairway,cpu FAIRWAY_CONTROLLER=host:port python digits_program.py

On JAX's own backends it runs op by op:

  JAX_PLATFORMS=cpu XLA_FLAGS=--xla_force_host_platform_device_count=8 python digits_program.py
"""

import argparse
import json
import time

import jax
import numpy as np
import optax
from jax.sharding import Mesh, PartitionSpec as P
from tqdm import tqdm

import digits_pipeline as digits
import fairway


class Stages:
    """What each stage does, on the devices of its own."""

    def __init__(self, devices1, devices2):
        one, two = Mesh(np.array(devices1), ("batch",)), Mesh(np.array(devices2), ("batch",))
        rows = P("batch")
        self.forward1 = fairway.on(one, digits.stage1_apply, in_specs=(P(), rows), out_specs=rows)
        self.loss2 = fairway.on(two, digits.stage2_loss, in_specs=(P(), rows, rows))
        self.predict2 = fairway.on(
            two, lambda params, h: digits.stage2_apply(params, h).argmax(axis=1),
            in_specs=(P(), rows), out_specs=rows,
        )
        self.update = [fairway.on(mesh, self.apply) for mesh in (one, two)]
        self.init = [
            fairway.on(one, lambda seed: self.first(digits.stage1_init(seed))),
            fairway.on(two, lambda seed: self.first(digits.stage2_init(seed))),
        ]

    @staticmethod
    def first(params):
        return {"params": params, "opt": digits.optimizer.init(params)}

    @staticmethod
    def apply(state, grads):
        updates, opt = digits.optimizer.update(grads, state["opt"], state["params"])
        return {"params": optax.apply_updates(state["params"], updates), "opt": opt}


def make_step(stages):
    def loss(params, microbatches):
        losses = [
            stages.loss2(params[1], stages.forward1(params[0], images), labels)
            for images, labels in microbatches
        ]
        return sum(losses) / len(losses)

    @fairway.program(donate_argnums=0)
    def step(states, microbatches):
        value, grads = jax.value_and_grad(loss)([s["params"] for s in states], microbatches)
        return [f(s, g) for f, s, g in zip(stages.update, states, grads)], value

    return step


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=200, help="optimizer steps (default 200)")
    parser.add_argument("--json", metavar="FILE", help="write losses and accuracy there")
    parser.add_argument("--quiet", action="store_true", help="no progress bar, no losses")
    args = parser.parse_args()

    devices1, devices2 = digits.stage_devices()
    train_images, train_labels, test_images, test_labels = digits.load_data()
    stages = Stages(devices1, devices2)
    states = [init(seed) for init, seed in zip(stages.init, (1, 2))]
    step = make_step(stages)

    pending, losses = [], []
    started = time.monotonic()
    for microbatches in tqdm(
        digits.batches(train_images, train_labels, args.steps),
        total=args.steps, unit="step", disable=args.quiet,
    ):
        states, loss = step(states, microbatches)
        pending.append(loss)
        if len(pending) > digits.AHEAD:
            losses.append(float(pending.pop(0)))
    losses += [float(loss) for loss in pending]
    seconds = time.monotonic() - started

    hidden = stages.forward1(states[0]["params"], test_images)
    predicted = np.asarray(stages.predict2(states[1]["params"], hidden))
    accuracy = float(np.mean(predicted == test_labels))
    if not args.quiet:
        print("losses of the first 100 steps:", " ".join(f"{loss:.6f}" for loss in losses[:100]))
        print(f"{args.steps} steps in {seconds:.1f} s")
    print(f"test accuracy: {accuracy:.4f}", flush=True)
    if args.json:
        report = {"losses": losses, "accuracy": accuracy, "seconds": seconds, "steps": args.steps}
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(report, file)


if __name__ == "__main__":
    main()
