# SPDX-License-Identifier: Apache-2.0
"""Run unmodified JAX programs on the islands of a Fairway controller.

With the package installed, JAX knows a platform named "fairway":

  JAX_PLATFORMS=fairway,cpu FAIRWAY_CONTROLLER=host:port python train.py

`connect` does the same from code, `islands` tells which devices share an island, and `info` prints
what is connected. `program` turns a function over several slices into one message; `on` places a
function.
"""

from fairway.connection import ControllerError, connect
from fairway.devices import islands
from fairway.session_info import info
from fairway.placement import on

__all__ = ["ControllerError", "Program", "ProgramError", "connect", "info", "islands", "on",
           "program"]
__version__ = "0.1.0"


def __getattr__(name):
    # Modules that need all of JAX are loaded on demand: every process that has the package imports
    # this module.
    if name in ("Program", "ProgramError", "program"):
        from fairway import _program

        globals().update({n: getattr(_program, n) for n in _program.__all__})
        return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
