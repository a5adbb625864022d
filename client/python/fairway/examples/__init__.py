# SPDX-License-Identifier: Apache-2.0
"""The examples, to be run as modules: python -m fairway.examples.digits_pipeline

They are the scripts of the folder examples/, unchanged; most do not mention Fairway and use only JAX.
So that they need no environment variable, running one as a module calls `fairway.connect()`, unless
JAX_PLATFORMS says what JAX should use. Importing this package alone connects nothing.
"""

import os
import sys

import fairway


def _connect() -> None:
    if os.environ.get("JAX_PLATFORMS"):
        return
    try:
        address = fairway.connect()
    except fairway.ControllerError as error:
        sys.exit(f"fairway.examples: {error}")
    print(f"fairway.examples: on the cluster at {address} (set JAX_PLATFORMS to choose another "
          "backend)", file=sys.stderr, flush=True)


if any(word.removeprefix("-m").startswith("fairway.examples.") for word in sys.orig_argv):
    _connect()
# Some scripts import others of their folder by plain names.
sys.path[:0] = [path for path in __path__ if path not in sys.path]
