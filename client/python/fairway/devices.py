# SPDX-License-Identifier: Apache-2.0
"""Groups devices by island."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

# `runtime_type` of a controller's clients: the controller's own name, and jaxlib's name for it.
RUNTIMES = ("fairway", "proxy/fairway")


def is_ours(client: Any) -> bool:
    """Whether a jaxlib client is connected to a Fairway controller."""
    return getattr(client, "runtime_type", None) in RUNTIMES


def islands(devices: Sequence[Any] | None = None) -> list[list[Any]]:
    """Groups devices by the island they are on.

    Devices of one island have a fast private interconnect: a jit may span them. Between islands,
    arrays move by `jax.device_put`.

    Args:
      devices: JAX devices. None: `jax.devices()`, which connects JAX to its backends.

    Returns:
      One list of devices per island, in the order of their `slice_index`, which is 0, 1, 2, ... in
      a session that sees all islands; inside a list, the given order is kept. Devices without a
      `slice_index` (JAX's own CPU backend) count as one island, the first.

    Raises:
      RuntimeError: `devices` is None and JAX cannot create its backends.
    """
    if devices is None:
        import jax

        devices = jax.devices()
    groups: dict[int, list[Any]] = {}
    for device in devices:
        index = getattr(device, "slice_index", None)
        groups.setdefault(-1 if index is None else index, []).append(device)
    return [groups[index] for index in sorted(groups)]
