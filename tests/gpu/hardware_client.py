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


def same_as_on_the_cpu(function, arguments):
    with jax.default_device(jax.devices("cpu")[0]):
        expected = np.asarray(jax.jit(function)(*arguments))
    got = np.asarray(jax.jit(function)(*[jax.device_put(x, jax.devices()[0]) for x in arguments]))
    # By default GPUs multiply with fewer bits of the mantissa (TF32).
    return np.allclose(got, expected, rtol=2e-2, atol=2e-2 * max(1.0, np.abs(expected).max() / 10))


def probe():
    for name, arguments in programs().items():
        print("same" if same_as_on_the_cpu(*arguments) else "other", name, flush=True)


def loads():
    """Compiles, loads and runs one program; without a product, which needs more libraries."""
    function, arguments = programs()["elementwise"]
    result = jax.jit(function)(*[jax.device_put(x, jax.devices()[0]) for x in arguments])
    print("loaded", jax.block_until_ready(result).shape, flush=True)
    print("same" if same_as_on_the_cpu(function, arguments) else "other", flush=True)


def convolutions(quick):
    """Prints the seconds of each, and its name."""
    images, count = ((1, 8, 8, 64), 2) if quick else ((32, 56, 56, 64), 50)
    random = np.random.default_rng(0)
    one = lambda *shape, dtype=np.float32: jax.device_put(  # noqa: E731
        jnp.asarray(random.standard_normal(shape, np.float32), dtype), jax.devices()[0])

    def apply(x, kernel, groups=1):
        return jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"),
                                            feature_group_count=groups)

    def gradients(x, kernel):
        return jax.grad(lambda x, k: (apply(x, k).astype(jnp.float32) ** 2).mean(), argnums=(0, 1))(x, kernel)

    half = jnp.bfloat16
    cases = {
        "32x56x56x64 by 3x3, float32": (apply, one(*images), one(3, 3, 64, 64)),
        "32x56x56x64 by 3x3, bfloat16": (apply, one(*images, dtype=half), one(3, 3, 64, 64, dtype=half)),
        "its gradients, bfloat16": (gradients, one(*images, dtype=half), one(3, 3, 64, 64, dtype=half)),
        "depthwise, float32": (lambda x, k: apply(x, k, 64), one(*images), one(3, 3, 1, 64)),
    }
    for name, (function, *arguments) in cases.items():
        compiled = jax.jit(function).lower(*arguments).compile()
        jax.block_until_ready(compiled(*arguments))
        began = time.perf_counter()
        for _ in range(count):
            result = compiled(*arguments)
        jax.block_until_ready(result)
        print((time.perf_counter() - began) / count, name, flush=True)


# ---- faults

PTX = """.version 7.0
.target sm_80
.address_size 64
.visible .entry {name}(.param .u64 in, .param .u64 out) {{
  .reg .u64 %address;
  .reg .u32 %value;
  mov.u64 %address, 64;
  mov.u32 %value, 1;
  {fault}
  ret;
}}
"""
FAULTS = {"trap": "trap;", "far": "st.global.u32 [%address], %value;"}


def brought_kernel(case):
    """A kernel of the client's own that faults, on the first device. If the plugin lacks such calls, as the
    stand-in does, it fails a program of this name instead."""
    name, shape = f"fairway_fault_{case}", jax.ShapeDtypeStruct((4,), np.float32)
    call = jax.ffi.ffi_call("__gpu$xla.gpu.ptx", shape)
    one_thread = {f"{what}_{axis}": np.int32(1) for what in ("grid", "block") for axis in "xyz"}

    def lose_later(x):
        return call(x, name=name, kernel_type="ptx", kernel_data=PTX.format(name=name, fault=FAULTS[case]),
                    shared_mem_bytes=np.int32(0), **one_thread)

    try:
        compiled = jax.jit(lose_later).lower(shape).compile()
        print("kernel: PTX", flush=True)
        return compiled
    except jax.errors.JaxRuntimeError as error:
        print("kernel: none,", str(error).replace("\n", " ")[:300], flush=True)

    def lose_later(x):
        return x + 1

    return jax.jit(lose_later).lower(shape).compile()


