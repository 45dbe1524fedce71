"""One training step: a model, an optimizer and a layout, compiled."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from t5x_like.core.global_batches import check_batch
from t5x_like.core.partitioning import Layout, device_bytes
from t5x_like.training import compilation
from t5x_like.training.compute_parameters import ComputeParameters, largest_gradient
from t5x_like.training.optimization import freezing, histories
from t5x_like.training.optimization.assembly import Assembled, assemble
from t5x_like.training.optimization.gradients import gradients
from t5x_like.training.optimization.schedule_numbers import schedule_numbers, with_numbers
from t5x_like.training.optimization.schedules import Schedule
from t5x_like.training.optimization.turns import clipped_gradients, turns_of
from t5x_like.training.state import TrainState, abstract_state, if_finite

if TYPE_CHECKING:
    from t5x_like.core.protocols.model import Batch, Carry, Metrics, Model

_INITIALISATION = np.uint32(2**32 - 1)
"""The number that is folded into the run's key for the parameters: no step has it."""


@dataclasses.dataclass(frozen=True)
class Program:
    """The result of `build`. Batches are {name: [batch_size, ...]}; metrics {name: (sum, weight)}.

    `step` donates its state. `numbers` are those of the optimizer's schedules, float32 each; runs
    that differ in these alone may share a program (`with_numbers`). `evaluate` runs without dropout
    and returns the next carry.
    `initial_carry` makes a new carry of `batch_size` rows. `enter` turns the last state of the
    phase before into the first one of this phase, and says what is new in the optimizer. `trained`
    is what trains (`freezing.trainable_mask`). `lower`
    traces a step on batches of rows like the given one, {name: shape and dtype}, and lowers it for
    the mesh, without compiling it; `trace` only traces, and JAX keeps the trace for the step
    itself. `parameter_norm` is the global norm of parameters. `layout` is that of `build`, with the
    memory that the state takes.
    """

    init: Callable[[jax.Array], TrainState]
    step_with_numbers: Callable[..., tuple[TrainState, Metrics]]
    numbers: Sequence[np.float32]
    evaluate: Callable[[Any, Batch, Carry], tuple[Metrics, Carry]]
    initial_carry: Callable[[], Carry]
    enter: Callable[[TrainState], tuple[TrainState, str]]
    trained: Any
    parameter_norm: Callable[[Any], jax.Array]
    trace: Callable[[Mapping[str, Any]], None]
    lower: Callable[[Mapping[str, Any]], jax.stages.Lowered]
    abstract_state: TrainState
    graphdef: Any
    layout: Layout
    parameter_count: int

    def step(self, state: TrainState, batch: Batch, key: jax.Array) -> tuple[TrainState, Metrics]:
        """The state after a step, and its metrics."""
        return self.step_with_numbers(state, batch, key, self.numbers)

    def with_numbers(self, numbers: Sequence[np.float32]) -> Program:
        """The same program for a run whose schedules have other numbers; nothing is compiled."""
        return dataclasses.replace(self, numbers=numbers)

    def evaluation(self) -> Callable[[Any, Batch], Metrics]:
        """A function from parameters and the next batch to metrics; the first has a new carry."""
        carry = self.initial_carry()

        def evaluate(params: Any, batch: Batch) -> Metrics:
            nonlocal carry
            metrics, carry = self.evaluate(params, batch, carry)
            return metrics

        return evaluate


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepOptions:
    """Options of a training step.

    Attributes:
      batch_size: the rows of the global batch.
      microbatches: the number of parts of a batch; their gradients are summed before an update.
        None for one; a run decides by the memory of its devices (`runs.memory.microbatches`).
      gradient_clip: the largest global norm of the gradient; None for no limit.
      ema_decay: the decay of an exponential moving average of the parameters; None for no average.
      average_from: the step from which on parameters are averaged, those after each step alike
        (Izmailov et al., 2018, section 3); until then the average is the parameters. None for no
        average, or for that of `ema_decay`.
      frozen: regular expressions on paths of parameters (`freezing.trainable_mask`); a parameter
        that matches one does not change: it has no gradient, no part in the norm, no decay and no
        state of the optimizer. `PATTERN@0-2` freezes these layers of a stack; they have a state.
      layer_decay: the factor of the learning rate from layer to layer towards the input, per stack;
        the embeddings are below the first layer (`layerwise.layer_scales`). None for no decay. The
        log shows the rate of the heads.
      random_numbers: how dropout draws, one of `compilation.RANDOM_NUMBERS`; None for the default
        of the devices.
      compiler_options: XLA's options for the step, besides `compilation.compiler_options`.
      bad_numbers: what follows a step whose gradient or metrics are not finite, one of
        `health.bad_steps.WAYS`; with `skip` it changes nothing.
    """

    batch_size: int
    microbatches: int | None = None
    gradient_clip: float | None = None
    ema_decay: float | None = None
    average_from: int | None = None
    frozen: Sequence[str] = ()
    layer_decay: float | None = None
    random_numbers: str | None = None
    compiler_options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    bad_numbers: str = "stop"

    @property
    def averages(self) -> bool:
        """Whether the state has an average of the parameters."""
        return self.ema_decay is not None or self.average_from is not None


