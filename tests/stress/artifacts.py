# SPDX-License-Identifier: Apache-2.0
"""Programs that no honest compiler would send: artifacts with flipped bytes, and valid modules with
hostile attributes, alias tables, shardings, shapes and calls.
"""

import functools
import random
import struct

from jax._src.interpreters import mlir
from jax._src.lib import _jax
from jaxlib.mlir import ir

VERSION = "1.13.3"  # the version that the CPU plugin declares; it reads older artifacts as well

HUGE = [0, 1, 2, 3, 7, 64, 1 << 16, (1 << 20) + 1, (1 << 31) - 1, 1 << 31, 1 << 36, 1 << 40,
        (1 << 62) - 1]
NUMBERS = [-(1 << 63), -(1 << 31), -7, -1, 0, 1, 2, 3, 4, 5, 7, 8, 100, 1 << 16, (1 << 31) - 1,
           1 << 31, (1 << 32) + 1, (1 << 63) - 1]
TYPES = ["f32", "f64", "f16", "bf16", "i1", "i4", "i8", "i32", "i64", "ui8", "ui32", "ui64",
         "complex<f32>", "f8E4M3FN", "f8E5M2", "i2", "ui4"]
SHARDINGS = ["{replicated}", "{manual}", "{maximal device=0}", "{maximal device=99}",
             "{devices=[2]0,1}", "{devices=[2]1,0}", "{devices=[4]0,1,2,3}", "{devices=[2]0,0}",
             "{devices=[1,2]0,1}", "{devices=[2]<=[2]}", "{devices=[0]}", "{devices=[2,1]<=[2]}",
             "{devices=[2]<=[2] last_tile_dim_replicate}", "{unknown}", "{{replicated},{manual}}",
             "{devices=[1152921504606846976]<=[1152921504606846976]}", "{", "", "nonsense",
             "{devices=[2]0,-1}", "{devices=[1]0}"]
CALLS = ["Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape", "annotate_device_placement",
         "lapack_sgetrf_ffi", "lapack_spotrf_ffi", "lapack_sgesdd_ffi", "lapack_cgeev_ffi",
         "xla_python_cpu_callback", "xla_ffi_python_cpu_callback", "mhlo.topk", "TopK",
         "X64SplitLow", "AllocateBuffer", "__onednn$matmul", "cu_threefry2x32", "nobody", "",
         "cpu_csr_sparse_dense_ffi", "tridiagonal_solve_perturbed_ffi", "SliceToDynamic",
         "PadToStatic", "shape_assertion", "InspectSharding", "LayoutConstraint", "xla.sdy.FuncResultSharding"]


@functools.cache
def context():
    out = mlir.make_ir_context()
    out.allow_unregistered_dialects = False
    return out


@functools.cache
def artifact(text):
    """The portable artifact of a module; the text itself if it is not a valid module."""
    try:
        with context():
            return _jax.mlir.serialize_portable_artifact(ir.Module.parse(text), VERSION, True)
    except Exception:  # any error of MLIR or of the binding
        return text.encode()


