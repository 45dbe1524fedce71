"""One training step: a model, an optimizer and a layout, compiled."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from t5x_like.partitioning import (
    Layout,
    check_batch,
    constrain,
    map_parameters,
    optimizer_shardings,
)
from t5x_like.training.optimizers import layerwise

if TYPE_CHECKING:
    from t5x_like.protocols import Batch, Carry, Metrics, Model

_INITIALISATION = np.uint32(2**32 - 1)
"""Folded into the run's key for the parameters: no step has this number."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class TrainState:
    """Everything a step changes. `params` and `ema` are plain dicts; `ema` is None when off."""

    step: jax.Array
    params: Any
    opt_state: Any
    carry: Carry
    ema: Any = None

    @property
    def evaluated(self) -> Any:
        """The parameters to evaluate and to infer with: the averaged ones where there are any."""
        return self.params if self.ema is None else self.ema


@dataclasses.dataclass(frozen=True)
class Program:
    """What `build` makes. Batches are {name: [batch_size, ...]}; metrics {name: (sum, weight)}.

    `step` donates the state it is given. `evaluate` runs without dropout, from a fresh carry.
    """

    init: Callable[[jax.Array], TrainState]
    step: Callable[[TrainState, Batch, jax.Array], tuple[TrainState, Metrics]]
    evaluate: Callable[[Any, Batch], Metrics]
    abstract_state: TrainState
    graphdef: Any
    parameter_count: int


def build(
    make_model: Callable[..., Model],
    optimizer: optax.GradientTransformation,
    layout: Layout,
    *,
    batch_size: int,
    microbatches: int = 1,
    clip: float | None = None,
    ema_decay: float | None = None,
) -> Program:
    """Compiles lazily; allocates nothing until `init` is called.

    Args:
      make_model: called with `rngs=`; makes an NNX module that holds parameters and nothing else.
      optimizer: runs on each layer of stacked parameters by itself; an `Optimizer` has its
        learning rate logged.
      layout: mesh and rules.
      batch_size: rows of the global batch.
      microbatches: gradients are summed over this many parts of the batch.
      clip: largest norm of the gradient over all parameters.
      ema_decay: decay of an average of the parameters.

    Raises:
      ValueError: the batch does not split over mesh and microbatches; the model holds more than
        parameters, or parameters without axes.
    """
    check_batch(layout, batch_size, microbatches=microbatches)
    if not jax.config.jax_threefry_partitionable:
        raise ValueError(
            "jax_threefry_partitionable is off: dropout would depend on the mesh. "
            "Remove it from the environment or the flags."
        )
    model = nnx.eval_shape(lambda: make_model(rngs=nnx.Rngs(0)))
    graphdef, abstract = _split_model(model)
    stacked = map_parameters(lambda axes, shape: len(shape) - len(axes), abstract)
    tx = layerwise(optimizer, stacked)
    rate = getattr(optimizer, "learning_rate", None)

    def init(key: jax.Array) -> TrainState:
        rngs = nnx.Rngs(jax.random.fold_in(key, _INITIALISATION))
        params = nnx.to_pure_dict(_split_model(make_model(rngs=rngs))[1])
        return TrainState(
            step=jnp.zeros((), jnp.int32),
            params=params,
            opt_state=tx.init(params),
            carry=model.initial_carry(batch_size),
            ema=None if ema_decay is None else jax.tree.map(jnp.copy, params),
        )

    def step(state: TrainState, batch: Batch, key: jax.Array) -> tuple[TrainState, Metrics]:
        key = jax.random.fold_in(key, state.step)
        grads, metrics, carry = _gradients(
            graphdef, state, batch=batch, key=key, microbatches=microbatches
        )
        norm = optax.tree.norm(grads)
        if clip is not None:  # not in the optimizer, which sees one layer at a time
            grads = jax.tree.map(lambda g: g * jnp.minimum(1.0, clip / norm), grads)
        updates, opt_state = tx.update(grads, state.opt_state, state.params)
        params = optax.apply_updates(state.params, updates)
        ema = state.ema
        if ema_decay is not None:
            ema = jax.tree.map(lambda a, p: a * ema_decay + p * (1 - ema_decay), ema, params)
        one = jnp.float32(1)
        metrics = {
            **metrics,
            "grad_norm": (norm, one),
            "param_norm": (optax.tree.norm(params), one),
        }
        if rate is not None:
            metrics["learning_rate"] = (rate(state.step), one)
        return TrainState(state.step + 1, params, opt_state, carry, ema), metrics

    def evaluate(params: Any, batch: Batch) -> Metrics:
        model = nnx.merge(graphdef, params)
        carry = model.initial_carry(batch_size)
        return model.loss(batch, None, carry, model.weights(batch))[1]

    abstract_state = _abstract_state(init, layout, abstract=abstract, stacked=stacked)
    shardings = jax.tree.map(lambda leaf: leaf.sharding, abstract_state)
    return Program(
        init=_inside(layout, jax.jit(init, out_shardings=shardings)),
        step=_inside(
            layout,
            jax.jit(
                step,
                donate_argnums=0,
                keep_unused=True,
                out_shardings=(shardings, layout.replicated),
            ),
        ),
        evaluate=_inside(layout, jax.jit(evaluate, out_shardings=layout.replicated)),
        abstract_state=abstract_state,
        graphdef=graphdef,
        parameter_count=sum(leaf.size for leaf in jax.tree.leaves(abstract_state.params)),
    )


