# SPDX-License-Identifier: Apache-2.0
"""Programs that JAX writes for GPUs, as portable artifacts of StableHLO."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P


def exported(function, *arguments):
    """JAX's program for `function` with arguments like these, for the platform cuda."""
    checks = [jax.export.DisabledSafetyCheck.custom_call(name)
              for name in ("cusolver_getrf_ffi", "mosaic_gpu", "__gpu$xla.gpu.triton", "my_kernel")]
    return jax.export.export(jax.jit(function), platforms=["cuda"], disabled_checks=checks)(
        *arguments).mlir_module_serialized


def elementwise():
    return exported(lambda x: jnp.sin(x) * 2 + jax.nn.gelu(x), jnp.zeros((1000, 33)))


def product(dtype=jnp.bfloat16):
    x = jnp.zeros((1024, 1024), dtype)
    return exported(lambda x, y: x @ y + x, x, x)


def convolution():
    return exported(
        lambda x, k: jax.lax.conv_general_dilated(
            x, k, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")),
        jnp.zeros((8, 32, 32, 16)), jnp.zeros((3, 3, 16, 32)))


def attention():
    x = jnp.zeros((2, 128, 4, 64), jnp.bfloat16)
    return exported(lambda q, k, v: jax.nn.dot_product_attention(q, k, v, is_causal=True), x, x, x)


def sort():
    return exported(lambda x: (jnp.sort(x), jnp.argsort(x)), jnp.zeros(10000))


def random():
    return exported(lambda seed: jax.random.normal(jax.random.key(seed), (512,)), jnp.uint32(0))


def summed_over_eight_devices():
    mesh = Mesh(np.array(jax.devices()[:8]), ("d",))

    @functools.partial(jax.shard_map, mesh=mesh, in_specs=P("d"), out_specs=P())
    def total(x):
        return jax.lax.psum(x, "d")

    x = jax.device_put(jnp.zeros((64, 128)), NamedSharding(mesh, P("d")))
    return exported(total, x)


def training_step(layers=2, width=256, heads=4, length=128, batch=8):
    """A transformer's step: attention, two products, normalization; loss, gradient and update."""
    keys = ("q", "k", "v", "o")
    parameters = {"layers": [{**{k: jnp.zeros((width, width), jnp.bfloat16) for k in keys},
                              "up": jnp.zeros((width, 4 * width), jnp.bfloat16),
                              "down": jnp.zeros((4 * width, width), jnp.bfloat16)}
                             for _ in range(layers)],
                  "embedding": jnp.zeros((1000, width), jnp.bfloat16)}

    def normalized(x):
        mean = x.mean(-1, keepdims=True)
        return (x - mean) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)

    def loss(parameters, tokens):
        x = parameters["embedding"][tokens]
        for layer in parameters["layers"]:
            y = normalized(x)
            split = lambda name: (y @ layer[name]).reshape(batch, length, heads, width // heads)  # noqa: E731
            y = jax.nn.dot_product_attention(split("q"), split("k"), split("v"), is_causal=True)
            x = x + y.reshape(batch, length, width) @ layer["o"]
            x = x + jax.nn.gelu(normalized(x) @ layer["up"]) @ layer["down"]
        logits = jax.nn.log_softmax((x @ parameters["embedding"].T).astype(jnp.float32))
        return -jnp.take_along_axis(logits[:, :-1], tokens[:, 1:, None], -1).mean()

    def step(parameters, tokens):
        value, gradients = jax.value_and_grad(loss)(parameters, tokens)
        return value, jax.tree.map(lambda p, g: p - 1e-3 * g, parameters, gradients)

    return exported(step, parameters, jnp.zeros((batch, length), jnp.int32))


def calling(target, config=b"", wrap=lambda f: f, text=False):
    """A program that makes a call chosen by the client, as jax.ffi writes it: bytecode, or text."""
    def call(x):
        kernel = jax.ffi.ffi_call(target, jax.ShapeDtypeStruct(x.shape, x.dtype), vmap_method="sequential")
        return kernel(x, config=np.frombuffer(config or b"\0", np.uint8))

    checks = [jax.export.DisabledSafetyCheck.custom_call(target)]
    written = jax.export.export(jax.jit(wrap(call)), platforms=["cuda"], disabled_checks=checks)(jnp.zeros(8))
    return written.mlir_module().encode() if text else written.mlir_module_serialized


def in_loop(call):
    return lambda x: jax.lax.fori_loop(0, 3, lambda i, x: call(x), x)


def in_function(call):
    return lambda x: jax.jit(jax.named_call(call, name="inner"), inline=False)(x) + 1


def not_portable(calls):
    """Bytecode of StableHLO itself, which only tools write; with a custom call if `calls`."""
    import io

    from jax._src.interpreters import mlir
    from jax._src.lib.mlir import ir

    call = "stablehlo.custom_call @Sharding(%x)" if calls else "stablehlo.negate %x"
    text = """module { func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {
      %0 = CALL : (tensor<4xf32>) -> tensor<4xf32> return %0 : tensor<4xf32> } }""".replace("CALL", call)
    with mlir.make_ir_context():
        out = io.BytesIO()
        ir.Module.parse(text).operation.write_bytecode(out)
    return out.getvalue()


def artifact(text):
    """The portable artifact of the StableHLO in a text."""
    from jax._src.interpreters import mlir
    from jax._src.lib.mlir import ir
    from jax._src.lib.mlir.dialects import hlo

    with mlir.make_ir_context():
        module = ir.Module.parse(text)
        return hlo.serialize_portable_artifact(module, hlo.get_current_version())


ALLOCATING = """module { func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.custom_call @AllocateBuffer() : () -> tensor<4xf32>
  return %0 : tensor<4xf32> } }"""

WAITING = """module { func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.create_token : !stablehlo.token
  %1:2 = "stablehlo.infeed"(%0) {infeed_config = ""} : (!stablehlo.token) -> (tensor<4xf32>, !stablehlo.token)
  return %1#0 : tensor<4xf32> } }"""


DONATING = b"""module @donating {
  func.func public @main(%x: tensor<1024xf32> {tf.aliasing_output = 0 : i32}) -> tensor<1024xf32> {
    %0 = stablehlo.add %x, %x : tensor<1024xf32>
    return %0 : tensor<1024xf32>
  }
}"""

IN_PINNED_HOST = b"""module @pinned {
  func.func public @main(%x: tensor<1024xf32>) -> (tensor<1024xf32> {mhlo.memory_kind = "pinned_host"}) {
    %0 = stablehlo.add %x, %x : tensor<1024xf32>
    %1 = stablehlo.custom_call @annotate_device_placement(%0) {has_side_effect = true, mhlo.frontend_attributes = {_xla_buffer_placement = "pinned_host"}} : (tensor<1024xf32>) -> tensor<1024xf32>
    return %1 : tensor<1024xf32>
  }
}"""

TOO_LARGE = b"""module @large {
  func.func public @main(%x: tensor<f32>) -> tensor<100000000000xf32> {
    %0 = stablehlo.broadcast_in_dim %x, dims = [] : (tensor<f32>) -> tensor<100000000000xf32>
    return %0 : tensor<100000000000xf32>
  }
}"""