def build(
    make_model: Callable[..., Model],
    optimizer: optax.GradientTransformation,
    layout: Layout,
    options: StepOptions,
    *,
    earlier: Sequence[Sequence[str]] = (),
    model: Model | None = None,
) -> Program:
    """A program, which compiles lazily and allocates nothing until `init` is called.

    Args:
      make_model: called with `rngs=`; makes an NNX module that holds parameters and nothing else.
      optimizer: an optax transformation, which runs on each layer of stacked parameters separately;
        the learning rate of an `Optimizer` is logged.
      layout: the mesh and the rules.
      options: the options of the step.
      earlier: the `frozen` parameters of each phase of the run before this one, in order.
      model: the abstract model, if it was built before.

    Raises:
      ValueError: the batch does not split over mesh and microbatches; the model holds more than
        parameters, or parameters without axes; a pattern matches nothing, or all is frozen.
    """
    check_batch(layout, options.batch_size, microbatches=options.microbatches or 1)
    _check_random_numbers()
    if model is None:
        model = nnx.eval_shape(lambda: make_model(rngs=nnx.Rngs(0)))
    graphdef, abstract = _split_model(model)
    assembling = functools.partial(
        assemble,
        params=abstract,
        frozen=options.frozen,
        earlier=earlier,
        layer_decay=options.layer_decay,
    )
    assembled = assembling(optimizer)
    parts = _Parts(
        make_model=make_model,
        graphdef=graphdef,
        initial_carry=lambda: model.initial_carry(options.batch_size),
        optimizer=assembled,
        transformation=optimizer,
        assemble=assembling,
        compute=ComputeParameters.of(abstract, layout),
        random_numbers=compilation.RANDOM_NUMBERS[
            options.random_numbers or compilation.random_numbers(layout.platform)
        ],
        options=options,
        turns=turns_of(model),
    )
    init = _inside(layout, parts.init)
    shapes = abstract_state(init, layout, params=abstract, stacked=assembled.stacked)
    grads = device_bytes(shapes.params) + largest_gradient(layout, abstract)
    taken = device_bytes(shapes) + grads
    return _compile(parts, init, dataclasses.replace(layout, reserved=taken), shapes)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Parts:
    """The arguments of `build`, and the functions that it compiles."""

    make_model: Callable[..., Any]
    graphdef: Any
    initial_carry: Callable[[], Carry]
    optimizer: Assembled
    transformation: optax.GradientTransformation
    assemble: Callable[[optax.GradientTransformation], Assembled]
    compute: ComputeParameters
    random_numbers: Any
    options: StepOptions
    turns: Sequence[int | None]

    def init(self, key: jax.Array) -> TrainState:
        rngs = nnx.Rngs(jax.random.fold_in(key, _INITIALISATION))
        params = nnx.to_pure_dict(_split_model(self.make_model(rngs=rngs))[1])
        return TrainState(
            step=jnp.zeros((), jnp.int32),
            params=params,
            opt_state=self.optimizer.init(params),
            carry=self.initial_carry(),
            ema=jax.tree.map(jnp.copy, params) if self.options.averages else None,
        )

    def step(
        self, state: TrainState, batch: Batch, key: jax.Array, numbers: Sequence[jax.Array]
    ) -> tuple[TrainState, Metrics]:
        transformation = with_numbers(self.transformation, numbers)
        learning_rate: Schedule | None = getattr(transformation, "learning_rate", None)
        optimizer = self.assemble(transformation)
        params, frozen = self.optimizer.split(state.params)
        key = self._dropout_key(jax.random.fold_in(key, state.step))

        def of_turn(params: Any, carry: Carry, turn: int | None) -> tuple[Any, Metrics, Carry]:
            grads, metrics, carry = gradients(
                self.graphdef,
                self.compute.gather(params),
                batch=batch,
                key=key,
                carry=carry,
                microbatches=self.options.microbatches or 1,
                frozen=self.compute.gather(frozen),
                turn=turn,
            )
            return self.optimizer.of_trained_layers(self.compute.scatter(grads)), metrics, carry

        grads, metrics, carry = clipped_gradients(
            of_turn,
            lambda grads: optimizer.update(grads, state.opt_state, params)[0],
            (params, state.carry),
            turns=self.turns,
            clip=self.options.gradient_clip,
        )
        params, opt_state = optimizer.update(grads, state.opt_state, params)
        params = freezing.merge(params, frozen)
        ema = self._average(state.ema, params, state.step)
        after = TrainState(state.step + 1, params, opt_state, carry, ema)
        if self.options.bad_numbers == "skip":
            after, metrics = if_finite(after, state, metrics)
        if learning_rate is not None:  # of a step without effect, too
            metrics["learning_rate"] = (learning_rate(state.step), jnp.float32(1))
        return after, metrics

    def evaluate(self, params: Any, batch: Batch, carry: Carry) -> tuple[Metrics, Carry]:
        model = nnx.merge(self.graphdef, self.compute.gather(params))
        return model.loss(batch, None, carry, model.weights(batch))[1:]

    def _dropout_key(self, key: jax.Array) -> jax.Array:
        """A key of the kind `random_numbers`, from one of JAX's default kind."""
        wanted = jax.eval_shape(lambda: jax.random.key(0, impl=self.random_numbers))
        if key.dtype == wanted.dtype:
            return key
        words = jax.eval_shape(jax.random.key_data, wanted)
        data = jax.random.bits(key, words.shape, words.dtype)
        return jax.random.wrap_key_data(data, impl=self.random_numbers)

    def _average(self, ema: Any, params: Any, step: jax.Array) -> Any:
        """The average with the parameters after `step`."""
        if not self.options.averages:
            return None
        decay: Any = self.options.ema_decay
        if self.options.average_from is not None:
            averaged = jnp.maximum(step + 1 - self.options.average_from, 1)
            decay = 1 - 1 / averaged.astype(jnp.float32)

        def average(a: jax.Array, p: jax.Array, trained: np.ndarray) -> jax.Array:
            return a * decay + p * (1 - decay) if trained.any() else p

        averages = jax.tree.map(average, ema, params, self.optimizer.mask)
        return freezing.chosen_layers(averages, params, self.optimizer.mask)


