# SPDX-License-Identifier: Apache-2.0
"""A program whose computation JAX has exported: y = 2 * x + 1 of four floats, on one device."""

# For a Python that has JAX. Argument: the file for the code of the computation "f".
EXPORT = """
import sys, jax, jax.numpy as jnp
exported = jax.export.export(jax.jit(lambda x: 2 * x + 1))(jax.ShapeDtypeStruct((4,), jnp.float32))
open(sys.argv[1], "wb").write(exported.mlir_module_serialized)
"""
# For `fairway run PROGRAM --code f=FILE`.
PROGRAM = """
name: "affine"
slices { name: "here" devices: 1 }
computations {
  name: "f" devices: 1 shardy: true
  parameters { dtype: 11 dims: [4] }
  results { dtype: 11 dims: [4] }
}
graphs {
  nodes { name: "x" argument { type { array { dtype: 11 dims: [4] } } } }
  nodes { name: "y" compute { inputs { node: 0 } } }
  results { node: 1 }
}
"""
