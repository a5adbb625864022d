# SPDX-License-Identifier: Apache-2.0
"""The module that JAX finds by the entry point group "jax_plugins"; see pyproject.toml."""

from __future__ import annotations

from fairway import connection


def initialize() -> None:
    """Registers the platform "fairway" with JAX, and "proxy" unless another package did.

    JAX calls this in every process where the package is installed, so it connects nothing. A
    process that names neither platform keeps its own default: the priority is below the CPU's, and
    JAX skips a factory that fails. Calling it again changes nothing. Where another package has
    registered "proxy" (pathwaysutils.initialize()) and the process names it, this only prepares the
    process for jaxlib's client.
    """
    import jax
    from jax._src import xla_bridge
    from jax.extend.backend import register_backend_factory

    for name, factory in (
        (connection.PLATFORM, connection.client_of_environment),
        ("proxy", connection.client_of_backend_target),
    ):
        if not _registered(xla_bridge, name):
            register_backend_factory(name, factory, priority=-1, fail_quietly=True)
        elif name in (jax.config.jax_platforms or "").split(","):
            connection.prepare_process()


def _registered(xla_bridge, name: str) -> bool:
    return name in getattr(xla_bridge, "_backend_factories", {})
