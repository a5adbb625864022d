# SPDX-License-Identifier: Apache-2.0
"""Tracing without a controller: on JAX's own devices, a program runs op by op."""

import functools
import os
import pkgutil
import re

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, PartitionSpec as P

import fairway
from fairway.computation import _comparable
from fairway.encoding import encode
from fairway.flatten import _places
from fairway.graph import Ref


@pytest.fixture(scope="module", autouse=True)
def cpu():
    jax.config.update("jax_platforms", "cpu")
    assert len(jax.devices()) == 8


@pytest.fixture
def stages():
    """Two stages of a network on meshes of 2 and 4 devices, and the same stages without a place."""
    d = jax.devices()
    first, second = Mesh(np.array(d[:2]), ("x",)), Mesh(np.array(d[4:]), ("x",))

    def stage1(w, x):
        return jnp.tanh(x @ w)

    def stage2(w, h):
        return jnp.mean((h @ w) ** 2)

    return (
        fairway.on(first, stage1, in_specs=(P(), P("x")), out_specs=P("x")),
        fairway.on(second, stage2, in_specs=(P(), P("x"))),
        stage1, stage2,
    )


def weights():
    keys = jax.random.split(jax.random.PRNGKey(0), 3)
    return (
        (jax.random.normal(keys[0], (4, 4)), jax.random.normal(keys[1], (4, 3))),
        list(jax.random.normal(keys[2], (3, 8, 4))),
    )


def microbatches(stage1, stage2):
    def loss(ws, xs):
        return sum(stage2(ws[1], stage1(ws[0], x)) for x in xs) / len(xs)

    return loss


def close(a, b):
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6), a, b)


def computations(graph):
    return [node for node in graph.nodes if node.computation is not None]


def test_no_module_has_the_name_of_what_the_package_exports():
    # Importing a module binds it in the package, over any name that equals its own.
    assert not {m.name for m in pkgutil.iter_modules(fairway.__path__)} & set(fairway.__all__)


def test_the_example_of_the_paper_on_three_slices():
    d = jax.devices()
    a, b, c = (fairway.on(d[i], f) for i, f in enumerate(
        [lambda x: x * 2, lambda x: x + 1, lambda x: x / 2]))

    @fairway.program
    def f(v):
        x = a(v)
        return b(x), a(c(x))

    y, z = f(jnp.array([1.0, 2.0]))
    assert (y.tolist(), z.tolist()) == ([3, 5], [2, 4])
    assert y.devices() == {d[1]} and z.devices() == {d[0]}
    graph = f.trace(jnp.array([1.0, 2.0]))
    assert len({id(n.computation) for n in computations(graph)}) == 3  # a runs twice


def test_gradients_through_stages_and_microbatches_are_those_of_jax(stages):
    one, two, plain1, plain2 = stages
    ws, xs = weights()
    step = fairway.program(jax.value_and_grad(microbatches(one, two)))
    close(step(ws, xs), jax.value_and_grad(microbatches(plain1, plain2))(ws, xs))
    # Each stage's forward and backward is one computation however many microbatches there are,
    # and so is each sum of gradients.
    graph, longer = step.trace(ws, xs), step.trace(ws, xs + xs)
    assert len(longer.nodes) > 1.5 * len(graph.nodes)
    different = [len({id(n.computation) for n in computations(g)}) for g in (graph, longer)]
    assert different[0] == different[1] <= 9
    gradients = graph.result_types[1:]
    assert [len(t.devices) for t in gradients] == [2, 4]


def test_a_checkpoint_around_stages_computes_them_again(stages):
    one, two, plain1, plain2 = stages
    ws, xs = weights()

    def gradient(stage1, stage2, around):
        def loss(ws, x):
            return stage2(ws[1], stage1(ws[0], jnp.sin(x)) * 2)
        return jax.value_and_grad(around(loss), argnums=(0, 1))

    policy = functools.partial(jax.checkpoint, policy=jax.checkpoint_policies.dots_saveable)
    for around in (jax.checkpoint, policy):
        step = fairway.program(gradient(one, two, around))
        close(step(ws, xs[0]), jax.jit(gradient(plain1, plain2, around))(ws, xs[0]))
    kept, again = (fairway.program(gradient(one, two, around)).trace(ws, xs[0])
                   for around in (lambda f: f, jax.checkpoint))
    count = [[n.name for n in computations(g)].count("stage1") for g in (kept, again)]
    assert count[1] == count[0] + 1


