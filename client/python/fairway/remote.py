# SPDX-License-Identifier: Apache-2.0
"""Programs on a controller: bound once, then one Execute message per call.

jaxlib's own dispatcher of jitted functions runs them, so a call costs the same as a call of a jit.
It takes any executable of the client, and arguments on any devices.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax._src import api_util, core, dispatch, tree_util
from jax._src.interpreters import pxla
from jax._src.lib import _jax

from fairway import callbacks, progress
from fairway.devices import is_ours
from fairway.encoding import encode
from fairway.graph import Graph

_HEADER = b"fairway.v1.BoundProgram "


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class _WithEffects:
    """The results of a program with effects: one more value for each node that has some."""

    result: Any
    done: tuple

    def block_until_ready(self) -> None:
        jax.block_until_ready(self.done)

    def taken(self) -> Any:
        """Returns the result. jax.effects_barrier, and the process's end, wait for the effects."""
        token = _WithEffects(None, self.done)
        for device in {device for x in self.done for device in x.devices()}:
            dispatch.runtime_tokens.set_output_runtime_token(device, token)
        return self.result


@dataclasses.dataclass
class Bound:
    """A program ready to run."""

    graph: Graph
    out_tree: Any
    executable: Any  # the client's; None: the devices are not a controller's

    def fast_path(self) -> Any:
        """The data with which jaxlib's dispatcher runs it without Python."""
        arguments = [node.types[0] for node in self.graph.nodes[:self.graph.arguments]]
        results = self.graph.result_types
        tree = self.out_tree
        if self.graph.done:
            tree = jax.tree.structure(_WithEffects(
                jax.tree.unflatten(tree, range(tree.num_leaves)), tuple(self.graph.done)))
        fields = {
            "xla_executable": self.executable,
            "out_pytree_def": tree,
            "in_shardings": [t.sharding for t in arguments],
            "out_shardings": [t.sharding for t in results],
            "out_avals": [
                jax.core.ShapedArray(t.aval.shape, t.aval.dtype, weak_type=t.weak)
                for t in results],
            "out_committed": [True] * len(results),
            "kept_var_bitvec": [True] * len(arguments),
            "in_device_local_layouts": [None] * len(arguments),
            "const_args": [],
        }
        kind = pxla.MeshExecutableFastpathData
        return kind(**{name: fields[name] for name in kind._fields})


def bind(graph: Graph, out_tree: Any, sequential: bool = False) -> Bound:
    """Sends the graph. Returns once its computations are compiled.

    Args:
      graph: the graph to run.
      out_tree: the pytree of a call's results.
      sequential: see `fairway.program`.

    Raises:
      ProgramError: a value cannot be part of a program.
      jax.errors.JaxRuntimeError: the controller refused it; the text names node and line.
    """
    client = graph.nodes[0].types[0].devices[0].client if graph.nodes else None
    if not is_ours(client):
        return Bound(graph, out_tree, None)
    devices = {device for node in graph.nodes for type_ in node.types for device in type_.devices}
    callbacks.refuse_held(devices)
    programs = _jax.ifrt_programs
    with progress.announced(graph.name, devices):
        executable = client.compile_ifrt_program(
            programs.make_plugin_program(_HEADER + encode(graph, sequential)),
            programs.make_plugin_compile_options())
    return Bound(graph, out_tree, executable)


def dispatcher(name: str, fun: Callable, find: Callable[[tuple, dict], Bound]) -> Callable:
    """Returns a function that runs the program that `find` returns, asked once per argument types.

    Under jax.disable_jit the function is `fun`.
    """
    missed = threading.local()

    def cache_miss(*args, **kwargs):
        missed.failed = True
        bound = find(args, kwargs)
        missed.failed = False
        if bound.executable is None:
            flat = jax.tree.leaves((args, kwargs))
            nodes = bound.graph.nodes
            placed = [jax.device_put(x, nodes[i].types[0].sharding) for i, x in enumerate(flat)]
            return jax.tree.unflatten(bound.out_tree, bound.graph.run(placed)), None, False
        # The dispatcher stores this, and the next call, which follows at once, runs it.
        missed.value = True
        return None, bound.fast_path(), False

    def new():
        # Not `fun` itself, which may not be hashable, as jaxlib requires.
        return _jax.pjit(name, lambda *args, **kwargs: fun(*args, **kwargs), cache_miss, [], [],
                         pxla.JitGlobalCppCacheKeys(), tree_util.dispatch_registry, _argument)

    fast = new()

    def call(*args, **kwargs):
        nonlocal fast
        missed.value = missed.failed = False
        try:
            result = fast(*args, **kwargs)
            if missed.value:
                missed.value = False
                result = fast(*args, **kwargs)
        except api_util.InternalFloatingPointError as error:  # jax.debug_nans or jax.debug_infs
            raise FloatingPointError(
                f"invalid value ({error.ty}) encountered in the program {name}; to find the "
                "operation, call the function that it was made of (its __wrapped__)") from None
        except ValueError:  # for example, a donated argument of a known type
            check_arguments(name, args, kwargs)
            raise
        finally:
            if missed.failed:  # otherwise jaxlib would miss each time, and cache nothing
                fast = new()
        if type(result) is _WithEffects:
            result = result.taken()
        if missed.value:
            raise RuntimeError(f"jaxlib's dispatcher does not run {name} for these arguments")
        return result

    return call


def check_arguments(name: str, args: tuple, kwargs: dict) -> None:
    """Refuses arguments of a program that hold no data; the error names the first.

    Raises:
      RuntimeError: an array was deleted or donated; JAX's own type and text.
      TypeError: an argument is not an array.
    """
    for path, x in tree_util.tree_leaves_with_path((args, kwargs)):
        which = ("args", "kwargs")[path[0].idx] + tree_util.keystr(path[1:])
        where = f"{which} of the program {name}"
        if isinstance(x, core.Tracer):
            continue
        if isinstance(x, jax.Array) and x.is_deleted():
            raise RuntimeError(
                f"Array has been deleted with shape={jax.typeof(x).str_short()}. It is {where}.")
        if not isinstance(x, (jax.Array, int, float, complex)) and not hasattr(x, "__array__"):
            raise TypeError(f"{where} is of type {type(x)}; expected an array or a number")


def _argument(x: Any, sharding: Any, _: Any) -> Any:
    """Moves an argument to its place, unless it is there."""
    if isinstance(x, jax.Array) and x.sharding == sharding:
        return x
    return jax.device_put(x, sharding)
