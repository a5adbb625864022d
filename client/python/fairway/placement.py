# SPDX-License-Identifier: Apache-2.0
"""Functions that have their place: jitted, over the devices of one slice."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np


@functools.cache
def _leave_out_of_tracebacks() -> None:
    """What is placed here was written by the caller; JAX is to name its line."""
    try:
        from jax._src import source_info_util

        source_info_util.register_exclusion(__file__)
    except (ImportError, AttributeError):
        pass


def on(where: Any, fun: Callable | None = None, *, in_specs: Any = None, out_specs: Any = None,
       **jit_options: Any) -> Callable:
    """Places a function on devices: the same as `jax.jit` with shardings on them, and its arguments
    are moved there first.

    May be called anywhere; inside a `fairway.program` a call becomes nodes of the program. May be
    used as a decorator: `@fairway.on(mesh)`.

    Args:
      where: a `jax.sharding.Mesh`, a device, or a sequence of devices (a mesh with one axis, "x").
        Of one island.
      fun: the function, of positional arguments.
      in_specs: `PartitionSpec`s over the axes of the mesh, a prefix of the tuple of arguments.
        None: every device has the whole of each argument.
      out_specs: the same for what it returns.
      **jit_options: for `jax.jit`, such as `donate_argnums`.

    Returns:
      The placed function.
    """
    if fun is None:
        return functools.partial(on, where, in_specs=in_specs, out_specs=out_specs, **jit_options)
    import jax

    _leave_out_of_tracebacks()
    mesh = as_mesh(where)
    into, out = (_shardings(mesh, specs) for specs in (in_specs, out_specs))
    jitted = jax.jit(fun, in_shardings=into, out_shardings=out, **jit_options)

    @functools.wraps(fun)
    def placed(*args):
        return jitted(*jax.device_put(args, into))

    return placed


def as_mesh(where: Any) -> Any:
    """`where` of `on`, as a mesh."""
    from jax.sharding import Mesh

    if isinstance(where, Mesh):
        return where
    devices = list(where) if isinstance(where, (Sequence, np.ndarray)) else [where]
    return Mesh(np.array(devices), ("x",))


def _shardings(mesh: Any, specs: Any) -> Any:
    import jax
    from jax.sharding import NamedSharding, PartitionSpec

    def leaf(spec):
        return spec is None or isinstance(spec, PartitionSpec)

    def named(spec):
        return NamedSharding(mesh, PartitionSpec() if spec is None else spec)

    return jax.tree.map(named, specs, is_leaf=leaf)
