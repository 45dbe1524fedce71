"""Tiny models: their parameters, their loss, and some steps of training."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx


def filled(make):
    """The model that `make` makes, with parameters drawn here.

    Compiling a model's own initialisation takes seconds. Scales are around 1.
    """
    graph, state = nnx.split(nnx.eval_shape(make))
    rng = np.random.default_rng(3)

    def draw(path, leaf):
        centre = 1.0 if "scale" in jax.tree_util.keystr(path) else 0.0
        return jnp.asarray(rng.normal(centre, 0.2, leaf.shape), jnp.float32)

    params = jax.tree_util.tree_map_with_path(draw, nnx.to_pure_dict(state))
    return nnx.merge(graph, params)


def maker(model, config):
    """Makes the model with changes of its configuration, and parameters drawn here."""

    def make(model=model, **changes):
        changed = dataclasses.replace(config, **changes)
        return filled(lambda: model(changed, rngs=nnx.Rngs(0)))

    return make


@functools.cache
def first_params(model, config):
    # Compiled as one program: faster than one operation at a time.
    return jax.jit(lambda: nnx.to_pure_dict(nnx.state(model(config, rngs=nnx.Rngs(0)))))()


def initialised(model, config):
    """The model with its first parameters."""
    graph = nnx.graphdef(nnx.eval_shape(lambda: model(config, rngs=nnx.Rngs(0))))
    return nnx.merge(graph, first_params(model, config))


def loss_of(model, batch, key=None):
    return model.loss(batch, key, (), model.weights(batch))[0]


logits_of = jax.jit(lambda model, batch, key=None: model.logits(batch, key))
metrics_of = jax.jit(lambda model, batch: model.loss(batch, None, (), model.weights(batch)))
loss_and_grads = jax.jit(jax.value_and_grad(loss_of))


def trained(model, batch, *, steps, rate, key=None):
    """The losses and the metrics of some steps on one batch, with dropout if there is a key."""
    graph, state = nnx.split(model)
    adam = optax.adam(rate)

    @jax.jit
    def train(params):
        def step(carry, key):
            params, moments = carry

            def loss(params):
                model = nnx.merge(graph, params)
                return model.loss(batch, key, (), model.weights(batch))[:2]

            measured, grads = jax.value_and_grad(loss, has_aux=True)(params)
            updates, moments = adam.update(grads, moments)
            return (optax.apply_updates(params, updates), moments), measured

        keys = None if key is None else jax.random.split(key, steps)
        return jax.lax.scan(step, (params, adam.init(params)), keys, length=steps)[1]

    return train(nnx.to_pure_dict(state))
