# SPDX-License-Identifier: Apache-2.0
"""Runs examples/digits_pipeline.py on machines that lack some packages which it imports.

It needs little of optax, scikit-learn and tqdm. Stand-ins with the same values replace the missing ones; with
--own, all of them. Exits with 3 if there are neither scikit-learn's images nor digits.csv.gz beside this
file."""

import importlib.util
import pathlib
import runpy
import sys
import types

HERE = pathlib.Path(__file__).resolve().parent
PIPELINE = HERE.parents[1] / "examples/digits_pipeline.py"


def images():
    """The file with the images, or None."""
    places = [HERE]
    if found := importlib.util.find_spec("sklearn"):
        places += [pathlib.Path(folder, "datasets/data") for folder in found.submodule_search_locations]
    return next((place / "digits.csv.gz" for place in places if (place / "digits.csv.gz").exists()), None)


def optax():
    import jax
    import jax.numpy as jnp

    def sgd(rate, momentum):
        def update(gradients, trace, _):
            trace = jax.tree.map(lambda g, t: g + momentum * t, gradients, trace)
            return jax.tree.map(lambda t: -rate * t, trace), trace

        return types.SimpleNamespace(init=lambda params: jax.tree.map(jnp.zeros_like, params), update=update)

    def cross_entropy(logits, labels):
        of_label = jnp.take_along_axis(logits, labels[:, None], -1)[:, 0]
        return jax.nn.logsumexp(logits, -1) - of_label

    module = types.ModuleType("optax")
    module.sgd, module.softmax_cross_entropy_with_integer_labels = sgd, cross_entropy
    module.apply_updates = lambda params, updates: jax.tree.map(lambda p, u: p + u, params, updates)
    return module


def scikit_learn():
    import numpy as np

    table = np.loadtxt(images(), delimiter=",")
    module = types.ModuleType("sklearn.datasets")
    module.load_digits = lambda: types.SimpleNamespace(data=table[:, :-1], target=table[:, -1].astype(int))
    return module


class Silent:
    """tqdm's loop without its bar."""

    def __init__(self, values, **_):
        self.values = values

    def __iter__(self):
        return iter(self.values)

    def set_postfix(self, **_):
        pass


def main():
    own = "--own" in sys.argv
    sys.argv = [str(PIPELINE), *(argument for argument in sys.argv[1:] if argument != "--own")]
    if images() is None:
        print("no images: neither scikit-learn nor digits.csv.gz is here", file=sys.stderr)
        sys.exit(3)
    if own or not importlib.util.find_spec("optax"):
        sys.modules["optax"] = optax()
    if own or not importlib.util.find_spec("sklearn"):
        sys.modules["sklearn"], sys.modules["sklearn.datasets"] = types.ModuleType("sklearn"), scikit_learn()
    if own or not importlib.util.find_spec("tqdm"):
        sys.modules["tqdm"] = types.ModuleType("tqdm")
        sys.modules["tqdm"].tqdm = Silent
    runpy.run_path(str(PIPELINE), run_name="__main__")


if __name__ == "__main__":
    main()