def test_what_names_no_place_runs_with_its_neighbours_where_its_inputs_are(stages):
    one, _, plain1, _ = stages
    ws, xs = weights()
    f = fairway.program(lambda w, x: (one(w, x) * 2 + 1).sum())
    close(f(ws[0], xs[0]), (plain1(ws[0], xs[0]) * 2 + 1).sum())
    (only,) = computations(f.trace(ws[0], xs[0]))
    assert (only.name, only.types[0].aval.shape) == ("stage1", ())
    assert [d.id for d in only.types[0].devices] == [0, 1]
    g = fairway.program(lambda x: (x * 2 + 1).sum())
    assert [n.name for n in computations(g.trace(xs[0]))] == ["mul_add_reduce_sum"]


def test_loops_over_several_places_are_unrolled_and_others_are_one_computation(stages):
    one, two, plain1, plain2 = stages
    ws, xs = weights()

    def run(stage1, stage2):
        def scan(ws, x):
            def step(h, k):
                h = stage1(ws[0], h) * k
                return h, stage2(ws[1], h)
            return jax.lax.scan(step, x, jnp.arange(3.0))
        return scan

    f = fairway.program(run(one, two))
    close(f(ws, xs[0]), run(plain1, plain2)(ws, xs[0]))
    names = [n.name for n in computations(f.trace(ws, xs[0]))]
    assert names.count("stage1") == names.count("stage2") == 3
    g = fairway.program(lambda w, x: jax.lax.fori_loop(0, 3, lambda i, h: one(w, h), x))
    assert [n.name for n in computations(g.trace(ws[0], xs[0]))] == ["scan"]


def test_constants_and_arrays_of_the_body_become_part_of_the_program(stages):
    one, _, plain1, _ = stages
    ws, xs = weights()
    f = fairway.program(lambda x: (one(ws[0], x), 7, jnp.zeros(2)))
    close(f(xs[0]), (plain1(ws[0], xs[0]), 7, jnp.zeros(2)))


def test_results_keep_their_weak_type():
    a, b = jax.devices()[:2]
    weak, strong = jnp.asarray(2.0), jnp.float32(3)

    def fun(x, y):
        x, y = fairway.on(b, lambda *v: v)(x, y)
        return 2.0, jax.device_put(2.0, a), x, -jax.device_put(x, a), -jax.device_put(y, a)

    expected = [x.weak_type for x in jax.eval_shape(fun, weak, strong)]
    assert expected == [True, True, True, True, False]
    f = fairway.program(fun)
    assert [t.weak for t in f.trace(weak, strong).result_types] == expected
    assert [x.weak_type for x in f(weak, strong)] == expected


@pytest.mark.parametrize("static", [1, (1,), -2])
def test_what_is_static_stays_as_it_is_and_the_others_are_moved(static):
    d = jax.devices()[3]
    f = fairway.on(d, lambda x, power, y: x ** power + y, in_specs=(P(), P()), static_argnums=static)
    x, y = jnp.full(2, 2.0), jnp.ones(2)
    for z in (f(x, 3, y), fairway.program(lambda x, y: f(x, 3, y))(x, y)):
        assert z.tolist() == [9, 9] and z.devices() == {d}


def test_static_arguments_by_name_are_refused():
    with pytest.raises(TypeError, match="use static_argnums"):
        fairway.on(jax.devices()[0], lambda x, n: x * n, static_argnames="n")


def test_a_place_and_specs_of_another_type_are_refused_by_name():
    mesh = Mesh(np.array(jax.devices()[:2]), ("x",))
    for where in (jax.sharding.NamedSharding(mesh, P()), mesh.abstract_mesh, "cpu", None):
        says = "expected a jax.sharding.Mesh, .*, got " + re.escape(repr(where))
        with pytest.raises(TypeError, match=says):
            fairway.on(where, jnp.sin)
    for option in ("in_specs", "out_specs"):
        with pytest.raises(TypeError, match=f"{option} has 'batch'; expected PartitionSpecs.*'x'"):
            fairway.on(mesh, jnp.sin, **{option: "batch"})


def test_a_program_of_no_function_or_with_a_name_of_another_type_is_refused():
    with pytest.raises(TypeError, match="name=5; expected a string"):
        fairway.program(jnp.sin, name=5)
    with pytest.raises(TypeError, match="Expected a callable value, got 5"):
        fairway.program(5)


