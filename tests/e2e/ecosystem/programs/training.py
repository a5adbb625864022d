# SPDX-License-Identifier: Apache-2.0
"""Training steps of Flax (nnx and linen), Optax and Equinox; jax.checkpoint."""

import functools

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from flax.training import train_state
from jax.sharding import PartitionSpec as P

import fairway
from fairway.devices import is_ours
from cases import case, islands, main, replicated, rows, split

images, labels = rows(32, 16), np.arange(32, dtype=np.int32) % 10


class Net(nnx.Module):
    def __init__(self, rngs):
        self.one = nnx.Linear(16, 32, rngs=rngs)
        self.norm = nnx.BatchNorm(32, rngs=rngs)
        self.drop = nnx.Dropout(0.1, rngs=rngs)
        self.two = nnx.Linear(32, 10, rngs=rngs)

    def __call__(self, x):
        return self.two(self.drop(nnx.relu(self.norm(self.one(x)))))


@nnx.jit
def nnx_step(model, optimizer, x, y):
    def loss_of(model):
        return optax.softmax_cross_entropy_with_integer_labels(model(x), y).mean()

    loss, grads = nnx.value_and_grad(loss_of)(model)
    optimizer.update(model, grads)
    return loss


@case
def nnx_training_on_each_island():
    results = []
    for devices in islands():
        with jax.default_device(devices[0]):
            model = Net(nnx.Rngs(0))
            optimizer = nnx.Optimizer(model, optax.sgd(1e-1, momentum=0.9), wrt=nnx.Param)
            for pair in (model, optimizer):
                nnx.update(pair, jax.device_put(nnx.state(pair), replicated(devices)))
            x, y = jax.device_put((images, labels), split(devices))
            losses = [nnx_step(model, optimizer, x, y) for _ in range(5)]
        kernel = model.one.kernel[...]
        assert kernel.sharding.device_set == set(devices)
        assert float(losses[-1]) < float(losses[0])
        results.append((losses, kernel, model.norm.mean[...]))
    return results


@case
def nnx_parameters_made_sharded():
    (devices, _) = islands()
    mesh = jax.sharding.Mesh(np.array(devices).reshape(2, 2), ("data", "model"))

    class Sharded(nnx.Module):
        def __init__(self, rngs):
            init = nnx.initializers.lecun_normal()
            self.kernel = nnx.Param(init(rngs.params(), (16, 8)), sharding_names=(None, "model"))

        def __call__(self, x):
            return x @ self.kernel[...]

    @nnx.jit
    def make():
        model = Sharded(nnx.Rngs(0))
        state = nnx.state(model)
        specs = nnx.get_partition_spec(state)
        nnx.update(model, jax.lax.with_sharding_constraint(
            state, jax.tree.map(lambda s: jax.NamedSharding(mesh, s), specs)))
        return model

    with jax.set_mesh(mesh):
        model = make()
    kernel = model.kernel[...]
    assert kernel.sharding.spec == P(None, "model"), kernel.sharding
    return kernel, nnx.jit(lambda m, x: m(x))(model, images)


@case
def nnx_scanned_layers():
    (devices, _) = islands()

    with jax.default_device(devices[1]):
        @nnx.split_rngs(splits=4)
        @nnx.vmap(in_axes=(0,), out_axes=0)
        def make(rngs):
            return nnx.Linear(16, 16, rngs=rngs)

        layers = make(nnx.Rngs(0))

        @nnx.jit
        @nnx.scan(in_axes=(0, nnx.Carry), out_axes=nnx.Carry)
        def forward(layer, x):
            return jnp.tanh(layer(x))

        return forward(layers, jnp.asarray(images))


class LinenNet(nn.Module):
    @nn.compact
    def __call__(self, x, train):
        x = nn.Conv(4, (3, 3))(x.reshape(-1, 4, 4, 1))
        x = nn.BatchNorm(use_running_average=not train)(x)
        x = nn.relu(x).reshape(x.shape[0], -1)
        x = nn.MultiHeadDotProductAttention(num_heads=2)(x[:, None, :])[:, 0]
        return nn.Dense(10)(nn.Dropout(0.1, deterministic=not train)(x))


class State(train_state.TrainState):
    batch_stats: dict


@case
def linen_training():
    (devices, _) = islands()
    model = LinenNet()

    def init(key):
        variables = model.init(key, jnp.ones((1, 16)), train=False)
        return State.create(
            apply_fn=model.apply, params=variables["params"],
            batch_stats=variables["batch_stats"], tx=optax.sgd(0.1, momentum=0.9))

    @jax.jit
    def step(state, x, y, key):
        def loss_of(params):
            logits, new = state.apply_fn(
                {"params": params, "batch_stats": state.batch_stats}, x, train=True,
                mutable=["batch_stats"], rngs={"dropout": key})
            return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean(), new

        (loss, new), grads = jax.value_and_grad(loss_of, has_aux=True)(state.params)
        return state.apply_gradients(grads=grads, batch_stats=new["batch_stats"]), loss

    state = jax.jit(init, out_shardings=replicated(devices))(jax.random.key(0))
    x, y = jax.device_put((images, labels), split(devices))
    losses = []
    for i in range(4):
        state, loss = step(state, x, y, jax.random.key(i))
        losses.append(loss)
    return losses, state.params