def _split_model(model: nnx.Module) -> tuple[Any, nnx.State]:
    graphdef, params, rest = nnx.split(model, nnx.Param, ...)
    if jax.tree.leaves(rest):
        raise ValueError(f"A model may hold parameters only; it also holds {rest}.")
    return graphdef, params


def _gradients(
    graphdef: Any, state: TrainState, *, batch: Batch, key: jax.Array, microbatches: int
) -> tuple[Any, Metrics, Carry]:
    """Gradients, metrics and the next carry of the whole batch, summed over microbatches.

    The denominators of all loss terms come from the whole batch, so that parts simply add up.
    """
    weights = nnx.merge(graphdef, state.params).weights(batch)

    def loss(params: Any, batch: Batch, carry: Carry, key: jax.Array) -> tuple[jax.Array, Any]:
        scalar, metrics, carry = nnx.merge(graphdef, params).loss(batch, key, carry, weights)
        return scalar, (metrics, carry)

    def part(batch: Batch, carry: Carry, key: jax.Array) -> tuple[tuple[Any, Metrics], Carry]:
        grads, (metrics, carry) = jax.grad(loss, has_aux=True)(state.params, batch, carry, key)
        return (grads, metrics), carry

    if microbatches == 1:
        (grads, metrics), carry = part(batch, state.carry, key)
        return grads, metrics, carry

    def accumulate(total: Any, xs: tuple) -> tuple[Any, Carry]:
        result, carry = part(*xs)
        return jax.tree.map(jnp.add, total, result), carry

    split = functools.partial(_to_microbatches, microbatches=microbatches)
    xs = (
        jax.tree.map(split, dict(batch)),
        jax.tree.map(split, state.carry),
        jax.random.split(key, microbatches),
    )
    first = jax.tree.map(lambda x: x[0], xs)
    zeros = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), jax.eval_shape(part, *first)[0])
    (grads, metrics), carry = jax.lax.scan(accumulate, zeros, xs)
    return grads, metrics, jax.tree.map(_from_microbatches, carry)


def _to_microbatches(x: jax.Array, *, microbatches: int) -> jax.Array:
    """[B, ...] -> [M, B / M, ...], interleaved so that every device keeps its own rows."""
    x = x.reshape(x.shape[0] // microbatches, microbatches, *x.shape[1:]).swapaxes(0, 1)
    return constrain(x, None, "batch", *[None] * (x.ndim - 2))


def _from_microbatches(x: jax.Array) -> jax.Array:
    """The inverse of `_to_microbatches`: row b of the batch is again row b."""
    x = x.swapaxes(0, 1)
    x = x.reshape(x.shape[0] * x.shape[1], *x.shape[2:])
    return constrain(x, "batch", *[None] * (x.ndim - 1))


def _abstract_state(
    init: Callable[[jax.Array], TrainState], layout: Layout, *, abstract: nnx.State, stacked: Any
) -> TrainState:
    """Shapes, dtypes and shardings of the state."""
    shapes = jax.eval_shape(init, jax.random.key(0))
    shardings = map_parameters(layout.sharding, abstract)
    states = TrainState(
        step=layout.replicated,
        params=shardings,
        opt_state=optimizer_shardings(
            layout, shapes.opt_state, params=shapes.params, shardings=shardings, stacked=stacked
        ),
        carry=jax.tree.map(lambda leaf: layout.rows(leaf.shape), shapes.carry),
        ema=None if shapes.ema is None else shardings,
    )
    return jax.tree.map(
        lambda leaf, s: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=s), shapes, states
    )


def _inside(layout: Layout, fn: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(fn)
    def wrapped(*args: Any) -> Any:
        with layout.active():
            return fn(*args)

    return wrapped