def test_what_jax_says_while_it_traces_names_the_function_and_its_arguments():
    def branches(x, *, y):
        return x if y["k"] > 0 else -x

    texts = []
    for make in (jax.jit, fairway.program):
        with pytest.raises(jax.errors.TracerBoolConversionError) as error:
            make(branches)(1.0, y={"k": 1.0})
        texts.append(str(error.value))
    assert texts[0] == texts[1] and "test_programs.py" in texts[0] and "y['k']" in texts[0]


def test_an_argument_that_has_a_place_keeps_it_and_is_donated_when_asked():
    d = jax.devices()
    double = fairway.on(d[3], lambda x: x * 2)
    f = fairway.program(lambda p: double(p["b"]) + double(p["a"]), donate_argnums=0)
    x = jax.device_put(jnp.ones(3), d[6])
    graph = f.trace({"a": x, "b": np.ones(3, np.float32)})
    assert [n.types[0].devices for n in graph.nodes[:2]] == [(d[6],), (d[3],)]
    assert [n.donated for n in graph.nodes[:2]] == [True, True]


def test_what_keyword_arguments_hold_is_donated_too():
    f = fairway.program(lambda a, b: a + b, donate_argnums=1)
    graph = f.trace(jnp.ones(3), b=jnp.ones(3))
    assert [n.donated for n in graph.nodes[:2]] == [False, True]


@pytest.mark.parametrize("number, says", [(1, "only accepts 1"), (-1, "count from 0")])
def test_donating_an_argument_that_there_is_not_is_refused(number, says):
    with pytest.raises(ValueError, match=says):
        fairway.program(lambda x: x, donate_argnums=number)


@pytest.mark.parametrize("one, other", [
    (0.0, -0.0), (complex(0, 0.0), complex(0, -0.0)), (1, True),
    (((0.0,),), ((-0.0,),)), ((1,), (1.0,)),
])
def test_what_is_equal_and_not_the_same_is_told_apart(one, other):
    assert one == other and _comparable(one) != _comparable(other)


def test_a_number_that_is_none_is_equal_to_itself():
    assert _comparable((float("nan"),)) == _comparable((float("nan"),))


def test_computations_with_zeros_of_both_signs_are_two():
    a, b = jax.devices()[:2]

    @fairway.program
    def f(x):
        y = fairway.on(a, lambda v: v + 1)(x)
        one, other = jax.device_put(y, b), jax.device_put(y, b)
        return (jax.device_put(jnp.copysign(one, 0.0), a),
                jax.device_put(jnp.copysign(other, -0.0), a))

    assert [y.item() for y in f(jnp.float32(1))] == [2, -2]


def test_places_inside_a_jaxpr_are_not_taken_for_those_of_one_that_is_gone():
    def moving(there):
        return jax.make_jaxpr(jax.jit(lambda x: jax.device_put(x, there)))(1.0).eqns[0]

    d, known = jax.devices(), {}
    for i in range(50):  # later ones reuse the ids of earlier ones
        assert _places(moving(d[i % 2]), known) == {(d[i % 2],)}


def test_a_loop_of_no_steps_over_several_places():
    a, b = (fairway.on(d, lambda x: x * 2) for d in jax.devices()[:2])
    f = fairway.program(lambda x: jax.lax.scan(lambda h, k: (b(a(h)), a(h)), x, jnp.arange(0)))
    x, ys = f(jnp.ones(2))
    assert (x.tolist(), ys.shape, ys.dtype) == ([1, 1], (0, 2), jnp.float32)


@pytest.mark.parametrize("around", [
    jax.jit, jax.vmap, fairway.program, lambda f: jax.grad(lambda x: f(x).sum())])
def test_a_program_called_while_jax_traces_says_what_to_do(around):
    double = fairway.program(fairway.on(jax.devices()[0], lambda x: x * 2), name="double")
    here = double(jnp.ones(2))  # cached for this type, and not a tracer below
    for called in (lambda x: double(x), lambda x: double(here) * x):
        with pytest.raises(fairway.ProgramError, match="program double.*__wrapped__"):
            around(called)(jnp.ones(2))


def test_a_program_that_calls_itself_is_refused():
    x = jnp.ones(2)
    f = fairway.program(lambda y: f(x) + y, name="recursive")
    with pytest.raises(fairway.ProgramError, match="program recursive"):
        f(x)


def test_values_on_two_places_are_refused_with_the_line():
    d = jax.devices()
    a, b = fairway.on(d[0], lambda x: x * 2), fairway.on(d[1], lambda x: x + 1)

    @fairway.program
    def f(x):
        return a(x) + b(x)  # this line

    with pytest.raises(fairway.ProgramError, match=r"test_programs.py:(\d+).*devices \[\d\]") as e:
        f(jnp.ones(2))
    line = f.__wrapped__.__code__.co_firstlineno + 2
    assert f"test_programs.py:{line}" in str(e.value)


