# SPDX-License-Identifier: Apache-2.0
"""Writes what digits.cc needs into a folder; after that, no Python.

  JAX_PLATFORMS=cpu XLA_FLAGS=--xla_force_host_platform_device_count=4 python export_digits.py DIR

The network of ../digits_pipeline.py, cut in two stages of four devices. Each function becomes a
portable StableHLO artifact, NAME.mlir.bc; `manifest` says what they take and make, a line for each:

  function NAME PARAMETERS RESULTS
  TYPE DIMS TILES        (each parameter, then each result; TILES: pieces per dimension, "-": whole)
  array NAME TYPE DIMS   (initial weights and data: NAME.bin, little-endian, dense)
"""

import pathlib
import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from sklearn.datasets import load_digits

HIDDEN, MICROBATCHES, ROWS, TEST = 128, 4, 64, 360
RATE, MOMENTUM = 0.05, 0.9

MESH = Mesh(np.array(jax.devices()[:4]), ("batch",))
SPLIT, COPIED = NamedSharding(MESH, P("batch")), NamedSharding(MESH, P())


def forward1(w, b, x):
    return jnp.tanh(x @ w + b)


def logits2(w, b, v, c, h):
    return jnp.tanh(h @ w + b) @ v + c


def loss2(weights, h, labels):
    chosen = jax.nn.log_softmax(logits2(*weights, h))
    return -jnp.take_along_axis(chosen, labels[:, None], axis=1).mean()


def backward2(*args):
    weights, sums, (h, labels) = args[:4], args[4:9], args[9:]
    loss, (grads, grad_h) = jax.value_and_grad(loss2, argnums=(0, 1))(weights, h, labels)
    return *(s + g for s, g in zip(sums, (*grads, loss))), grad_h


def backward1(w, b, sum_w, sum_b, x, grad_h):
    _, pull = jax.vjp(lambda w, b: forward1(w, b, x), w, b)
    grads = pull(grad_h)
    return sum_w + grads[0], sum_b + grads[1]


def update(*args):
    """Weights, their momenta, sums of gradients -> weights, momenta."""
    n = len(args) // 3
    momenta = [MOMENTUM * m + s / MICROBATCHES for m, s in zip(args[n : 2 * n], args[2 * n :])]
    return *(w - RATE * m for w, m in zip(args[:n], momenta)), *momenta


def mean(total):
    return total / MICROBATCHES


def predict2(w, b, v, c, h):
    return logits2(w, b, v, c, h).argmax(axis=1).astype(jnp.int32)


def f32(*shape):
    return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=COPIED)


def rows(shape, dtype=jnp.float32):
    return jax.ShapeDtypeStruct(shape, dtype, sharding=SPLIT)


ONE = [f32(64, HIDDEN), f32(HIDDEN)]
TWO = [f32(HIDDEN, HIDDEN), f32(HIDDEN), f32(HIDDEN, 10), f32(10)]
LABELS = rows((ROWS,), jnp.int32)
FUNCTIONS = {
    "forward1": (forward1, [*ONE, rows((ROWS, 64))], SPLIT),
    "backward2": (backward2, [*TWO, *TWO, f32(), rows((ROWS, HIDDEN)), LABELS],
                  (*[COPIED] * 5, SPLIT)),
    "backward1": (backward1, [*ONE, *ONE, rows((ROWS, 64)), rows((ROWS, HIDDEN))], COPIED),
    "update1": (update, ONE * 3, COPIED),
    "update2": (update, TWO * 3, COPIED),
    "mean": (mean, [f32()], COPIED),
    "forward_test": (forward1, [*ONE, rows((TEST, 64))], SPLIT),
    "predict_test": (predict2, [*TWO, rows((TEST, HIDDEN))], SPLIT),
}


def line(value, sharding):
    tiles = "-" if sharding == COPIED else ",".join(["4", *["1"] * (len(value.shape) - 1)])
    kind = {"float32": "f32", "int32": "s32"}[str(value.dtype)]
    return f"{kind} {','.join(map(str, value.shape)) or '-'} {tiles}"


def main():
    folder = pathlib.Path(sys.argv[1])
    manifest = []
    for name, (function, parameters, out) in FUNCTIONS.items():
        exported = jax.export.export(jax.jit(function, out_shardings=out))(*parameters)
        (folder / f"{name}.mlir.bc").write_bytes(exported.mlir_module_serialized)
        results = exported.out_avals
        outs = out if isinstance(out, tuple) else [out] * len(results)
        manifest.append(f"function {name} {len(parameters)} {len(results)}")
        manifest += [line(p, p.sharding) for p in parameters]
        manifest += [line(r, s) for r, s in zip(results, outs)]

    digits = load_digits()
    images, labels = (digits.data / 16).astype(np.float32), digits.target.astype(np.int32)
    order = np.random.default_rng(0).permutation(len(images))
    train, test = order[:-TEST], order[-TEST:]
    keys = jax.random.split(jax.random.key(1), 3)
    glorot = jax.nn.initializers.glorot_uniform()
    arrays = {
        "w1": glorot(keys[0], (64, HIDDEN)), "b1": jnp.zeros(HIDDEN),
        "w2": glorot(keys[1], (HIDDEN, HIDDEN)), "b2": jnp.zeros(HIDDEN),
        "w3": glorot(keys[2], (HIDDEN, 10)), "b3": jnp.zeros(10),
        "train_images": images[train], "train_labels": labels[train],
        "test_images": images[test], "test_labels": labels[test],
    }
    for name, array in arrays.items():
        array = np.asarray(array)
        (folder / f"{name}.bin").write_bytes(array.tobytes())
        kind = {"float32": "f32", "int32": "s32"}[str(array.dtype)]
        manifest.append(f"array {name} {kind} {','.join(map(str, array.shape))}")
    (folder / "manifest").write_text("\n".join(manifest) + "\n")


if __name__ == "__main__":
    main()