@case
def optax_optimizers():
    (devices, _) = islands()
    results = {}
    schedule = optax.warmup_cosine_decay_schedule(0.0, 1e-2, 2, 10)
    for name, optimizer in {
        "adamw": optax.chain(
            optax.clip_by_global_norm(1.0), optax.adamw(schedule, weight_decay=1e-2)),
        "accumulated": optax.MultiSteps(optax.sgd(1e-1), every_k_schedule=2),
        "masked": optax.masked(optax.rmsprop(1e-2), {"w": True, "b": False}),
    }.items():
        params = {"w": jnp.asarray(rows(16, 10) / 4), "b": jnp.zeros(10)}
        params = jax.device_put(params, replicated(devices))
        state = jax.jit(optimizer.init)(params)

        @jax.jit
        def step(params, state, x, y):
            def loss_of(p):
                logits = x @ p["w"] + p["b"]
                return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()

            loss, grads = jax.value_and_grad(loss_of)(params)
            updates, state = optimizer.update(grads, state, params)
            return optax.apply_updates(params, updates), state, loss

        x, y = jax.device_put((images, labels), split(devices))
        for _ in range(4):
            params, state, loss = step(params, state, x, y)
        results[name] = (loss, params)
    return results


@case
def equinox_training():
    (_, devices) = islands()
    key = jax.random.key(0)
    model = eqx.nn.MLP(16, 10, 32, 2, key=key)
    optimizer = optax.adam(1e-2)
    state = optimizer.init(eqx.filter(model, eqx.is_inexact_array))

    @eqx.filter_jit(donate="all-except-first")
    def step(data, model, state):
        x, y = data

        @eqx.filter_value_and_grad
        def loss_of(model):
            logits = jax.vmap(model)(x)
            return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()

        loss, grads = loss_of(model)
        updates, state = optimizer.update(grads, state, eqx.filter(model, eqx.is_inexact_array))
        return eqx.apply_updates(model, updates), state, loss

    data = eqx.filter_shard((jnp.asarray(images), jnp.asarray(labels)), split(devices))
    model, state = eqx.filter_shard((model, state), replicated(devices))
    losses = []
    for _ in range(4):
        model, state, loss = step(data, model, state)
        losses.append(loss)
    return losses, eqx.filter(model, eqx.is_array)


@case
def equinox_errors():
    """error_if calls Python, which knows the message; filter_jit makes it Equinox's own error."""
    (_, devices) = islands()
    results = []
    for place in (devices[0], split(devices)):
        @eqx.filter_jit
        def root(x):
            return jnp.sqrt(eqx.error_if(x, x < 0, "must not be negative"))

        results.append(root(jax.device_put(jnp.arange(8.0), place)))
        if place is not devices[0] and not is_ours(devices[0].client):
            continue  # JAX's own CPU backend ends the process when one of several devices fails
        try:
            jax.block_until_ready(root(jax.device_put(jnp.arange(8.0) - 1, place)))
        except eqx.EquinoxRuntimeError as error:
            assert "must not be negative" in str(error), error
        else:
            raise AssertionError("it did not fail")
    checked = lambda x: jnp.sqrt(eqx.error_if(x, x < 0, "must not be negative"))
    for many in (jax.vmap(checked), jax.grad(lambda x: jax.vmap(checked)(x).sum()),
                 lambda x: jax.lax.scan(lambda c, e: (c + checked(e), c), 0.0, x)[0]):
        many = eqx.filter_jit(many)
        x = jax.device_put(jnp.arange(8.0) + 1, devices[0])
        results.append(many(x))
        try:
            jax.block_until_ready(many(x - 2))
        except eqx.EquinoxRuntimeError as error:
            assert "must not be negative" in str(error), error
        else:
            raise AssertionError("it did not fail")
    return results


@case
def equinox_errors_in_programs():
    """The same inside a fairway.program, and in its gradient."""
    left, right = islands()
    root = fairway.on(left[0], lambda x: jnp.sqrt(eqx.error_if(x, x.min() < 0, "must not be negative")))
    add = fairway.on(right[0], jnp.sum)
    results = []
    for function in (lambda x: add(root(x)), jax.value_and_grad(lambda x: add(root(x)))):
        program = fairway.program(function)
        results.append(program(jnp.arange(4.0) + 1))
        try:
            jax.block_until_ready(program(jnp.arange(4.0) - 1))
        except (jax.errors.JaxRuntimeError, ValueError) as error:  # JAX's own backend raises either
            assert "must not be negative" in str(error), error
        else:
            raise AssertionError("it did not fail")
    return results


@case
def rematerialized_gradients():
    (devices, _) = islands()
    weights = jax.device_put(jnp.stack([jnp.asarray(rows(16, 16, i)) / 4 for i in range(6)]),
                             replicated(devices))
    x = jax.device_put(images, split(devices))

    def loss_of(weights, policy):
        @functools.partial(jax.checkpoint, policy=policy)
        def layer(x, w):
            return jnp.tanh(x @ w), None

        return (jax.lax.scan(layer, x, weights)[0] ** 2).mean()

    policies = jax.checkpoint_policies
    plain = jax.jit(jax.grad(
        lambda w: (jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, w)[0] ** 2).mean()))(weights)
    results = []
    for policy in (None, policies.dots_saveable):
        grads = jax.jit(jax.grad(lambda w: loss_of(w, policy)))(weights)
        np.testing.assert_allclose(grads, plain, rtol=1e-4, atol=1e-7)
        results.append(grads)
    return results


if __name__ == "__main__":
    main()
