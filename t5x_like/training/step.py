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
    map_parameters,
    optimizer_shardings,
)
from t5x_like.training.gradients import gradients
from t5x_like.training.optimizers import layerwise
from t5x_like.training.schedules import Schedule

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
    _check_random_numbers()
    model = nnx.eval_shape(lambda: make_model(rngs=nnx.Rngs(0)))
    graphdef, abstract = _split_model(model)
    stacked = map_parameters(lambda axes, shape: len(shape) - len(axes), abstract)
    parts = _Parts(
        make_model=make_model,
        graphdef=graphdef,
        initial_carry=lambda: model.initial_carry(batch_size),
        tx=layerwise(optimizer, stacked),
        learning_rate=getattr(optimizer, "learning_rate", None),
        microbatches=microbatches,
        clip=clip,
        ema_decay=ema_decay,
    )
    abstract_state = _abstract_state(parts.init, layout, abstract=abstract, stacked=stacked)
    shardings = jax.tree.map(lambda leaf: leaf.sharding, abstract_state)
    # Adafactor's placeholders go unused: kept, so that the whole old state is given up.
    step = jax.jit(
        parts.step,
        donate_argnums=0,
        keep_unused=True,
        out_shardings=(shardings, layout.replicated),
    )
    return Program(
        init=_inside(layout, jax.jit(parts.init, out_shardings=shardings)),
        step=_inside(layout, step),
        evaluate=_inside(layout, jax.jit(parts.evaluate, out_shardings=layout.replicated)),
        abstract_state=abstract_state,
        graphdef=graphdef,
        parameter_count=sum(leaf.size for leaf in jax.tree.leaves(abstract_state.params)),
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Parts:
    """What `build` was given, and the functions that it compiles."""

    make_model: Callable[..., Any]
    graphdef: Any
    initial_carry: Callable[[], Carry]
    tx: optax.GradientTransformation
    learning_rate: Schedule | None
    microbatches: int
    clip: float | None
    ema_decay: float | None

    def init(self, key: jax.Array) -> TrainState:
        rngs = nnx.Rngs(jax.random.fold_in(key, _INITIALISATION))
        params = nnx.to_pure_dict(_split_model(self.make_model(rngs=rngs))[1])
        return TrainState(
            step=jnp.zeros((), jnp.int32),
            params=params,
            opt_state=self.tx.init(params),
            carry=self.initial_carry(),
            ema=None if self.ema_decay is None else jax.tree.map(jnp.copy, params),
        )

    def step(self, state: TrainState, batch: Batch, key: jax.Array) -> tuple[TrainState, Metrics]:
        grads, metrics, carry = gradients(
            self.graphdef,
            state.params,
            batch=batch,
            key=jax.random.fold_in(key, state.step),
            carry=state.carry,
            microbatches=self.microbatches,
        )
        norm = optax.tree.norm(grads)
        if self.clip is not None:  # not in the optimizer, which sees one layer at a time
            shrink = jnp.minimum(1.0, self.clip / norm)
            grads = jax.tree.map(lambda g: g * shrink, grads)
        updates, opt_state = self.tx.update(grads, state.opt_state, state.params)
        params = optax.apply_updates(state.params, updates)
        one = jnp.float32(1)
        metrics = metrics | {
            "grad_norm": (norm, one),
            "param_norm": (optax.tree.norm(params), one),
        }
        if self.learning_rate is not None:
            metrics["learning_rate"] = (self.learning_rate(state.step), one)
        ema = self._average(state.ema, params)
        return TrainState(state.step + 1, params, opt_state, carry, ema), metrics

    def evaluate(self, params: Any, batch: Batch) -> Metrics:
        model = nnx.merge(self.graphdef, params)
        return model.loss(batch, None, self.initial_carry(), model.weights(batch))[1]

    def _average(self, ema: Any, params: Any) -> Any:
        decay = self.ema_decay
        if decay is None:
            return None
        return jax.tree.map(lambda a, p: a * decay + p * (1 - decay), ema, params)


def _check_random_numbers() -> None:
    if not jax.config.jax_threefry_partitionable:  # type: ignore[attr-defined]
        raise ValueError(
            "jax_threefry_partitionable is off: dropout would depend on the mesh. "
            "Remove it from the environment or the flags."
        )


def _split_model(model: nnx.Module) -> tuple[Any, nnx.State]:
    graphdef, params, rest = nnx.split(model, nnx.Param, ...)
    if jax.tree.leaves(rest):
        raise ValueError(f"A model may hold parameters only; it also holds {rest}.")
    return graphdef, params


def _abstract_state(
    init: Callable[[jax.Array], TrainState], layout: Layout, *, abstract: nnx.State, stacked: Any
) -> TrainState:
    """Shapes, dtypes and shardings of the state."""
    shapes = jax.eval_shape(init, jax.random.key(0))
    shardings = map_parameters(layout.sharding, abstract)
    states = TrainState(
        step=layout.replicated,  # type: ignore[arg-type]  # a tree of shardings, not of arrays
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
