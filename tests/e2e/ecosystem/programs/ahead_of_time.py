# SPDX-License-Identifier: Apache-2.0
"""Lowering, compiling and exporting ahead of time."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import export
from jax.sharding import NamedSharding, PartitionSpec as P

from cases import case, islands, main, replicated, rows, split

x, w = rows(16, 8), rows(8, 4, 1)


def f(x, w):
    return jnp.tanh(x @ w), (x * 2).sum()


@case
def traced_lowered_compiled_called():
    results = []
    for devices in islands():
        placed = jax.device_put(x, split(devices)), jax.device_put(w, replicated(devices))
        traced = jax.jit(f).trace(*placed)
        lowered = traced.lower()
        assert "stablehlo" in lowered.as_text()
        compiled = lowered.compile()
        assert "ENTRY" in compiled.as_text()
        assert compiled.cost_analysis()["flops"] > 0
        analysis = compiled.memory_analysis()
        assert analysis.argument_size_in_bytes == (16 * 8 // 4 + 8 * 4) * 4
        assert analysis.output_size_in_bytes >= 16 * 4 // 4 * 4 + 4
        assert compiled.input_shardings[0][0].is_equivalent_to(split(devices), 2)
        assert compiled.output_shardings[0].device_set == set(devices)
        results.append(compiled(*placed))
        try:
            compiled(placed[0], placed[0])
        except TypeError as error:
            assert "called with" in str(error) or "compiled for" in str(error), error
        else:
            raise AssertionError("wrong shapes were accepted")
    return results


@case
def compiled_from_shapes_alone():
    (_, devices) = islands()
    shapes = (jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=split(devices)),
              jax.ShapeDtypeStruct(w.shape, w.dtype, sharding=replicated(devices)))
    compiled = jax.jit(f, donate_argnums=0).lower(*shapes).compile()
    placed = jax.device_put(x, split(devices)), jax.device_put(w, replicated(devices))
    layouts = compiled.input_formats
    assert jax.tree.leaves(layouts)
    got = compiled(*placed)
    shape = jax.eval_shape(f, *placed)
    assert [s.shape for s in shape] == [(16, 4), ()]
    return got


@case
def exported_and_called_again():
    (left, right) = islands()
    one = export.export(jax.jit(f))(x, w)
    again = export.deserialize(one.serialize())
    results = [jax.jit(again.call)(jax.device_put(x, d), jax.device_put(w, d))
               for d in (left[1], right[2])]
    sharded = export.export(jax.jit(f))(
        jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=split(left)),
        jax.ShapeDtypeStruct(w.shape, w.dtype, sharding=replicated(left)))
    assert sharded.nr_devices == 4
    moved = export.deserialize(sharded.serialize(vjp_order=1))
    placed = jax.device_put(x, split(right)), jax.device_put(w, replicated(right))
    results.append(jax.jit(moved.call)(*placed))
    slope = jax.jit(jax.grad(lambda a, b: moved.call(a, b)[0].sum()))(*placed)
    return results, slope


@case
def exported_with_symbolic_shapes():
    (n,) = export.symbolic_shape("n")
    exported = export.export(jax.jit(lambda v: (v * 2).sum(axis=0)))(
        jax.ShapeDtypeStruct((n, 8), np.float32))
    return [exported.call(x), exported.call(x[:5]), exported.call(x[:1])]


@case
def exported_for_several_platforms():
    exported = export.export(jax.jit(jnp.sin), platforms=("cpu", "tpu", "cuda"))(x)
    return jax.jit(exported.call)(x)


@case
def compiled_with_options():
    options = {"xla_cpu_enable_fast_math": False}
    return jax.jit(f, compiler_options=options).lower(x, w).compile()(x, w)


if __name__ == "__main__":
    main()