def flipped(rng, base):
    """`base` with some bytes changed, removed, repeated or moved."""
    data = bytearray(base)
    for _ in range(rng.choice((1, 1, 1, 2, 4, 16))):
        at, kind = rng.randrange(len(data)), rng.randrange(10)
        if kind < 5:
            data[at] ^= 1 << rng.randrange(8)
        elif kind < 7:
            data[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        elif kind == 7:
            del data[at : at + rng.randrange(1, 8)]
        elif kind == 8:
            data[at:at] = data[at : at + rng.randrange(1, 32)]
        else:
            data = data[: max(at, 32)]
    return bytes(data)


def module(body, attributes="", helpers=""):
    return f"module @jit_f attributes {{{attributes}}} {{\n{helpers}\n{body}\n}}"


def main(body, arguments="%a: tensor<4xf32>", results="tensor<4xf32>", **rest):
    return module(f"func.func public @main({arguments}) -> ({results}) {{\n{body}\n}}", **rest)


ADD = "%0 = stablehlo.add %a, %a : tensor<4xf32>\nreturn %0 : tensor<4xf32>"


# Each of these makes one module, with hostile values where `rng` decides so.

def counts(rng):
    return main(ADD, attributes=", ".join(
        f"mhlo.num_{what} = {rng.choice(NUMBERS)} : i{rng.choice((32, 64))}"
        for what in ("replicas", "partitions") if rng.random() < 0.8))


def aliases(rng):
    def attributes(i):
        some = [f"tf.aliasing_output = {rng.choice(NUMBERS[3:])} : i32", "jax.buffer_donor = true",
                "jax.buffer_donor = false", f"tf.aliasing_output = {i} : i32",
                'mhlo.memory_kind = "pinned_host"', 'mhlo.memory_kind = "elsewhere"',
                'mhlo.layout_mode = "{0}"', 'mhlo.layout_mode = "{7,7}"', 'mhlo.layout_mode = "auto"']
        return "{" + ", ".join({a.split()[0]: a for a in rng.sample(some, rng.randrange(3))}.values()) + "}"
    count = rng.randrange(1, 6)
    kind = rng.choice(("f32", "f32", "i32"))
    arguments = ", ".join(f"%a{i}: tensor<4x{kind}> {attributes(i)}" for i in range(count))
    results = ", ".join(f"tensor<4x{kind}>" for _ in range(count))
    adds = "\n".join(f"%{i} = stablehlo.add %a{i}, %a{rng.randrange(count)} : tensor<4x{kind}>"
                     for i in range(count))
    names = ", ".join(f"%{rng.randrange(count)}" for _ in range(count))
    return main(f"{adds}\nreturn {names} : {results}", arguments, results)


def shardings(rng):
    one, two = rng.choice(SHARDINGS), rng.choice(SHARDINGS)
    return main(ADD, f'%a: tensor<4xf32> {{mhlo.sharding = "{one}"}}',
                f'tensor<4xf32> {{mhlo.sharding = "{two}"}}',
                attributes=f"mhlo.num_partitions = {rng.choice((1, 2, 2, 3))} : i32")


def meshes(rng):
    size = rng.choice((0, 1, 2, 2, 2, 3, 4, 1 << 30))
    axis, other = rng.choice(("x", "x", "y")), rng.choice(("x", "y"))
    ids = rng.choice(("", "", ", device_ids=[1, 0]", ", device_ids=[0, 0]", ", device_ids=[7]"))
    cut = rng.choice((f'{{"{axis}"}}', "{}", f'{{"{axis}", ?}}', f'{{"{axis}":(1){rng.choice((2, 3))}}}'))
    return main(ADD, f"%a: tensor<4xf32> {{sdy.sharding = #sdy.sharding<@mesh, [{cut}]>}}",
                f'tensor<4xf32> {{sdy.sharding = #sdy.sharding<@mesh, [{{"{other}"}}]>}}',
                helpers=f'sdy.mesh @mesh = <["x"={size}]{ids}>')


def shapes(rng):
    n, kind = rng.choice(HUGE), rng.choice(TYPES)
    dims = f"{n}" if rng.random() < 0.5 else f"{n}x{rng.choice(HUGE)}"
    t = f"tensor<{dims}x{kind}>"
    kinds = [
        (f"return %a : {t}", f"%a: {t}", t),
        (f"%0 = stablehlo.add %a, %a : {t}\nreturn %0 : {t}", f"%a: {t}", t),
        (f"%0 = stablehlo.iota dim = 0 : {t}\nreturn %0 : {t}", "", t),
        (f"%0 = stablehlo.constant dense<1> : {t}\nreturn %0 : {t}", "", t),
        (f"%0 = stablehlo.constant dense<1.5> : {t}\nreturn %0 : {t}", "", t),
        (f"%0 = stablehlo.broadcast_in_dim %a, dims = [] : (tensor<{kind}>) -> {t}\nreturn %0 : {t}",
         f"%a: tensor<{kind}>", t),
        (f"%0 = stablehlo.reshape %a : ({t}) -> tensor<{rng.choice(HUGE)}x{kind}>\n"
         f"return %0 : tensor<{n}x{kind}>", f"%a: {t}", f"tensor<{n}x{kind}>"),
        (f"%0 = stablehlo.slice %a [{rng.choice(NUMBERS)}:{rng.choice(NUMBERS)}:{rng.choice(NUMBERS)}]"
         f" : (tensor<4xf32>) -> tensor<{n}xf32>\nreturn %0 : tensor<{n}xf32>",
         "%a: tensor<4xf32>", f"tensor<{n}xf32>"),
    ]
    return main(*rng.choice(kinds))


def sums(rng):
    """Work whose size is a number in the program: the test is to fold it, or to plan its memory."""
    n = rng.choice((4, 1000, 1 << 16, 1 << 20, 1 << 26, 1 << 33, 1 << 40))
    return main(f"""%0 = stablehlo.iota dim = 0 : tensor<{n}xf32>
      %1 = stablehlo.constant dense<0.0> : tensor<f32>
      %2 = stablehlo.{rng.choice(("add", "multiply", "sine" if n < 0 else "maximum"))} %0, %0 : tensor<{n}xf32>
      %3 = stablehlo.reduce(%2 init: %1) applies stablehlo.{rng.choice(("add", "maximum"))}
        across dimensions = [{rng.choice((0, 0, 0, 1))}] : (tensor<{n}xf32>, tensor<f32>) -> tensor<f32>
      return %3 : tensor<f32>""", "", "tensor<f32>")


def dots(rng):
    m, k, n = (rng.choice((0, 1, 4, 5, 1 << 12, 1 << 24)) for _ in range(3))
    c = rng.choice((0, 1, 1, 1, 2))
    return main(f"%0 = stablehlo.dot_general %a, %b, contracting_dims = [{c}] x [0], "
                f"precision = [DEFAULT, {rng.choice(('DEFAULT', 'HIGHEST'))}] : "
                f"(tensor<{m}x{k}xf32>, tensor<{k}x{n}xf32>) -> tensor<{m}x{n}xf32>\n"
                f"return %0 : tensor<{m}x{n}xf32>",
                f"%a: tensor<{m}x{k}xf32>, %b: tensor<{k}x{n}xf32>", f"tensor<{m}x{n}xf32>")


def windows(rng):
    pick = lambda: rng.choice((0, 1, 1, 1, 2, 3, 1 << 16, 1 << 31, 1 << 40, -1))  # noqa: E731
    low, high, window, stride, dilation = pick(), pick(), pick(), pick(), pick()
    size = 8 if window < 1 or stride < 1 or dilation < 1 else max(
        0, (8 + low + high - ((window - 1) * dilation + 1)) // stride + 1)
    return main(f"""%0 = stablehlo.constant dense<0.0> : tensor<f32>
      %1 = "stablehlo.reduce_window"(%a, %0) ({{
        ^bb0(%x: tensor<f32>, %y: tensor<f32>):
          %2 = stablehlo.add %x, %y : tensor<f32>
          stablehlo.return %2 : tensor<f32>
      }}) {{padding = dense<[[{low}, {high}]]> : tensor<1x2xi64>,
           window_dimensions = array<i64: {window}>, window_strides = array<i64: {stride}>,
           window_dilations = array<i64: {dilation}>, base_dilations = array<i64: 1>}}
        : (tensor<8xf32>, tensor<f32>) -> tensor<{size}xf32>
      return %1 : tensor<{size}xf32>""", "%a: tensor<8xf32>", f"tensor<{size}xf32>")


def pads(rng):
    pick = lambda: rng.choice((-8, -4, -1, 0, 0, 1, 4, 1 << 20, 1 << 33))  # noqa: E731
    low, high, inside = pick(), pick(), abs(pick())
    size = max(0, 4 + low + high + 3 * inside)
    return main(f"""%0 = stablehlo.constant dense<0.0> : tensor<f32>
      %1 = stablehlo.pad %a, %0, low = [{low}], high = [{high}], interior = [{inside}]
        : (tensor<4xf32>, tensor<f32>) -> tensor<{size}xf32>
      return %1 : tensor<{size}xf32>""", results=f"tensor<{size}xf32>")


def gathers(rng):
    return main(f"""%0 = "stablehlo.gather"(%a, %i) {{dimension_numbers = #stablehlo.gather<
        offset_dims = [{rng.choice((0, 1, 1, 1, 2))}], collapsed_slice_dims = [{rng.choice(("", "0", "0"))}],
        start_index_map = [{rng.choice((0, 0, 0, 1, 9))}], index_vector_dim = {rng.choice((0, 1, 1, 2))}>,
        slice_sizes = array<i64: {rng.choice((0, 1, 1, 1, 2, 1 << 40))}, {rng.choice((1, 4, 4, 5))}>,
        indices_are_sorted = {rng.choice(("true", "false"))}}}
        : (tensor<4x4xf32>, tensor<3x1xi32>) -> tensor<3x4xf32>
      return %0 : tensor<3x4xf32>""", "%a: tensor<4x4xf32>, %i: tensor<3x1xi32>", "tensor<3x4xf32>")


def sorts(rng):
    t = f"tensor<{rng.choice((0, 1, 4, 1 << 20))}x{rng.choice(TYPES[:12])}>"
    scalar = "tensor<" + t.rpartition("x")[2]
    return main(f"""%0 = "stablehlo.sort"(%a) ({{
        ^bb0(%x: {scalar}, %y: {scalar}):
          %1 = stablehlo.compare {rng.choice(("LT", "GT", "EQ", "NE"))}, %x, {rng.choice(("%y", "%x"))}
            : ({scalar}, {scalar}) -> tensor<i1>
          stablehlo.return %1 : tensor<i1>
      }}) {{dimension = {rng.choice((0, 0, 0, -1, 1, 7))} : i64, is_stable = true}} : ({t}) -> {t}
      return %0 : {t}""", f"%a: {t}", t)


def collectives(rng):
    groups = rng.choice(("[[0]]", "[[0, 1]]", "[[0], [1]]", "[[0, 0]]", "[[5]]", "[[-1]]", "[[0, 1, 2]]"))
    rows = groups.count("],") + 1
    columns = groups.split("]")[0].count(",") + 1
    channel = rng.choice(("", f", channel_handle = #stablehlo.channel_handle<handle = "
                              f"{rng.choice((0, 1, -1, 1 << 40))}, type = {rng.choice((0, 1, 2, 9))}>"))
    if rng.random() < 0.4:
        return main(f'%0 = "stablehlo.collective_permute"(%a) {{source_target_pairs = dense<'
                    f'{rng.choice(("[[0, 0]]", "[[0, 1]]", "[[0, 9]]", "[[-1, 0]]"))}> : tensor<1x2xi64>'
                    f'{channel}}} : (tensor<4xf32>) -> tensor<4xf32>\nreturn %0 : tensor<4xf32>')
    return main(f"""%0 = "stablehlo.all_reduce"(%a) ({{
        ^bb0(%x: tensor<f32>, %y: tensor<f32>):
          %1 = stablehlo.add %x, %y : tensor<f32>
          stablehlo.return %1 : tensor<f32>
      }}) {{replica_groups = dense<{groups}> : tensor<{rows}x{columns}xi64>{channel}}}
        : (tensor<4xf32>) -> tensor<4xf32>
      return %0 : tensor<4xf32>""")


def calls(rng):
    text = rng.choice(("", "{}", "{n = 4 : i32}", "{n = ", "{" * 200, "\\00\\FF", "{a = 9999999999999999999 : i64}"))
    config = f'backend_config = "{text}"' if rng.random() < 0.7 else "backend_config = {a = 1 : i32}"
    return main(f'%0 = "stablehlo.custom_call"(%a) {{call_target_name = "{rng.choice(CALLS)}", '
                f'{config}, api_version = {rng.choice((0, 1, 2, 3, 4, 4, 4))} : i32, '
                f'has_side_effect = {rng.choice(("true", "false"))}}} : (tensor<4xf32>) -> tensor<4xf32>\n'
                "return %0 : tensor<4xf32>")


def loops(rng):
    bound = rng.choice((0, 1, 10, 1 << 31, (1 << 62)))
    return main(f"""%0 = stablehlo.constant dense<0> : tensor<i64>
      %1 = stablehlo.constant dense<{bound}> : tensor<i64>
      %2 = stablehlo.constant dense<{rng.choice((0, 1, -1))}> : tensor<i64>
      %3:2 = stablehlo.while(%i = %0, %x = %a) : tensor<i64>, tensor<4xf32>
        cond {{
          %4 = stablehlo.compare {rng.choice(("LT", "NE", "EQ"))}, %i, %1 : (tensor<i64>, tensor<i64>) -> tensor<i1>
          stablehlo.return %4 : tensor<i1>
        }} do {{
          %4 = stablehlo.add %i, %2 : tensor<i64>
          %5 = stablehlo.{rng.choice(("add", "multiply"))} %x, %x : tensor<4xf32>
          stablehlo.return %4, {rng.choice(("%5", "%x"))} : tensor<i64>, tensor<4xf32>
        }}
      return %3#1 : tensor<4xf32>""")


def functions(rng):
    depth = rng.choice((1, 2, 3, 50))
    bodies = []
    for i in range(depth):
        to = rng.choice((i + 1, i + 1, i + 1, i, 0)) % depth if rng.random() < 0.3 else i + 1
        call = f"%0 = func.call @f{to}(%a) : (tensor<4xf32>) -> tensor<4xf32>" if to < depth else (
            "%0 = stablehlo.negate %a : tensor<4xf32>")
        bodies.append(f"func.func private @f{i}(%a: tensor<4xf32>) -> tensor<4xf32> {{\n{call}\n"
                      "return %0 : tensor<4xf32>\n}")
    return main("%0 = func.call @f0(%a) : (tensor<4xf32>) -> tensor<4xf32>\nreturn %0 : tensor<4xf32>",
                helpers="\n".join(bodies))


def chains(rng):
    """Many operations, and values that double in size."""
    length, doubles = rng.choice((10, 100, 1000)), rng.random() < 0.4
    lines, t, n = [], "tensor<4xf32>", 4
    for i in range(length if not doubles else rng.choice((4, 10, 26, 40, 60))):
        before = "%a" if i == 0 else f"%{i - 1}"
        if doubles:
            n *= 2
            new = f"tensor<{n}xf32>"
            lines.append(f"%{i} = stablehlo.concatenate {before}, {before}, dim = 0 : ({t}, {t}) -> {new}")
            t = new
        else:
            op = rng.choice(("sine", "exponential", "negate", "tanh", "rsqrt"))
            lines.append(f"%{i} = stablehlo.{op} {before} : {t}")
    return main("\n".join(lines) + f"\nreturn %{len(lines) - 1} : {t}", results=t)


def kinds(rng):
    one, two = rng.choice(TYPES), rng.choice(TYPES)
    op = rng.choice(("convert", "convert", "bitcast_convert"))
    return main(f"%0 = stablehlo.{op} %a : (tensor<4x{one}>) -> tensor<4x{two}>\n"
                f"return %0 : tensor<4x{two}>", f"%a: tensor<4x{one}>", f"tensor<4x{two}>")


def dynamic(rng):
    t = rng.choice(("tensor<?xf32>", "tensor<?xf32, #stablehlo.bounds<4>>", "tensor<*xf32>",
                    "!stablehlo.token", "tuple<tensor<4xf32>>", "tensor<4x!quant.uniform<i8:f32, 0.1>>"))
    return main(f"return %a : {t}", f"%a: {t}", t)


def linear(rng):
    n = rng.choice((0, 1, 4, 300))
    op = rng.choice((
        f"%0 = stablehlo.cholesky %a, lower = true : tensor<{n}x{n}xf32>",
        f'%0 = "stablehlo.triangular_solve"(%a, %a) {{left_side = true, lower = true, '
        f"unit_diagonal = false, transpose_a = #stablehlo<transpose NO_TRANSPOSE>}} : "
        f"(tensor<{n}x{n}xf32>, tensor<{n}x{n}xf32>) -> tensor<{n}x{n}xf32>",
        f"%0 = stablehlo.transpose %a, dims = [{rng.choice((0, 1))}, {rng.choice((0, 1, 5))}] : "
        f"(tensor<{n}x{n}xf32>) -> tensor<{n}x{n}xf32>",
        f"%0 = stablehlo.reverse %a, dims = [{rng.choice((0, 1, 2, -1))}] : tensor<{n}x{n}xf32>"))
    return main(f"{op}\nreturn %0 : tensor<{n}x{n}xf32>", f"%a: tensor<{n}x{n}xf32>",
                f"tensor<{n}x{n}xf32>")


def names(rng):
    name = rng.choice(("main", "other", "f" * 10000, "a.b", "jit_", "\\00"))
    return (f'module @"{rng.choice(("", "jit_", "x" * 5000, "a b"))}" {{\n'
            f'func.func public @"{name}"(%a: tensor<4xf32>) -> tensor<4xf32> {{\nreturn %a : tensor<4xf32>\n}}\n}}')


def wants_memory(count):
    """Bytecode that announces `count` texts, of 16 bytes each in the decoder's table."""
    def section(kind, data):
        return bytes([kind, len(data) << 1 | 1]) + data
    return b"ML\xefR\x0dStableHLO_v1.13.3\0" + section(0, b"\0" + struct.pack("<Q", count)) + b"".join(
        section(kind, b"\x01") for kind in range(1, 9))


def never_compiles():
    """XLA's interpreter computes constants: 2.5e11 additions here."""
    return artifact(main("""%0 = stablehlo.constant dense<0.0> : tensor<f32>
      %1 = stablehlo.constant dense<1.5> : tensor<1000000xf32>
      %2 = "stablehlo.reduce_window"(%1, %0) ({
        ^bb0(%x: tensor<f32>, %y: tensor<f32>):
          %3 = stablehlo.add %x, %y : tensor<f32>
          stablehlo.return %3 : tensor<f32>
      }) {window_dimensions = array<i64: 500000>, window_strides = array<i64: 1>}
        : (tensor<1000000xf32>, tensor<f32>) -> tensor<500001xf32>
      return %2 : tensor<500001xf32>""", "", "tensor<500001xf32>"))


def allocates(count):
    """f32[4] -> f32[4], over two temporary arrays of `count` numbers."""
    t = f"tensor<{count}xf32>"
    return artifact(main(f"""%0 = stablehlo.iota dim = 0 : {t}
      %1 = "stablehlo.sort"(%0) ({{
        ^bb0(%x: tensor<f32>, %y: tensor<f32>):
          %2 = stablehlo.compare GT, %x, %y : (tensor<f32>, tensor<f32>) -> tensor<i1>
          stablehlo.return %2 : tensor<i1>
      }}) {{dimension = 0 : i64, is_stable = true}} : ({t}) -> {t}
      %3 = stablehlo.slice %1 [0:4] : ({t}) -> tensor<4xf32>
      %4 = stablehlo.add %3, %a : tensor<4xf32>
      return %4 : tensor<4xf32>"""))


CRAFTED = (counts, aliases, shardings, meshes, shapes, sums, dots, windows, pads, gathers, sorts,
           collectives, calls, loops, functions, chains, kinds, dynamic, linear, names)


def hostile(count, seed, bases):
    """`count` programs from one seed: (its description, bytes). Two of three are crafted."""
    rng = random.Random(seed)
    for i in range(count):
        if i % 3 == 0:
            yield "flipped", flipped(rng, rng.choice(bases))
            continue
        make = CRAFTED[rng.randrange(len(CRAFTED))]
        data = artifact(make(rng))
        if i % 30 == 1:
            yield f"flipped {make.__name__}", flipped(rng, data)
        else:
            yield make.__name__, data
