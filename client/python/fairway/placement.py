# SPDX-License-Identifier: Apache-2.0
"""Gives functions a place: jits them over the devices of one slice."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np


@functools.cache
def _leave_out_of_tracebacks() -> None:
    """Lets JAX name the caller's line instead of this file's."""
    try:
        from jax._src import source_info_util

        source_info_util.register_exclusion(__file__)
    except (ImportError, AttributeError):
        pass


def on(where: Any, fun: Callable | None = None, *, in_specs: Any = None, out_specs: Any = None,
       static_argnums: Any = (), **jit_options: Any) -> Callable:
    """Places a function on devices: like `jax.jit` with shardings on them, except that its
    arguments are moved there first.

    May be called anywhere; inside a `fairway.program` a call becomes nodes of the program. May be
    used as a decorator: `@fairway.on(mesh)`.

    Args:
      where: a `jax.sharding.Mesh`, a device, or a sequence of devices (a mesh with one axis, "x").
        All must be of one island.
      fun: the function; it takes positional arguments.
      in_specs: `PartitionSpec`s over the axes of the mesh, a prefix of the tuple of arguments,
        without the static ones. None: every device has the whole of each argument.
      out_specs: the same for its results.
      static_argnums: as for `jax.jit`: numbers of the arguments that are not arrays and stay as
        they are.
      **jit_options: for `jax.jit`, such as `donate_argnums`.

    Returns:
      The placed function.

    Raises:
      TypeError: `where` or the specs are of another type; or static_argnames is among the options,
        although there are no arguments by name.
    """
    if "static_argnames" in jit_options:
        raise TypeError("fairway.on takes no static_argnames, as the placed function has positional "
                        "arguments only: use static_argnums")
    if fun is None:
        return functools.partial(on, where, in_specs=in_specs, out_specs=out_specs,
                                 static_argnums=static_argnums, **jit_options)
    import jax

    _leave_out_of_tracebacks()
    mesh = as_mesh(where)
    into, out = _shardings(mesh, "in_specs", in_specs), _shardings(mesh, "out_specs", out_specs)
    jitted = jax.jit(fun, in_shardings=into, out_shardings=out, static_argnums=static_argnums,
                     **jit_options)
    numbers = (static_argnums,) if isinstance(static_argnums, int) else tuple(static_argnums or ())

    @functools.wraps(fun)
    def placed(*args):
        static = {n + len(args) if n < 0 else n for n in numbers}
        moved = iter(jax.device_put(
            tuple(x for i, x in enumerate(args) if i not in static), into))
        return jitted(*(x if i in static else next(moved) for i, x in enumerate(args)))

    return placed


def as_mesh(where: Any) -> Any:
    """Turns `where` of `on` into a mesh."""
    import jax
    from jax.sharding import Mesh

    if isinstance(where, Mesh):
        return where
    devices = list(where) if isinstance(where, (Sequence, np.ndarray)) else [where]
    if not all(isinstance(device, jax.Device) for device in devices):
        raise TypeError("fairway.on: expected a jax.sharding.Mesh, a device, or a sequence of "
                        f"devices, got {where!r}")
    return Mesh(np.array(devices), ("x",))


def _shardings(mesh: Any, option: str, specs: Any) -> Any:
    import jax
    from jax.sharding import NamedSharding, PartitionSpec

    def leaf(spec):
        return spec is None or isinstance(spec, PartitionSpec)

    def named(spec):
        if not leaf(spec):
            raise TypeError(f"fairway.on: {option} has {spec!r}; expected PartitionSpecs over the "
                            f"axes {mesh.axis_names} of the mesh")
        return NamedSharding(mesh, PartitionSpec() if spec is None else spec)

    return jax.tree.map(named, specs, is_leaf=leaf)
