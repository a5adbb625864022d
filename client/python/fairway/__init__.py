# SPDX-License-Identifier: Apache-2.0
"""Run unmodified JAX programs on the islands of a Fairway controller.

With the package installed, JAX knows a platform named "fairway":

  JAX_PLATFORMS=fairway,cpu FAIRWAY_CONTROLLER=host:port python train.py

`connect` does the same from code, `islands` says which devices share an island,
`info` prints what is connected. `program` makes one
message of what a function does on several slices; `on` places a function.
"""

from fairway.connection import ControllerError, connect
from fairway.devices import islands
from fairway.session_info import info
from fairway.placement import on

__all__ = ["ControllerError", "Program", "ProgramError", "connect", "info", "islands", "on",
           "program"]
__version__ = "0.1.0"


def __getattr__(name):
    # What needs all of JAX is read when it is asked for: every process that has the package
    # imports this module.
    if name in ("Program", "ProgramError", "program"):
        from fairway import _program

        globals().update({n: getattr(_program, n) for n in _program.__all__})
        return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
