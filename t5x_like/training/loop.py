"""The training loop: restore or start, then step, log, evaluate and save until the end."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp

from t5x_like.core.protocols.model import metric_value
from t5x_like.training.callbacks import Outcome
from t5x_like.training.checkpointing.checkpoints import Checkpoints
from t5x_like.training.health.bad_steps import new_norm
from t5x_like.training.health.watch import Watch
from t5x_like.training.metrics import TOTALS, Meter
from t5x_like.training.periods import LoopPhase, phase_of
from t5x_like.training.step import Program, TrainState

if TYPE_CHECKING:
    from t5x_like.core.protocols.model import Batch

_IN_FLIGHT = 2
"""Steps whose metrics may be unread, so that the device always has the next step queued."""


class Step(NamedTuple):
    """A step that has been taken.

    Attributes:
      step: the number of steps so far, this one included.
      batch: the batch that it read.
      state: the state after it; the next step takes its memory, so copy what you want to keep.
      metrics: {name: (sum, weight)}, on the device; reading them waits for the step.
    """

    step: int
    batch: Batch
    state: TrainState
    metrics: Mapping[str, Any]

    def values(self) -> dict[str, float]:
        """The metrics as numbers, like those of the log; waits for the step."""
        pairs = jax.device_get(self.metrics)
        return {
            name: metric_value(name, total, weight)
            for name, (total, weight) in pairs.items()
            if name not in TOTALS
        }


def train(phases: Sequence[LoopPhase], **parts: Any) -> Outcome:
    """Takes all steps of `steps`, with the same arguments, and returns how training ended."""
    return outcome(steps(phases, **parts))


def outcome(taken: Generator[Step, None, Outcome]) -> Outcome:
    """Takes all steps and returns how training ended."""
    while True:
        try:
            next(taken)
        except StopIteration as done:
            return done.value


def steps(
    phases: Sequence[LoopPhase],
    *,
    key: jax.Array,
    checkpoints: Checkpoints,
    metadata: Mapping[str, Any],
    watch: Watch,
    initial: Callable[[Any], Any] | None = None,
    before_training: Callable[[], None] | None = None,
) -> Generator[Step, None, Outcome]:
    """Trains from the newest good checkpoint, or from the start, to `train_steps` steps.

    All processes call it. On SIGTERM or Ctrl-C to any of them, all save at the same step and stop.
    If the caller stops iterating, training stops too, and the step that was reached is saved.

    Args:
      phases: the phases by ascending `start`, the first from 0.
      key: the key of initialisation and dropout: step n uses fold_in(key, n).
      checkpoints: where to resume from and to save to; closed at the end.
      metadata: JSON values that are saved with every checkpoint.
      watch: has the periods and the log, judges the steps, and says when the run ends.
      initial: a function from initialised parameters to those of a run that is not resumed.
      before_training: called by process 0 once there is a state to train from.

    Yields:
      Each step once it has been dispatched, before it is logged, evaluated and saved.

    Returns:
      How training ended.

    Raises:
      BadStepError: a loss or norm is not finite, or the run has diverged; no state since then has
        been saved.
      CheckpointError: a checkpoint cannot be saved, or the saved ones cannot be used.
    """
    periods, phase = watch.periods, None
    with watch.watching(checkpoints):
        checkpoints.prepare()
        state, step = _restore_or_init(phases, checkpoints, key, watch, initial)
        watch.resume(step, phases, checkpoints)
        if why := watch.over(step):
            watch.log.message(why)
            watch.ended = Outcome("already_finished", step)
            return watch.ended
        if before_training is not None and jax.process_index() == 0:
            before_training()
        run = {"model_dir": str(checkpoints.directory.parent), "config": metadata.get("config")}
        watch.start(step, run)
        if watch.missing:
            before = phase_of(step - 1, phases)
            checkpoints.rank(step, watch.evaluated(before, step, state), phase=before.start)
        while step < periods.train_steps and not watch.leaving:
            if phase is not (now := phase_of(step, phases)):
                watch.meter.compiling()
                phase, stream, compiled = now, now.batches(step - now.start), set()
                state = _in_phase(phase, step, state, watch)
            batch = _next(stream, watch.meter, step=step, total=periods.train_steps)
            if (shapes := _shapes(batch)) not in compiled:
                watch.meter.compiling()
            step += 1
            state, metrics = _take(phase, step, state, batch, key=key, watch=watch)
            watch.add(step, metrics, batch)
            try:
                yield Step(step, batch, state, metrics)
            except GeneratorExit:
                watch.leave()
            ending = phase is not phase_of(step, phases)
            watch.read(_IN_FLIGHT if shapes in compiled and not ending else 0)
            if shapes not in compiled:
                watch.meter.compiled()
                compiled.add(shapes)
            evaluating = watch.evaluates(phase, step)
            if not (watch.leaving or evaluating or periods.saving(step)):
                continue
            # A checkpoint is saved only if all metrics up to here are finite.
            watch.read(0)
            values = watch.evaluated(phase, step, state) if evaluating else {}
            if watch.leaving or periods.saving(step):
                _save(checkpoints, phase, step, state, watch, metadata, values)
        watch.log.ledger.turn("checkpoint")  # what was saved last is waited for
        jax.block_until_ready(state)
        text = watch.finish(step)
        checkpoints.wait()
        if text:
            watch.log.message(text)
        assert watch.ended is not None
        return watch.ended


def _shapes(batch: Batch) -> tuple[tuple[int, ...], ...]:
    """What a program is compiled for: rows may be shorter in some batches."""
    return tuple(array.shape for array in batch.values())


def _in_phase(phase: LoopPhase, step: int, state: TrainState, watch: Watch) -> TrainState:
    """The state in a phase after `step` steps; the carry is a new one where it starts."""
    if step == 0 or step > phase.start:
        return state
    watch.log.message(f"A new phase after step {phase.start}.")
    watch.health.new_phase()
    state, line = phase.program.enter(state)
    if line:
        watch.log.message(line)
    return state


def _take(
    phase: LoopPhase, step: int, state: TrainState, batch: Batch, *, key: jax.Array, watch: Watch
) -> tuple[TrainState, Mapping[str, Any]]:
    """The state after a step, and its metrics; none where its batch is left out."""
    metrics: Mapping[str, Any] = {}
    if watch.leaves_out(step):
        state = dataclasses.replace(state, step=state.step + 1)
    else:
        state, metrics = phase.program.step(state, batch, key)
    phase.complete.after(step, state.params)
    if watch.periods.due("log", step) or watch.periods.saving(step):
        metrics = _with_norm(metrics, phase.program, state)
    return state, metrics


def _with_norm(metrics: Mapping[str, Any], program: Program, state: TrainState) -> dict[str, Any]:
    """The metrics of a step and the norm of its parameters, which not every step computes."""
    return {**metrics, "param_norm": (program.parameter_norm(state.params), 1.0)}


def _restore_or_init(
    phases: Sequence[LoopPhase],
    checkpoints: Checkpoints,
    key: jax.Array,
    watch: Watch,
    initial: Callable[[Any], Any] | None,
) -> tuple[TrainState, int]:
    # A checkpoint belongs to the phase of its last step, also if the next phase follows.
    restored = checkpoints.restore_latest(
        lambda step: phase_of(max(step - 1, 0), phases).program.abstract_state
    )
    if restored is not None:
        watch.log.message(f"Resuming from step {restored.step} in {checkpoints.directory}.")
        watch.health.restore(restored.metadata.get("health", {}))
        phases[0].complete.begin(restored.step, restored.state.params, restored.kept)
        return restored.state, restored.step
    program = phases[0].program
    origin = "scratch" if initial is None else "other parameters"
    watch.log.message(f"Starting from {origin}: {program.parameter_count:,} parameters.")
    state = program.init(key)
    if initial is not None:
        params = initial(state.params)
        ema = None if state.ema is None else jax.tree.map(jnp.copy, params)
        state = dataclasses.replace(state, params=params, ema=ema)
    found = float(program.parameter_norm(state.params))
    watch.health.norm = new_norm(found, program.parameter_count)
    phases[0].complete.begin(0, state.params, {})
    return state, 0


def _save(
    checkpoints: Checkpoints,
    phase: LoopPhase,
    step: int,
    state: TrainState,
    watch: Watch,
    metadata: Mapping[str, Any],
    metrics: Mapping[str, float],
) -> None:
    """Saves a step, whose metrics are good."""
    with watch.meter.spending("checkpoint"):
        if not watch.periods.saving(step):  # its norm is not yet judged
            watch.health.add(step, jax.device_get(_with_norm({}, phase.program, state)))
        watch.log.keep()
        about = {**metadata, "health": watch.health.saved()}
        kept = phase.complete.kept
        checkpoints.save(step, state, metadata=about, metrics=metrics, phase=phase.start, kept=kept)
        watch.listener.save(step, str(checkpoints.directory))


def _next(stream: Iterator[Batch], meter: Meter, *, step: int, total: int) -> Batch:
    try:
        with meter.spending("input_wait"):
            return next(stream)
    except StopIteration:
        raise ValueError(f"The batches ended after step {step} of {total}.") from None
