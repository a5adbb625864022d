# SPDX-License-Identifier: Apache-2.0
"""The JAX programs of hardware.py: run on an island, on the null front door, or on JAX's own backend."""

import sys
import time

import jax
import jax.numpy as jnp
import numpy as np


def programs():
    """Name -> (function, arguments)."""
    random = np.random.default_rng(0)
    square = random.standard_normal((256, 256), np.float32)
    image = random.standard_normal((4, 16, 16, 8), np.float32)
    kernel = random.standard_normal((3, 3, 8, 8), np.float32)
    heads = random.standard_normal((2, 64, 4, 32), np.float32)
    return {
        "elementwise": (lambda x: jnp.sin(x) * 2 + jax.nn.gelu(x), [square]),
        "product": (lambda x, y: x @ y + x, [square, square.T.copy()]),
        "convolution": (lambda x, k: jax.lax.conv_general_dilated(
            x, k, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")), [image, kernel]),
        "attention": (lambda q: jax.nn.dot_product_attention(q, q, q, is_causal=True), [heads]),
        "sort": (lambda x: jnp.sort(x.ravel()), [square]),
        "loop": (lambda x: jax.lax.fori_loop(0, 5, lambda i, x: jnp.tanh(x + i), x), [square]),
        "training step": (lambda w, x: jax.grad(lambda w: (jnp.tanh(x @ w) ** 2).mean())(w), [square, square]),
    }


def probe():
    for name, (function, arguments) in programs().items():
        with jax.default_device(jax.devices("cpu")[0]):
            expected = np.asarray(jax.jit(function)(*arguments))
        got = np.asarray(jax.jit(function)(*[jax.device_put(x, jax.devices()[0]) for x in arguments]))
        # GPUs multiply with fewer bits of the mantissa (TF32).
        same = np.allclose(got, expected, rtol=2e-2, atol=2e-2 * max(1.0, np.abs(expected).max() / 10))
        print("same" if same else "other", name, flush=True)


def fault(case):
    here, other = jax.devices()
    kept = jax.device_put(np.arange(4.0, dtype=np.float32), here)
    elsewhere = jax.device_put(np.arange(4.0, dtype=np.float32), other)
    endless = jax.jit(lambda x: jax.lax.while_loop(lambda x: x > 0, lambda x: x + 1 - 1, x))
    jax.block_until_ready([kept, elsewhere])
    if case == "endless":
        result = endless(kept[1])
    print("ready", flush=True)
    sys.stdin.readline()
    try:
        if case == "lost":
            print(jax.block_until_ready(kept + 1))
        elif case == "memory":
            print(jax.block_until_ready(jnp.ones((1 << 40,), np.float32, device=here)))
        else:
            print(jax.block_until_ready(result))
    except jax.errors.JaxRuntimeError as error:
        print(error)
    if case == "memory":
        assert float((kept + 1).sum()) == 10
    assert float((elsewhere + 1).sum()) == 10
    print("others go on", flush=True)


class Bench:
    """Cases; each returns seconds a step."""

    def __init__(self, quick):
        width, layers, batch = (128, 2, 64) if quick else (4096, 8, 8192)
        self.device = jax.devices()[0]
        random = np.random.default_rng(0)
        put = lambda shape: jax.device_put(  # noqa: E731
            jnp.asarray(random.standard_normal(shape, np.float32) / 64, jnp.bfloat16), self.device)
        self.weights = [put((width, width)) for _ in range(layers)]
        self.batch = put((batch, width))

        def loss(weights, x):
            for w in weights:
                x = x + jnp.tanh(x @ w)
            return (x.astype(jnp.float32) ** 2).mean()

        self.train = jax.jit(lambda ws, x: [w - 0.01 * g for w, g in zip(ws, jax.grad(loss)(ws, x))])
        self.add = jax.jit(lambda v: v + 1)
        self.one = jax.device_put(np.float32(0), self.device)
        self.steps = 5 if quick else 50
        self.counts = {"training": 2 if quick else 10}

    def chain(self, step, value, steps):
        began = time.perf_counter()
        for _ in range(steps):
            value = step(value)
        jax.block_until_ready(value)
        return (time.perf_counter() - began) / steps

    def measure(self, case):
        steps = self.counts.get(case, self.steps)
        if case == "training":
            return self.chain(lambda w: self.train(w, self.batch), self.weights, steps)
        if case == "async":
            return self.chain(self.add, self.one, 10 * steps)
        began = time.perf_counter()
        for _ in range(steps):
            value = self.add(self.one)
            jax.block_until_ready(value) if case == "smallest" else np.asarray(value)
        return (time.perf_counter() - began) / steps


def bench(quick):
    cases = Bench(quick)
    warm = set()
    for line in sys.stdin:
        case = line.strip()
        if case not in warm:
            cases.measure(case)
            warm.add(case)
        print(cases.measure(case), flush=True)


def rate(seconds, size, start):
    """Programs a second, from `start` on; with 1536 one takes an H200 some 0.33 ms."""
    step = jax.jit(lambda x: jnp.tanh(x @ x))
    x = jax.device_put(np.zeros((size, size), np.float32), jax.devices()[0])
    jax.block_until_ready(step(x))
    while time.time() < start:  # so that all begin together
        time.sleep(0.01)
    done, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        for _ in range(20):
            x = step(x)
        jax.block_until_ready(x)
        done += 20
    print(done / (time.perf_counter() - began))


def main():
    what, *arguments = sys.argv[1:]
    if what == "has_gpu":
        sys.exit(jax.default_backend() != "gpu")
    if what == "probe":
        probe()
    elif what == "fault":
        fault(arguments[0])
    elif what == "bench":
        bench("--quick" in arguments)
    elif what == "rate":
        rate(float(arguments[0]), int(arguments[1]), float(arguments[2]))
    else:
        sys.exit(f"hardware_client.py: no {what}")


if __name__ == "__main__":
    main()