def test_a_branch_over_several_places_is_refused():
    d = jax.devices()
    a, b = fairway.on(d[0], lambda x: x * 2), fairway.on(d[1], lambda x: x + 1)
    f = fairway.program(lambda x: jax.lax.cond(x[0] > 0, a, b, x))
    with pytest.raises(fairway.ProgramError, match="cond over several places"):
        f(jnp.ones(2))


def test_what_would_happen_nowhere_is_refused_with_the_line():
    double = fairway.on(jax.devices()[0], lambda x: x * 2)
    total = jax.new_ref(jnp.zeros(2))
    takes = fairway.on(jax.devices()[0], lambda x: total[...] + x)

    def adds(x):
        total[...] += x
        return double(x)

    def local(x):
        ref = jax.new_ref(x)
        ref[...] = x + 1
        return double(ref[...])

    for fun, effect in ((adds, "ReadEffect"), (lambda x: takes(x), "ReadEffect"),
                        (local, "WriteEffect")):
        with pytest.raises(fairway.ProgramError, match=rf"test_programs.py:\d.*{effect}"):
            fairway.program(fun)(jnp.ones(2))


def test_effects_of_placed_functions_happen_on_devices_that_can(capfd):
    def printing(x):
        jax.debug.print("saw {}", x)
        return x * 2

    def counting(x):
        ref = jax.new_ref(x)
        ref[...] += 1
        return ref[...]

    prints, counts = (fairway.on(jax.devices()[1], f) for f in (printing, counting))
    f = fairway.program(lambda x: (prints(x + 1), counts(x))[1])  # nobody takes prints' output
    assert f(jnp.float32(4)) == 5
    jax.effects_barrier()
    assert "saw 5.0" in capfd.readouterr().out
    g = fairway.program(lambda x: (counts(x), x)[1])
    assert computations(g.trace(jnp.float32(4))) == []


def test_effects_without_a_place_happen_where_their_inputs_are(capfd):
    left, right = jax.devices()[:2]
    double = fairway.on(left, lambda x: x * 2)

    @fairway.program
    def f(x):
        jax.debug.print("first")
        y = double(x)
        jax.debug.print("{}", y)
        jax.debug.callback(print, jax.device_put(y, right))
        return y

    graph = f.trace(jnp.float32(4))
    places = [node.types[0].devices for node in graph.nodes if node.computation and
              node.computation.effects]
    assert places == [(left,), (left,), (right,)] and len(graph.done) == 3
    assert f(jnp.float32(4)) == 8
    jax.effects_barrier()
    assert sorted(capfd.readouterr().out.split()) == ["8.0", "8.0", "first"]


def test_ordered_effects_go_from_node_to_node(capfd):
    def says(what, x):
        jax.debug.print(what, ordered=True)
        return x + 1

    left, right = (functools.partial(fairway.on, d) for d in jax.devices()[:2])
    f = fairway.program(lambda x: [left(lambda x: says("one", x))(x), right(lambda x: says("two", x))(x),
                                   left(lambda x: says("three", x))(x)])
    graph = f.trace(jnp.float32(4))
    nodes = {i: node for i, node in enumerate(graph.nodes) if node.computation is not None}
    assert all(len(node.types) == 3 for node in nodes.values())  # a token, x + 1, the end's mark
    assert graph.results == [Ref(i, 1) for i in nodes] and graph.done == [Ref(i, 2) for i in nodes]
    assert [node.inputs[-1] for node in nodes.values()][1:] == graph.done[:-1]
    assert [float(x) for x in f(jnp.float32(4))] == [5, 5, 5]
    assert [float(x) for x in f.op_by_op(jnp.float32(4))] == [5, 5, 5]
    jax.effects_barrier()
    assert capfd.readouterr().out.split() == ["one", "two", "three"] * 2


def test_a_callback_for_a_client_that_serves_none_is_refused_with_the_line():
    calls = fairway.on(jax.devices()[1], lambda x: jax.pure_callback(np.sin, x, x))
    f = fairway.program(lambda x: calls(x))
    with pytest.raises(fairway.ProgramError, match=r"test_programs.py:\d.*a callback that cannot be"):
        encode(f.trace(jnp.float32(4)))


