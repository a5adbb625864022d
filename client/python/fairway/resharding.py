# SPDX-License-Identifier: Apache-2.0
"""Moves arrays from one cut to another between executors, where JAX would fetch and upload.

JAX moves an array to another sharding of the same cut by one request (CopyArrays). For another cut
it takes the array apart, and most often fetches it and uploads it again. jaxlib's proxy client has
a request for this, ReshardArrays, which nothing in JAX sends. This module sends it for all arrays
of one call together, from `device_put`, and from `jit` for arguments that lie elsewhere. JAX keeps
its own way for:
- the same cut on other devices or in another memory, which copies and donates already;
- arrays with no place for some values (unreduced over an axis), or with a layout of their own;
- everything inside a trace.
jaxlib 0.8.2 refuses to send the request. There a program (fairway.program) moves arrays that lie on
one island to one island, and another program moves the shards where several islands are involved.

As on JAX's CPU backend, an array that is donated to another cut stays usable.
"""

from __future__ import annotations

import functools
from typing import Any

from fairway.devices import is_ours

# The most pairs of a read shard and a made one, of all arrays of one request: the controller takes
# as many pieces in one request. A pytree with more goes in several requests.
_PAIRS_PER_REQUEST = 1 << 20


def install(handlers: dict, array_type: type) -> None:
    """Wraps JAX's handler of arrays, and its function that reorders devices.

    Raises:
      ImportError, AttributeError: this jaxlib or JAX lacks these; then nothing is changed.
    """
    from jax._src import dispatch
    from jax._src.op_shardings import are_hlo_shardings_equal
    from jaxlib import version
    from jaxlib._pathways import _transfer_to_shardings as transfer

    reorder = dispatch._different_device_order_reshard
    equal = functools.lru_cache(4096)(functools.partial(_same_cut, are_hlo_shardings_equal))
    if version.__version_info__ < (0, 8, 3):  # it has the function, but refuses to send the request
        handlers[array_type] = _handler(handlers[array_type], _by_program, equal)
        dispatch._different_device_order_reshard = _reordered_apart(reorder, handlers, array_type)
        return
    handlers[array_type] = _handler(handlers[array_type], transfer, equal)
    dispatch._different_device_order_reshard = _reordered(reorder, transfer)


def _same_cut(equal: Any, source: Any, target: Any, rank: int) -> bool:
    """Whether JAX's own way is a single copy, or only JAX's own way can be used."""
    if any(getattr(getattr(s, "spec", None), "unreduced", None) for s in (source, target)):
        return True
    try:
        return source.num_devices == target.num_devices and equal(
            source._to_xla_hlo_sharding(rank), target._to_xla_hlo_sharding(rank))
    except NotImplementedError:  # the sharding is neither tiled nor replicated
        return True


def _on_one_island(sharding: Any) -> bool:
    return len({getattr(d, "slice_index", 0) for d in sharding.device_set}) == 1


def _ours(sharding: Any) -> bool:
    return is_ours(next(iter(sharding.device_set)).client)


def _is_moved(equal: Any, x: Any, sharding: Any, layout: Any) -> bool:
    source = x.sharding
    return (layout is None and _ours(source) and _ours(sharding) and
            not equal(source, sharding, x.ndim))


def _by_program(xs: list, shardings: list, donate: bool) -> list:
    """Replaces the request where jaxlib refuses to send it; donates nothing."""
    from jax._src.interpreters import pxla

    # JAX would bring an uncommitted array to the target first, which would end here again.
    placed = [x if x.committed else pxla.global_aval_to_result_handler(x.aval, x.sharding, True)(x)
              for x in xs]
    results: list = [None] * len(xs)
    whole = [i for i, x in enumerate(xs) if _on_one_island(x.sharding) and _on_one_island(shardings[i])]
    if whole:
        made = _program(tuple(shardings[i] for i in whole))(*(placed[i] for i in whole))
        for i, y in zip(whole, made, strict=True):
            results[i] = y
    for i in set(range(len(xs))).difference(whole):
        results[i] = _by_shards(placed[i], shardings[i])
    return results


@functools.lru_cache(256)
def _program(shardings: tuple) -> Any:
    """A program that moves each of its arguments, which have places, to one of these shardings."""
    import jax

    from fairway._program import program

    return program(lambda *xs: [jax.device_put(x, s) for x, s in zip(xs, shardings, strict=True)],
                   name="reshard")


def _by_shards(x: Any, sharding: Any) -> Any:
    """Moves an array whose shards are, or will be, on several islands."""
    import jax

    positions, move = _program_of_shards(x.shape, x.sharding, sharding)
    shards = x.addressable_shards
    made = move(*(shards[i].data for i in positions))
    return jax.make_array_from_single_device_arrays(x.shape, sharding, made)