def until_lost(kept):
    """The error of an array of an executor that ended by itself."""
    text, until = "it was not lost", time.monotonic() + 240
    while "DATA_LOSS" not in text and time.monotonic() < until:
        try:
            jax.block_until_ready(kept + 1)
        except jax.errors.JaxRuntimeError as error:
            text = str(error)
    return text


def fault(case):
    here, other = jax.devices()
    kept = jax.device_put(np.arange(4.0, dtype=np.float32), here) + 0  # computed: it is there
    elsewhere = jax.device_put(np.arange(4.0, dtype=np.float32), other)
    endless = jax.jit(lambda x: jax.lax.while_loop(lambda x: x > 0, lambda x: x + 1 - 1, x))
    jax.block_until_ready([kept, elsewhere])
    if case == "endless":
        result = endless(kept[1])
    if case in FAULTS:
        kernel = brought_kernel(case)
    print("ready", flush=True)
    sys.stdin.readline()
    try:
        if case == "lost":
            print(jax.block_until_ready(kept + 1))
        elif case == "memory":
            print(jax.block_until_ready(jnp.ones((1 << 40,), np.float32, device=here)))
        elif case in FAULTS:
            print("it did not fail:", jax.block_until_ready(kernel(kept)))
        else:
            print(jax.block_until_ready(result))
    except jax.errors.JaxRuntimeError as error:
        print(error)
        if case in FAULTS:
            print(until_lost(kept))
    if case == "memory":
        assert float((kept + 1).sum()) == 10
    again = jax.block_until_ready(elsewhere + 1)  # a stand-in driver's kernels compute nothing
    assert again.shape == (4,) and float(np.asarray(elsewhere).sum()) == 6
    if case not in FAULTS:
        assert float(again.sum()) == 10
    print("others go on", flush=True)


class Bench:
    """The cases; each returns seconds per step."""

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
        self.product = jax.jit(lambda x: jnp.tanh(x @ x))
        self.squares = {}

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
        if case.startswith("size "):
            size = int(case.split()[1])
            if size not in self.squares:
                self.squares[size] = jax.device_put(np.zeros((size, size), np.float32), self.device)
            return self.chain(self.product, self.squares[size], 10 * steps)
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


def seconds_on_the_device(size, count):
    """For a program of `rate`, from a loop of them within one program."""
    step = lambda _, x: jnp.tanh(x @ x)  # noqa: E731
    loop = jax.jit(lambda x: jax.lax.fori_loop(0, count, step, x))
    x = jax.device_put(np.zeros((size, size), np.float32), jax.devices()[0])
    jax.block_until_ready(loop(x))
    times = []
    for _ in range(5):
        began = time.perf_counter()
        jax.block_until_ready(loop(x))
        times.append((time.perf_counter() - began) / count)
    return sorted(times)[2]


def on_the_device(count, size=0):
    """Prints a program's size and the device's seconds for it; without a size, of one of some 0.33 ms."""
    if not size:
        size = 2048
        size = 128 * round(size * (0.33e-3 / seconds_on_the_device(size, count)) ** (1 / 3) / 128)
    print(size, seconds_on_the_device(size, count))


def rate(seconds, size, start):
    """Programs per second, from `start` on. The client waits for the programs before its last 20, so that the
    device always has some."""
    step = jax.jit(lambda x: jnp.tanh(x @ x))
    x = jax.device_put(np.zeros((size, size), np.float32), jax.devices()[0])
    jax.block_until_ready(step(x))
    while time.time() < start:  # all clients begin together
        time.sleep(0.01)
    before, done, began = x, 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        for _ in range(20):
            x = step(x)
        jax.block_until_ready(before)
        before = x
        done += 20
    jax.block_until_ready(x)
    print(done / (time.perf_counter() - began))


def main():
    what, *arguments = sys.argv[1:]
    if what == "has_gpu":
        sys.exit(jax.default_backend() != "gpu")
    if what == "probe":
        probe()
    elif what == "loads":
        loads()
    elif what == "convolutions":
        convolutions("--quick" in arguments)
    elif what == "on_the_device":
        on_the_device(*map(int, arguments))
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
