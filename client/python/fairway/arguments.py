# SPDX-License-Identifier: Apache-2.0
"""Converts values that jaxlib's proxy client cannot take into values that it can.

JAX looks up a handler by the type of every value that it moves to devices. This module wraps two of
these handlers:
- numpy arrays with negative strides (`x[::-1]`) or strides of zero (`np.broadcast_to`), which the
  client refuses, are made contiguous;
- arrays of one client that are to go to devices of another, such as from an island to
  `jax.devices("cpu")`, which the client also refuses, are fetched and put there; arrays that are
  unreduced over an axis go shard by shard.
Arrays that change their cut have a module of their own, resharding.py.

In a JAX without this registry nothing is changed; then both cases fail with jaxlib's own text.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fairway import resharding

_MARK = "_fairway_handler"


def install() -> None:
    """Installs all of it, once. Called when a process opens its first session."""
    try:
        from jax._src.array import ArrayImpl
        from jax._src.interpreters import pxla

        handlers = pxla.shard_arg_handlers
        if hasattr(handlers[ArrayImpl], _MARK):
            return
        try:
            resharding.install(handlers, ArrayImpl)
        except (ImportError, AttributeError):
            pass
        wanted = {kind: _contiguous for kind in handlers if _is_plain_array(kind)}
        for kind, make in {**wanted, ArrayImpl: _between_clients}.items():
            if not hasattr(handlers[kind], _MARK):
                handlers[kind] = make(handlers[kind], handlers)
                setattr(handlers[kind], _MARK, True)
    except (ImportError, AttributeError, KeyError, TypeError):
        pass


def _is_plain_array(kind: type) -> bool:
    """Whether it is numpy's own class, or JAX's subclass of it, which carries a weak type."""
    return issubclass(kind, np.ndarray) and not issubclass(kind, np.ma.MaskedArray)


def _contiguous(inner: Any, _: Any) -> Any:
    def handler(xs, *rest):
        # copy() keeps the class, and is C-contiguous.
        return inner([x.copy() if min(x.strides, default=1) <= 0 else x for x in xs], *rest)

    return handler


def _client(sharding: Any) -> Any:
    return next(iter(sharding.device_set)).client


def _is_unreduced_alike(source: Any, target: Any) -> bool:
    """Whether both have one cut, and are unreduced: such an array has no value to be fetched."""
    if not getattr(getattr(source, "spec", None), "unreduced", None) or not hasattr(target, "spec"):
        return False

    def cut(sharding):
        spec = sharding.spec
        axes = list(getattr(spec, "partitions", spec))
        while axes and axes[-1] is None:
            axes.pop()
        return axes, spec.unreduced, dict(sharding.mesh.shape)

    return cut(source) == cut(target)


def _shard_by_shard(x: Any, sharding: Any) -> Any:
    from jax._src.interpreters import pxla

    return pxla.batched_device_put(
        x.aval, sharding, [np.asarray(shard.data) for shard in x.addressable_shards],
        list(sharding._addressable_device_assignment))


def _between_clients(inner: Any, handlers: Any) -> Any:
    def handler(xs, shardings, layouts, copy_semantics):
        away = [
            i for i, (x, sharding) in enumerate(zip(xs, shardings, strict=True))
            if _client(x.sharding) is not _client(sharding)
        ]
        if not away:
            return inner(xs, shardings, layouts, copy_semantics)
        columns = [list(c) for c in (xs, shardings, layouts, copy_semantics)]
        stay = [i for i in range(len(xs)) if i not in set(away)]
        results: list[Any] = [None] * len(xs)
        for i in (apart := [i for i in away if _is_unreduced_alike(xs[i].sharding, shardings[i])]):
            results[i] = _shard_by_shard(xs[i], shardings[i])
        away = [i for i in away if i not in apart]
        for indices, handle in ((stay, inner), (away, handlers[np.ndarray])):
            chosen = [[column[i] for i in indices] for column in columns]
            if handle is not inner:
                chosen[0] = [np.asarray(x) for x in chosen[0]]
            if indices:
                for i, result in zip(indices, handle(*chosen), strict=True):
                    results[i] = result
        return results

    return handler
