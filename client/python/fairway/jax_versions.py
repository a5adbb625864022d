# SPDX-License-Identifier: Apache-2.0
"""Handles the differences between the releases of JAX that a process may have.

Newer releases write programs in forms that the plugins of the workers, which are older, cannot
read. Where JAX can write the older form with the same meaning, this makes it do so.
"""

from __future__ import annotations

from fairway import notices

OLDEST, NEWEST = "0.8.2", "0.12.0.1"  # the range of tested releases (tests/versions)


def prepare() -> None:
    """Sets the forms that JAX writes; tells once if JAX is newer than any tested. Idempotent."""
    import jax

    _write_older_forms(jax)
    if _numbers(jax.__version__) > _numbers(NEWEST):
        notices.say("jax", f"jax {jax.__version__} is newer than the newest that this package was "
                    f"tested with ({NEWEST}); if something fails that should not, try that one")


def _write_older_forms(jax) -> None:
    # From JAX 0.11 on, groups of devices are named by mesh axes: that is StableHLO 1.16, and
    # plugins for CPUs read 1.13. With this off, JAX writes the devices' numbers.
    if hasattr(jax.config, "jax_use_rgv3"):
        jax.config.update("jax_use_rgv3", False)


def _numbers(version: str) -> list[int]:
    """Makes "0.12.0.1" and "0.12.0.dev1+abc" comparable; a part that is no number counts as none."""
    numbers = []
    for part in version.split("."):
        if not part.isdigit():
            break
        numbers.append(int(part))
    return numbers