def _compile(
    parts: _Parts,
    init: Callable[[jax.Array], TrainState],
    layout: Layout,
    state: TrainState,
) -> Program:
    """The program whose states have these shapes and shardings.

    `init` must be the function that made the shapes: JAX then has its trace already.
    """
    shardings = jax.tree.map(lambda leaf: leaf.sharding, state)
    numbers = schedule_numbers(parts.transformation)
    # Adafactor's placeholders are unused. JAX keeps them, so that it donates the whole old state.
    step = jax.jit(
        parts.step,
        donate_argnums=0,
        keep_unused=True,
        out_shardings=(shardings, layout.replicated),
        compiler_options=compilation.compiler_options(
            layout.platform, parts.options.compiler_options
        ),
    )
    carry = jax.jit(parts.initial_carry, out_shardings=shardings.carry)

    def arguments(row: Mapping[str, Any]) -> tuple[Any, ...]:
        # The shardings must be those of real batches: otherwise JAX traces again for these.
        batch_size = parts.options.batch_size
        shapes = {name: (batch_size, *array.shape) for name, array in row.items()}
        batch = {
            name: jax.ShapeDtypeStruct(shape, row[name].dtype, sharding=layout.rows(shape))
            for name, shape in shapes.items()
        }
        return state, batch, jax.eval_shape(lambda: jax.random.key(0)), numbers

    def trace(row: Mapping[str, Any]) -> None:
        step.eval_shape(*arguments(row))

    def lower(row: Mapping[str, Any]) -> jax.stages.Lowered:
        return step.lower(*arguments(row))

    return Program(
        init=jax.jit(init, out_shardings=shardings),
        step_with_numbers=_inside(layout, step),
        numbers=numbers,
        evaluate=_inside(
            layout, jax.jit(parts.evaluate, out_shardings=(layout.replicated, shardings.carry))
        ),
        initial_carry=_inside(layout, carry),
        trained=parts.optimizer.mask,
        enter=_inside(layout, functools.partial(_enter, parts.optimizer, carry, state)),
        parameter_norm=jax.jit(optax.tree.norm, out_shardings=layout.replicated),
        trace=_inside(layout, trace),
        lower=_inside(layout, lower),
        abstract_state=state,
        graphdef=parts.graphdef,
        layout=layout,
        parameter_count=sum(leaf.size for leaf in jax.tree.leaves(state.params)),
    )


def _enter(
    optimizer: Assembled, carry: Callable[[], Carry], now: TrainState, state: TrainState
) -> tuple[TrainState, str]:
    """`Program.enter`, for states like the abstract one `now`."""
    state = dataclasses.replace(state, carry=carry())
    if not optimizer.changes(state.opt_state, now.opt_state):
        return state, ""
    going_on: set[str] = set()

    def continued(opt_state: Any, params: Any, step: jax.Array) -> Any:
        renewed_state, names = optimizer.continued(opt_state, params, step)
        going_on.update(names)
        return renewed_state

    shardings = jax.tree.map(lambda leaf: leaf.sharding, now.opt_state)
    renewed = jax.jit(continued, out_shardings=shardings)
    opt_state = renewed(state.opt_state, state.params, state.step)
    line = histories.report(optimizer.groups, going_on)
    return dataclasses.replace(state, opt_state=opt_state), line


def _check_random_numbers() -> None:
    if not jax.config.jax_threefry_partitionable:  # type: ignore[attr-defined]
        raise ValueError(
            "jax_threefry_partitionable is off: dropout would depend on the mesh. "
            "Remove it from the environment or the flags."
        )


def _split_model(model: Any) -> tuple[Any, nnx.State]:
    graphdef, params, rest = nnx.split(model, nnx.Param, ...)
    if jax.tree.leaves(rest):
        raise ValueError(f"A model may hold parameters only; it also holds {rest}.")
    return graphdef, params


def _inside(layout: Layout, fn: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(fn)
    def wrapped(*args: Any) -> Any:
        with layout.active():
            return fn(*args)

    return wrapped
