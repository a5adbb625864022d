# SPDX-License-Identifier: Apache-2.0
"""The programs of hostile clients (hostile_cases.py)."""

from raw_native import program_of

# A loop that goes 2,000 times from one island to the other and back: 8,000 steps.
PINGPONG = """
name: "pingpong"
slices { name: "a" devices: 1 }
slices { name: "b" devices: 1 }
computations { name: "double" devices: 1
  kernels { name: "double" parameters { dtype: 11 global_dims: [8] }
    steps { kernel: "scale" operands: [0] factor: 1 } results { value: 1 } }
  parameters { dtype: 11 dims: [8] } results { dtype: 11 dims: [8] } }
graphs {
  nodes { name: "x" argument { type { slice: 0 array { dtype: 11 dims: [8] } } } }
  nodes { name: "l" loop { body: 1 count: 2000 inputs { node: 0 } } }
  results { node: 1 } }
graphs {
  nodes { name: "x" argument { type { slice: 0 array { dtype: 11 dims: [8] } } } }
  nodes { name: "b" compute { computation: 0 slice: 1 inputs { node: 0 } } }
  nodes { name: "a" compute { computation: 0 slice: 0 inputs { node: 1 } } }
  results { node: 2 } }
"""

# f(x, y, z) and g(good).
TWO_ANSWERS = """
name: "two answers"
slices { name: "a" devices: 1 }
computations { name: "sum" devices: 1
  kernels { name: "sum" parameters { dtype: 11 } parameters { dtype: 11 } parameters { dtype: 11 }
    steps { kernel: "add" operands: [0, 1] } steps { kernel: "add" operands: [3, 2] } results { value: 4 } }
  parameters { dtype: 11 } parameters { dtype: 11 } parameters { dtype: 11 } results { dtype: 11 } }
computations { name: "scale" devices: 1
  kernels { name: "scale" parameters { dtype: 11 }
    steps { kernel: "scale" operands: [0] factor: 1 } results { value: 1 } }
  parameters { dtype: 11 } results { dtype: 11 } }
graphs {
  nodes { name: "x" argument { type { slice: 0 array { dtype: 11 } } } }
  nodes { name: "y" argument { type { slice: 0 array { dtype: 11 } } } }
  nodes { name: "z" argument { type { slice: 0 array { dtype: 11 } } } }
  nodes { name: "good" argument { type { slice: 0 array { dtype: 11 } } } }
  nodes { name: "f" compute { computation: 0 slice: 0 inputs { node: 0 } inputs { node: 1 } inputs { node: 2 } } }
  nodes { name: "g" compute { computation: 1 slice: 0 inputs { node: 3 } } }
  results { node: 4 } results { node: 5 } }
"""


def loop_of(count, body, devices=1):
    return program_of(f"""
name: "loop"
slices {{ name: "a" devices: {devices} }}
computations {{ name: "c" devices: {devices} {body} }}
graphs {{
  nodes {{ name: "x" argument {{ type {{ slice: 0 array {{ dtype: 11 dims: [8] }} }} }} }}
  nodes {{ name: "l" loop {{ body: 1 count: {count} inputs {{ node: 0 }} }} }}
  results {{ node: 1 }} }}
graphs {{
  nodes {{ name: "x" argument {{ type {{ slice: 0 array {{ dtype: 11 dims: [8] }} }} }} }}
  nodes {{ name: "c" constant {{ type {{ slice: 0 array {{ dtype: 11 dims: [8] }} }} bytes: "{'A' * 32}" }} }}
  nodes {{ name: "b" compute {{ computation: 0 slice: 0 inputs {{ node: 0 }} }} }}
  results {{ node: 2 }} }}
""")


def wide(results):
    return ('kernels { name: "w" parameters { dtype: 11 global_dims: [8] } '
            'steps { kernel: "scale" operands: [0] factor: 1 } ' + "results { value: 1 } " * results + "} "
            "parameters { dtype: 11 dims: [8] } " + "results { dtype: 11 dims: [8] } " * results)


def written_out(nodes, results, seen):
    """A program of `nodes` nodes with `results` results each; `seen`: they all are the program's results."""
    program = program_of(f"""
name: "written out"
slices {{ name: "a" devices: 1 }}
computations {{ name: "c" devices: 1 {wide(results)} }}
graphs {{ nodes {{ name: "x" argument {{ type {{ slice: 0 array {{ dtype: 11 dims: [8] }} }} }} }} }}
""")
    (graph,) = program.graphs
    for number in range(1, nodes + 1):
        graph.nodes.add().compute.inputs.add(node=0)
        for output in range(results if seen else 0):
            graph.results.add(node=number, output=output)
    if not seen:
        graph.results.add(node=nodes)
    return program


def endless(rounds, devices=1):
    """A loop of one computation."""
    return program_of(f"""
name: "endless"
slices {{ name: "a" devices: {devices} }}
computations {{ name: "c" devices: {devices} {wide(1)} }}
graphs {{
  nodes {{ name: "x" argument {{ type {{ slice: 0 array {{ dtype: 11 dims: [8] }} }} }} }}
  nodes {{ name: "l" loop {{ body: 1 count: {rounds} inputs {{ node: 0 }} }} }}
  results {{ node: 1 }} }}
graphs {{
  nodes {{ name: "x" argument {{ type {{ slice: 0 array {{ dtype: 11 dims: [8] }} }} }} }}
  nodes {{ name: "b" compute {{ computation: 0 slice: 0 inputs {{ node: 0 }} }} }}
  results {{ node: 1 }} }}
""")
