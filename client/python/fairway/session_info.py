# SPDX-License-Identifier: Apache-2.0
"""Describes the session of this process, as text for people."""

from __future__ import annotations

import itertools
import os
import statistics
import time
from typing import Any

import numpy as np

from fairway import connection, terminal
from fairway.devices import is_ours, islands

_ROUND_TRIPS = 20
_ENVIRONMENT = (f"JAX_PLATFORMS={connection.PLATFORM},cpu {connection.ENVIRONMENT}=host:port in "
                "the environment")

_sizes = itertools.count(1_000_003)


def info() -> None:
    """Prints the islands, devices and versions of the session, and its round trip.

    It opens the session if JAX has not done so yet. If there is none, it prints one line: why, and
    how to connect. Like `jax.print_environment_info` it returns nothing.

    The round trip is the median time of 20 requests that the controller answers by itself, without
    a device: queries of an array's layout.
    """
    print(_text(), flush=True)


def _text() -> str:
    client, why = _client()
    if client is None:
        return f"fairway: not connected: {why}"
    devices = client.devices()
    lines = [f"controller   {_where()}{_round_trip(client, devices[0])}"]
    lines += [_island(number, group) for number, group in enumerate(islands(devices))]
    lines.append(f"versions     {_versions(client, devices[0])}")
    return "\n".join(lines)


def _client() -> tuple[Any, str]:
    """Returns the proxy client of this process, and otherwise why there is none."""
    import jax
    from jax._src import xla_bridge

    named = (jax.config.jax_platforms or "").split(",")
    if not {connection.PLATFORM, "proxy"} & set(named) and not xla_bridge.backends_are_initialized():
        return None, f"call fairway.connect('host:port') first, or set {_ENVIRONMENT}"
    try:
        for client in xla_bridge.backends().values():
            if is_ours(client):
                return client, ""
    except (RuntimeError, connection.ControllerError) as error:
        return None, " ".join(str(error).split())
    return None, (f"JAX uses {', '.join(sorted(xla_bridge.backends()))} in this process; start it "
                  f"with {_ENVIRONMENT}")


def _where() -> str:
    return terminal.latest() or os.environ.get("JAX_BACKEND_TARGET", "?")


def _round_trip(client: Any, device: Any) -> str:
    """Returns ", round trip 0.31 ms", or why it cannot be measured."""
    try:
        seconds = []
        for _ in range(_ROUND_TRIPS):
            shape = (next(_sizes),)  # jaxlib asks only once for each shape
            start = time.perf_counter()
            client.get_default_layout(np.dtype(np.float32), shape, device)
            seconds.append(time.perf_counter() - start)
    except RuntimeError as error:
        return f", no answer: {' '.join(str(error).split())}"
    return f", round trip {statistics.median(seconds) * 1e3:.2f} ms"


def _island(number: int, devices: list[Any]) -> str:
    memory = sorted({getattr(device, "memory_bytes", None) or 0 for device in devices})
    size = f" with {_bytes(memory[0])} each" if len(memory) == 1 and memory[0] else ""
    kind = " and ".join(sorted({device.device_kind for device in devices}))
    name = getattr(devices[0], "island", "")
    return (f"island {number:<5} {len(devices)} x {kind}{size}"
            f"{f' ({name})' if name else ''}: devices {_numbers([d.id for d in devices])}")


def _numbers(ids: list[int]) -> str:
    whole = len(ids) > 2 and ids == list(range(ids[0], ids[0] + len(ids)))
    return f"{ids[0]}..{ids[-1]}" if whole else ", ".join(map(str, ids))


def _bytes(count: int) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            break
        count /= 1024
    else:
        unit = "TiB"
    return f"{count:.4g} {unit}"


def _versions(client: Any, device: Any) -> str:
    import jax
    import jaxlib

    found = [f"fairway {connection.package_version() or '?'}", f"jax {jax.__version__}", f"jaxlib {jaxlib.__version__}"]
    controller = getattr(device, "controller_version", None)
    if controller:
        found.append(f"controller {controller}")
    found.append(f"runtime {client.platform_version.removeprefix('fairway; ')}")
    return ", ".join(found)
