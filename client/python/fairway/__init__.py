# SPDX-License-Identifier: Apache-2.0
"""Run unmodified JAX programs on the islands of a Fairway controller.

With the package installed, JAX knows a platform named "fairway":

  JAX_PLATFORMS=fairway,cpu FAIRWAY_CONTROLLER=host:port python train.py

`connect` does the same from code, `islands` says which devices share an island.
"""

from fairway.connection import ControllerError, connect
from fairway.devices import islands

__all__ = ["ControllerError", "connect", "islands"]
__version__ = "0.1.0"
