# SPDX-License-Identifier: Apache-2.0
"""Traced programs: a function over several slices that runs as one message.

See docs/design/0043-traced-programs.md.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

import jax
from jax._src import api_util, config, core

from fairway import remote
from fairway.computation import Builder
from fairway.flatten import Flattener, ProgramError, Value, devices_of
from fairway.graph import Graph, GraphMaker, place

__all__ = ["Program", "ProgramError", "program"]


def program(fun: Callable | None = None, *, donate_argnums: Any = (), name: str | None = None,
            sequential: bool = False) -> Any:
    """Makes one program of a function that calls jitted functions on several slices.

    The first call for given types traces `fun`, as `jax.jit` would, compiles the part of each
    slice, and sends the whole graph to the controller; after that every call is one message.
    Inside, each jitted function with shardings (`fairway.on`, or `jax.jit` with in_shardings or
    out_shardings) runs on their devices; its inputs are brought there. `jax.device_put` moves a
    value. Everything else runs where its inputs are. `jax.grad` and the like may be used inside;
    Python loops, `jax.lax.fori_loop` and `jax.lax.scan` are unrolled where their bodies name
    several slices.

    Args:
      fun: takes and returns pytrees of arrays. May be left out, for use as a decorator.
      donate_argnums: the arguments, by number from 0, whose buffers the program may take over.
      name: for messages; None: the function's name.
      sequential: a run prepares each step only when its inputs have been computed, instead of all
        at once; slower, for comparison.

    Returns:
      A `Program`. It is called like `fun`, but not inside `jax.jit`, `jax.grad` or a program.

    Raises:
      ValueError: `fun` has no argument with a number in donate_argnums.
      TypeError: `fun` is not a function, or the name is not a string.
    """
    if name is not None and not isinstance(name, str):
        raise TypeError(f"fairway.program: name={name!r}; expected a string")
    if fun is None:
        return functools.partial(program, donate_argnums=donate_argnums, name=name,
                                 sequential=sequential)
    return Program(fun, donate_argnums, name, sequential)


class Program:
    """A function as a program; see `program`. Thread-safe."""

    def __init__(self, fun: Callable, donate_argnums: Any, name: str | None, sequential: bool):
        api_util.check_callable(fun)
        functools.update_wrapper(self, fun)
        self._fun = fun
        self._name = name or getattr(fun, "__name__", "program")
        self._donated = _donated(self._name, fun, donate_argnums)
        self._sequential = sequential
        self._builder = Builder()
        self._bound: dict = {}
        self._lock = threading.Lock()
        self._call = remote.dispatcher(self._name, fun, self._bind)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs it; under jax.disable_jit, runs the function itself.

        Raises:
          ProgramError: the function cannot be a program; the text names the line.
          TypeError: an argument is not an array.
          RuntimeError: an argument was deleted or donated.
          FloatingPointError: under jax.debug_nans or jax.debug_infs, as a jit does.
          jax.errors.JaxRuntimeError: as a jit does.
        """
        return self._call(*args, **kwargs)

    def trace(self, *args: Any, **kwargs: Any) -> Graph:
        """Returns the graph for arguments of these types; sends nothing."""
        return self._trace(args, kwargs)[0]

    def op_by_op(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the same graph node by node, each as a jit of its own: for comparison, and where the
        devices are not a controller's."""
        remote.check_arguments(self._name, args, kwargs)
        graph, out_tree = self._trace(args, kwargs)
        placed = [jax.device_put(x, graph.nodes[i].types[0].sharding)
                  for i, x in enumerate(jax.tree.leaves((args, kwargs)))]
        return jax.tree.unflatten(out_tree, graph.run(placed))

    def _bind(self, args: tuple, kwargs: dict) -> remote.Bound:
        """Returns the program for arguments of these types, bound on the controller."""
        flat, tree = jax.tree.flatten((args, kwargs))
        if not core.trace_state_clean():
            raise ProgramError(
                f"the program {self._name} is called while JAX traces, for jax.jit, jax.grad, "
                "jax.vmap or another program: call the function that it was made of there (its "
                "__wrapped__), or make the program of the whole, such as "
                "fairway.program(jax.grad(function))")
        remote.check_arguments(self._name, args, kwargs)
        key = (tree, tuple(_type_key(x) for x in flat), config.trace_context())
        with self._lock:
            if key not in self._bound:
                graph, out_tree = self._trace(args, kwargs)
                self._bound[key] = remote.bind(graph, out_tree, self._sequential)
            return self._bound[key]

    def _trace(self, args: tuple, kwargs: dict) -> tuple[Graph, Any]:
        flat, tree = jax.tree.flatten((args, kwargs))
        out: list = []

        @functools.wraps(self._fun, updated=())  # JAX's errors name `fun` and its arguments
        def body(*args, **kwargs):
            results, out_tree = jax.tree.flatten(self._fun(*args, **kwargs))
            out[:] = [out_tree]
            return results

        body.__name__ = self._name
        closed = jax.make_jaxpr(body)(*args, **kwargs)
        arguments = [Value(var.aval) for var in closed.jaxpr.invars]
        shardings = [_sharding(x) for x in flat]
        flattener = Flattener()
        results = flattener.run(closed, arguments)
        home = place(flattener.ops, arguments, results, shardings)
        maker = GraphMaker(self._builder, flattener.ops, results)
        flags = api_util.donation_vector(*self._donated, tree)
        donated = {i for i, flag in enumerate(flags) if flag}
        graph = maker.run(self._name, arguments, shardings, donated, home)
        return graph, out[0]


def _donated(name: str, fun: Callable, donate_argnums: Any) -> tuple:
    """Numbers and names of the donated arguments, checked as `jax.jit` checks them."""
    numbers, names, _, _ = api_util.resolve_argnums(
        fun, api_util.fun_signature(fun), donate_argnums, None, None, None)
    if any(i < 0 for i in numbers):  # a jit ignores these silently
        raise ValueError(f"donate_argnums={numbers} of the program {name}: count from 0")
    return numbers, names


def _sharding(x: Any) -> Any:
    """The sharding that was given for an argument, or None."""
    if isinstance(x, jax.Array) and getattr(x, "committed", True):
        return x.sharding if devices_of(x.sharding) is not None else None
    return None


def _type_key(x: Any) -> tuple:
    aval = jax.typeof(x)
    return aval, _sharding(x)