@functools.lru_cache(256)
def _program_of_shards(shape: tuple, source: Any, target: Any) -> tuple:
    """Plans how to make the shards of one sharding from those of another.

    Returns:
      (the positions of the shards to read, a program that makes the target's shards from them).
    """
    import jax
    from jax import lax
    from jax.sharding import SingleDeviceSharding

    from fairway._program import program

    def tiles(sharding):
        """For each device, in order: the bounds of its tile in each dimension."""
        places = sharding.devices_indices_map(shape)
        return [(d, tuple(part.indices(n)[:2] for part, n in zip(places[d], shape, strict=True)))
                for d in sharding._addressable_device_assignment]

    def island(device):
        return getattr(device, "slice_index", 0)

    held: dict = {}  # bounds -> {island: position of a shard}
    for position, (device, tile) in enumerate(tiles(source)):
        held.setdefault(tile, {}).setdefault(island(device), position)
    wanted = tiles(target)
    recipes: dict = {}  # (island, bounds) -> the parts of that shard, by their origin
    for device, tile in wanted:
        if (island(device), tile) in recipes:
            continue
        recipes[island(device), tile] = parts = {}
        for other, places in held.items():
            both = [(max(a, c), min(b, d)) for (a, b), (c, d) in zip(tile, other, strict=True)]
            if all(low < high or n == 0 for (low, high), n in zip(both, shape, strict=True)):
                parts[tuple(low for low, _ in both)] = (
                    places.get(island(device), min(places.values())),
                    [low - c for (low, _), (c, _) in zip(both, other, strict=True)],
                    [high - c for (_, high), (c, _) in zip(both, other, strict=True)])
    # Shards are cut and joined in the devices' default memory, the only one that programs compute in.
    default = [SingleDeviceSharding(device) for device, _ in tiles(source)]
    positions = sorted({position for parts in recipes.values() for position, *_ in parts.values()})

    def joined(parts, dimension):
        """Joins parts that form a grid."""
        if len(parts) == 1:
            return next(iter(parts.values()))
        rows: dict = {}
        for begin in sorted(parts):
            rows.setdefault(begin[dimension], {})[begin] = parts[begin]
        rows = [joined(row, dimension + 1) for row in rows.values()]
        return rows[0] if len(rows) == 1 else lax.concatenate(rows, dimension)

    def move(*shards):
        shards = dict(zip(positions, shards, strict=True))
        first: dict = {}  # an island's own shard of these bounds, from which its other devices copy

        def cut(position, low, high):
            part = shards[position]
            if (low, high) == ([0] * part.ndim, list(part.shape)):
                return part
            return lax.slice(jax.device_put(part, default[position]), low, high)

        for device, tile in wanted:
            place, key = SingleDeviceSharding(device, memory_kind=target.memory_kind), (island(device), tile)
            if key not in first:
                parts = {begin: jax.device_put(cut(*part), SingleDeviceSharding(device))
                         for begin, part in recipes[key].items()}
                first[key] = joined(parts, 0)
            yield jax.device_put(first[key], place)

    return positions, program(lambda *shards: list(move(*shards)), name="reshard")


def _send(transfer: Any, xs: list, shardings: list, donate: bool = False) -> list:
    from jax._src.interpreters import pxla

    made: list = []
    begin, pairs = 0, 0
    for end, (x, sharding) in enumerate(zip(xs, shardings, strict=True)):
        more = x.sharding.num_devices * sharding.num_devices
        if pairs + more > _PAIRS_PER_REQUEST and end > begin:
            made += transfer(xs[begin:end], shardings[begin:end], donate)
            begin, pairs = end, 0
        pairs += more
    made += transfer(xs[begin:], shardings[begin:], donate)
    # jaxlib forgets that a type was weak.
    return [pxla.global_aval_to_result_handler(x.aval, sharding, True)(y) if x.weak_type else y
            for x, sharding, y in zip(xs, shardings, made, strict=True)]


def _handler(inner: Any, transfer: Any, equal: Any) -> Any:
    from jax._src import core

    def handler(xs, shardings, layouts, copy_semantics):
        moved = [i for i, (x, *to) in enumerate(zip(xs, shardings, layouts, strict=True))
                 if not x.is_deleted() and _is_moved(equal, x, *to)]
        if not moved or (transfer is _by_program and not core.trace_state_clean()):
            return inner(xs, shardings, layouts, copy_semantics)
        results: list[Any] = [None] * len(xs)
        stay = [i for i in range(len(xs)) if i not in set(moved)]
        if stay:
            columns = (xs, shardings, layouts, copy_semantics)
            for i, y in zip(stay, inner(*([c[i] for i in stay] for c in columns)), strict=True):
                results[i] = y
        made = _send(transfer, [xs[i] for i in moved], [shardings[i] for i in moved])
        for i, y in zip(moved, made, strict=True):
            results[i] = y
        return results

    return handler


def _reordered(inner: Any, transfer: Any) -> Any:
    """Handles the same devices in another order: JAX compiles a computation for that, but no jit
    may span several islands."""

    def reorder(x, sharding, copy, *rest):
        if not _ours(x.sharding) or x.is_deleted():
            return inner(x, sharding, copy, *rest)
        return _send(transfer, [x], [sharding], copy.name == "DONATE_INPUT")[0]

    return reorder


def _reordered_apart(inner: Any, handlers: dict, array_type: type) -> Any:
    """Moves an array over several islands like any other."""

    def reorder(x, sharding, copy, *rest):
        if not _ours(x.sharding) or x.is_deleted() or _on_one_island(sharding):
            return inner(x, sharding, copy, *rest)
        return handlers[array_type]([x], [sharding], [None], [copy])[0]

    return reorder