def test_an_argument_that_holds_no_data_is_refused_as_a_jit_does_and_named():
    gone = jnp.ones(4) + 0
    gone.delete()
    f = fairway.program(lambda p, *, q: p["a"] * q, name="f")
    with pytest.raises(RuntimeError) as of_jit:
        jax.jit(f.__wrapped__)({"a": gone}, q=1.0)
    for call in (f, f.op_by_op):
        for wrong, kind, says in (
                (gone, RuntimeError, str(of_jit.value)),
                (jax.ShapeDtypeStruct((4,), jnp.float32), TypeError, "expected an array")):
            with pytest.raises(kind) as one:
                call({"a": wrong}, q=1.0)
            with pytest.raises(kind) as other:
                call({"a": 1.0}, q=wrong)
            assert "args[0]['a'] of the program f" in str(one.value) and says in str(one.value)
            assert "kwargs['q'] of the program f" in str(other.value) and says in str(other.value)
    assert f.trace({"a": jax.ShapeDtypeStruct((4,), jnp.float32)}, q=1.0).nodes


def test_under_disable_jit_a_program_is_its_function_as_a_jit_is(stages):
    one, _, _, _ = stages
    ws, xs = weights()
    seen = []

    def fun(x):
        seen.append(x)
        return one(ws[0], x) + 1

    with jax.disable_jit():
        close(fairway.program(fun)(xs[0]), jax.jit(fun)(xs[0]))
    assert not any(isinstance(x, jax.core.Tracer) for x in seen) and len(seen) == 2


def test_a_program_is_traced_once_for_arguments_of_the_same_types():
    traced = []
    double = fairway.on(jax.devices()[0], lambda x: x * 2)

    @fairway.program
    def f(x, *, y):
        traced.append(x.shape)
        return double(x) + y

    for _ in range(3):
        f(jnp.ones(2), y=np.float32(1))
    f(jnp.ones(4), y=np.float32(1))
    assert traced == [(2,), (4,)]


def test_a_program_is_traced_again_where_jax_would_trace_otherwise():
    f = fairway.program(lambda x: x.astype(float))
    g = fairway.program(fairway.on(jax.devices()[0], lambda x: x @ x))
    x = jnp.ones((2, 2))
    types = []
    for name in ("default", "highest"):
        with jax.default_matmul_precision(name), jax.enable_x64(name == "highest"):
            types.append(str(f(x).dtype))
            g(x)
    assert types == ["float32", "float64"] and len(g._bound) == 2


def test_a_graph_is_encoded_as_the_proto_says(tmp_path, stages):
    program_pb2 = compiled_proto(tmp_path)
    one, two, _, _ = stages
    ws, xs = weights()
    graph = fairway.program(jax.value_and_grad(microbatches(one, two)), name="step").trace(ws, xs)
    assert program_pb2.BoundProgram.FromString(encode(graph, sequential=True)).sequential
    bound = program_pb2.BoundProgram.FromString(encode(graph))
    assert not bound.sequential
    assert [list(s.devices) for s in bound.slices] == [[0, 1], [4, 5, 6, 7]]
    program = bound.program
    assert (program.name, [s.devices for s in program.slices]) == ("step", [2, 4])
    (main,) = program.graphs
    assert [n.WhichOneof("op") for n in main.nodes[:5]] == ["argument"] * 5
    assert len(main.results) == 3 and len(main.nodes) == len(graph.nodes)
    stage1 = next(c for c in program.computations if c.name == "stage1")
    assert stage1.stablehlo and stage1.devices == 2
    (kept, cut) = stage1.parameters
    assert (kept.dtype, list(kept.dims), list(kept.tiles)) == (11, [4, 4], [])
    assert (list(cut.dims), list(cut.tiles), list(cut.tile_of)) == ([8, 4], [2, 1], [0, 1])
    sources = {n.source for n in main.nodes if n.name == "stage1"}
    assert all("test_programs.py" in source for source in sources)


def compiled_proto(folder):
    """Reads program.proto with protobuf's own compiler; skips where there is none."""
    import shutil
    import subprocess

    protoc = shutil.which("protoc")
    if protoc is None:
        pytest.skip("no protoc")
    root = os.path.join(os.path.dirname(__file__), "..", "..", "..", "proto")
    descriptor = folder / "program.binpb"
    subprocess.run([protoc, f"-I{root}", "--include_imports", f"--descriptor_set_out={descriptor}",
                    "fairway/v1/program.proto"], check=True, cwd=root)
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(descriptor.read_bytes()).file:
        pool.Add(file)
    kind = pool.FindMessageTypeByName("fairway.v1.BoundProgram")

    class Messages:
        BoundProgram = message_factory.GetMessageClass(kind)

    return Messages
