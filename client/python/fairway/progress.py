# SPDX-License-Identifier: Apache-2.0
"""Writes a line about a compilation that takes long, where a user watches standard error."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Iterable, Iterator
from typing import Any

from fairway import notices
from fairway.devices import is_ours

SECONDS = 2.0
_MARK = "_fairway_progress"


def install() -> None:
    """Announces JAX's compilations. Idempotent. A JAX without this function stays as it is."""
    try:
        from jax._src import compiler

        inner = compiler.compile_or_get_cached
    except (ImportError, AttributeError):
        return
    if hasattr(inner, _MARK):
        return

    @functools.wraps(inner)
    def compile_or_get_cached(backend: Any, computation: Any, devices: Any, *rest: Any,
                              **keywords: Any) -> Any:
        if not is_ours(backend) or not _wanted():
            return inner(backend, computation, devices, *rest, **keywords)
        with announced(_name(computation), getattr(devices, "flat", devices)):
            return inner(backend, computation, devices, *rest, **keywords)

    setattr(compile_or_get_cached, _MARK, True)
    compiler.compile_or_get_cached = compile_or_get_cached


def _wanted() -> bool:
    return notices.seen() and not notices.quiet()


@contextlib.contextmanager
def announced(name: str, devices: Iterable[Any]) -> Iterator[None]:
    """Writes a line if the block takes longer than 2 s; once per name.

    Args:
      name: that of the computation being compiled.
      devices: those that it is compiled for.
    """
    if not _wanted():
        yield
        return
    timer = threading.Timer(SECONDS, _tell, (name, list(devices)))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _tell(name: str, devices: list[Any]) -> None:
    islands = sorted({getattr(device, "slice_index", 0) for device in devices})
    where = ", ".join(map(str, islands))
    notices.say(f"compile {name}", f"compiling {name} for island{'s' * (len(islands) > 1)} {where}, "
                f"{len(devices)} device{'s' * (len(devices) != 1)} (over {SECONDS:g} s so far)")


def _name(computation: Any) -> str:
    try:
        name = str(computation.operation.attributes["sym_name"]).strip('"')
    except (AttributeError, KeyError):
        return "a computation"
    return name.removeprefix("jit_")
