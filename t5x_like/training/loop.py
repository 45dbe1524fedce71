"""The training loop: restore or start, then step, log, evaluate and save until the end."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp

from t5x_like.core.protocols.model import metric_value
from t5x_like.training.callbacks import Callback, Outcome
from t5x_like.training.checkpointing.checkpoints import Checkpoints
from t5x_like.training.checkpointing.ranking import has_metrics
from t5x_like.training.ending import farewell, over, status
from t5x_like.training.health import bad_batches
from t5x_like.training.health.bad_steps import BadStepError, Health, was_skipped
from t5x_like.training.health.early_stopping import EarlyStopping
from t5x_like.training.health.safeguards import Safeguards
from t5x_like.training.hosts.leaving import notice_of_leaving
from t5x_like.training.hosts.multihost import Vote, everywhere
from t5x_like.training.hosts.watchdog import Watchdog
from t5x_like.training.logs.run_log import RunLog
from t5x_like.training.metrics import TOTALS, Meter
from t5x_like.training.periods import Periods, Phase, phase_of
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


def train(phases: Sequence[Phase], **parts: Any) -> Outcome:
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
    phases: Sequence[Phase],
    *,
    key: jax.Array,
    periods: Periods,
    checkpoints: Checkpoints,
    metadata: Mapping[str, Any],
    log: RunLog,
    safeguards: Safeguards,
    times_bad: Mapping[int, int] = {},
    initial: Callable[[Any], Any] | None = None,
    before_training: Callable[[], None] | None = None,
    callback: Callback | None = None,
) -> Generator[Step, None, Outcome]:
    """Trains from the newest good checkpoint, or from the start, to `periods.train_steps` steps.

    All processes call it. On SIGTERM or Ctrl-C to any of them, all save at the same step and stop.
    If the caller stops iterating, training stops too, and the step that was reached is saved.

    Args:
      phases: the phases by ascending `start`, the first from 0.
      key: the key of initialisation and dropout: step n uses fold_in(key, n).
      periods: how long the run is, and how often it logs, evaluates and saves.
      checkpoints: where to resume from and to save to; closed at the end.
      metadata: JSON values that are saved with every checkpoint.
      log: where to report; closed at the end.
      safeguards: what is done about bad numbers and about standing still.
      times_bad: {step: how often it was bad before}; after the second time it is left out.
      initial: a function from initialised parameters to those of a run that is not resumed.
      before_training: called by process 0 once there is a state to train from.
      callback: an object that process 0 calls while the run trains.

    Yields:
      Each step once it has been dispatched, before it is logged, evaluated and saved.

    Returns:
      How training ended.

    Raises:
      BadStepError: a loss or norm is not finite, or the run has diverged; no state since then has
        been saved.
      CheckpointError: a checkpoint cannot be saved, or the saved ones cannot be used.
    """
    listener = callback if callback is not None and jax.process_index() == 0 else Callback()
    ended: Outcome | None = None
    with contextlib.ExitStack() as stack:
        asked = stack.enter_context(notice_of_leaving())
        stack.callback(lambda: log.close(ended))
        stack.callback(checkpoints.close)
        dog = Watchdog(log.ledger.kind, minutes=safeguards.stall_minutes, asked=asked)
        stack.enter_context(dog.watching())
        checkpoints.prepare()
        health = Health(*safeguards.limits)
        state, step = _restore_or_init(phases, checkpoints, key, log, initial, health)
        stopping = _early_stopping(phases, checkpoints, periods, log, step)
        missing = _is_unevaluated(phases, checkpoints, periods, log, step)
        if not missing and (why := over(step, periods, stopping)):
            log.message(why)
            ended = Outcome("already_finished", step)
            return ended
        if before_training is not None and jax.process_index() == 0:
            before_training()
        log.start(step)
        listener.start(_about(checkpoints, metadata, step=step, total=periods.train_steps))
        stack.callback(lambda: listener.end(ended))
        vote, reader = Vote(), _Reader(log, periods, listener, health, dog, times_bad)
        phase: Phase | None = None
        leaving = stopped = stopped_early = False
        if missing:
            _make_up(phase_of(step - 1, phases), step, state, reader, stopping, checkpoints)
            missing, leaving = False, (stopped_early := stopping.over())
        while step < periods.train_steps and not leaving:
            if phase is not (now := phase_of(step, phases)):
                reader.meter.compiling()
                phase, stream, compiled = now, now.batches(step - now.start), False
                state = _in_phase(phase, step, state, health, log)
            batch = _next(stream, reader.meter, step=step, total=periods.train_steps)
            step += 1
            metrics: Mapping[str, Any] = {}
            if times_bad.get(step, 0) > 1:
                log.message(f"Leaves out the batch of step {step}, which was bad twice.")
                state = dataclasses.replace(state, step=state.step + 1)
            else:
                state, metrics = phase.program.step(state, batch, key)
            phase.complete.after(step, state.params)
            if periods.due("log", step) or periods.saving(step):
                metrics = _with_norm(metrics, phase.program, state)
            reader.add(step, metrics, vote.cast(asked.is_set()), batch)
            try:
                yield Step(step, batch, state, metrics)
            except GeneratorExit:
                stopped = True  # the caller has stopped iterating
            ending = phase is not phase_of(step, phases)
            leaving = reader.read(_IN_FLIGHT if compiled and not ending else 0) or stopped
            if not compiled:
                reader.meter.compiled()
                compiled = True
            evaluating = phase.evaluate is not None and periods.due("eval", step)
            if not (leaving or evaluating or periods.saving(step)):
                continue
            # A checkpoint is saved only if all metrics up to here are finite.
            leaving = reader.read(0) or leaving
            values: Mapping[str, float] = {}
            if evaluating and not (missing := leaving):
                values = reader.evaluated(phase, step, state, stopping)
                leaving = stopped_early = stopping.over()
            if leaving or periods.saving(step):
                with reader.meter.spending("checkpoint"):
                    if not periods.saving(step):
                        health.add(step, jax.device_get(_with_norm({}, phase.program, state)))
                    log.keep()
                    _save(checkpoints, phase, step, state, health, metadata, values)
                    listener.save(step, str(checkpoints.directory))
        log.ledger.turn("checkpoint")  # what was saved last is waited for
        how = {"missing": missing, "by_hand": stopped or asked.by_hand}
        ended = Outcome(status(step, periods, stopped_early=stopped_early, **how), step)
        checkpoints.wait()
        if text := farewell(ended, stopping):
            log.message(text)
        return ended


def _early_stopping(
    phases: Sequence[Phase], checkpoints: Checkpoints, periods: Periods, log: RunLog, step: int
) -> EarlyStopping:
    """What the evaluations up to `step` say."""
    stopping = EarlyStopping(checkpoints.best, periods.early_stopping)
    for earlier, found in log.evaluations(step):
        stopping.add(earlier, found, phase=phase_of(earlier - 1, phases).start)
    return stopping


def _is_unevaluated(
    phases: Sequence[Phase], checkpoints: Checkpoints, periods: Periods, log: RunLog, step: int
) -> bool:
    """Whether a run that was asked to leave has saved `step` without its evaluation."""
    if not step or phase_of(step - 1, phases).evaluate is None or not periods.due("eval", step):
        return False
    if has_metrics(checkpoints.directory / str(step)):
        return False
    logged = any(earlier == step for earlier, _ in log.evaluations(step))
    return not everywhere("evaluation left out", logged)[0]


def _make_up(
    phase: Phase,
    step: int,
    state: TrainState,
    reader: _Reader,
    stopping: EarlyStopping,
    checkpoints: Checkpoints,
) -> None:
    """Evaluates a step that was saved without its evaluation."""
    values = reader.evaluated(phase, step, state, stopping)
    checkpoints.rank(step, values, phase=phase.start)


def _in_phase(
    phase: Phase, step: int, state: TrainState, health: Health, log: RunLog
) -> TrainState:
    """The state in a phase after `step` steps; the carry is a new one where it starts."""
    if step == 0 or step > phase.start:
        return state
    log.message(f"A new phase after step {phase.start}.")
    health.new_phase()
    return dataclasses.replace(state, carry=phase.program.initial_carry())


def _about(
    checkpoints: Checkpoints, metadata: Mapping[str, Any], *, step: int, total: int
) -> dict[str, Any]:
    """The argument of `Callback.start`."""
    return {
        "model_dir": str(checkpoints.directory.parent),
        "config": metadata.get("config"),
        "step": step,
        "total_steps": total,
    }


class _Reader:
    """Reads metrics a few steps late, so that the device always has the next step queued."""

    def __init__(
        self,
        log: RunLog,
        periods: Periods,
        listener: Callback,
        health: Health,
        dog: Watchdog,
        times_bad: Mapping[int, int],
    ) -> None:
        self.meter = Meter(log.ledger)
        self._log, self._periods, self._callback = log, periods, listener
        self._health, self._dog, self._times_bad = health, dog, times_bad
        self._unread: collections.deque[tuple[int, Any, Any, Batch]] = collections.deque()

    def add(self, step: int, metrics: Any, leave: Any, batch: Batch) -> None:
        self._unread.append((step, metrics, leave, batch))

    def read(self, unread: int) -> bool:
        """Reads all but the newest `unread` steps; True if a process asked to stop in one.

        Raises:
          BadStepError: one of them is bad; its batch is written out.
        """
        leaving = False
        while len(self._unread) > unread:
            step, metrics, leave, batch = self._unread.popleft()
            found = jax.device_get(metrics)
            self._dog.step(step)
            self._judge(step, found, batch)
            self.meter.add(found)
            leaving = leaving or bool(leave)
            if self._periods.due("log", step):
                values = self.meter.report()
                self._log.train(step, values)
                self._callback.log(step, values)
        return leaving

    def evaluated(
        self, phase: Phase, step: int, state: TrainState, stopping: EarlyStopping
    ) -> Mapping[str, float]:
        """The results of an evaluation, which are told, judged and counted.

        Raises:
          BadStepError: the run has lost what it had learned.
        """
        assert phase.evaluate is not None
        with self.meter.spending("evaluation"):
            values = phase.evaluate(state.eval_params)
            self._log.evaluation(step, values)
            self._callback.evaluate(step, values)
            if warning := self._health.compare(step, values, self._log.baseline(phase.start)):
                self._log.message(warning)
            stopping.add(step, values, phase=phase.start)
        return values

    def _judge(self, step: int, metrics: Mapping[str, Any], batch: Batch) -> None:
        try:
            self._health.add(step, metrics)
        except BadStepError:
            self._keep(step, batch)
            raise
        if was_skipped(metrics):
            self._log.message(f"Step {step} is skipped: its gradient is not finite.")
            self._keep(step, batch)
        if self._times_bad.get(step) == 1:
            self._log.message(
                f"Step {step} was bad and is good from the same state and batch: a chip or its "
                "memory computes wrongly. See `t5x_like doctor`, and replace that host."
            )

    def _keep(self, step: int, batch: Batch) -> None:
        try:
            path = bad_batches.write(self._log.directory, step, batch)
        except OSError as error:  # what is bad matters more than where it can be seen
            self._log.message(f"The batch of step {step} cannot be kept: {error}")
            return
        if path is not None:
            self._log.message(f"The batch of step {step}: t5x_like show {path}")


def _with_norm(metrics: Mapping[str, Any], program: Program, state: TrainState) -> dict[str, Any]:
    """The metrics of a step and the norm of its parameters, which not every step computes."""
    return {**metrics, "param_norm": (program.parameter_norm(state.params), 1.0)}


def _restore_or_init(
    phases: Sequence[Phase],
    checkpoints: Checkpoints,
    key: jax.Array,
    log: RunLog,
    initial: Callable[[Any], Any] | None,
    health: Health,
) -> tuple[TrainState, int]:
    # A checkpoint belongs to the phase of its last step, also if the next phase follows.
    restored = checkpoints.restore_latest(
        lambda step: phase_of(max(step - 1, 0), phases).program.abstract_state
    )
    if restored is not None:
        log.message(f"Resuming from step {restored.step} in {checkpoints.directory}.")
        health.restore(restored.metadata.get("health", {}))
        phases[0].complete.begin(restored.step, restored.state.params, restored.kept)
        return restored.state, restored.step
    program = phases[0].program
    origin = "scratch" if initial is None else "other parameters"
    log.message(f"Starting from {origin}: {program.parameter_count:,} parameters.")
    state = program.init(key)
    if initial is not None:
        params = initial(state.params)
        ema = None if state.ema is None else jax.tree.map(jnp.copy, params)
        state = dataclasses.replace(state, params=params, ema=ema)
    health.norm = float(program.parameter_norm(state.params))
    phases[0].complete.begin(0, state.params, {})
    return state, 0


def _save(
    checkpoints: Checkpoints,
    phase: Phase,
    step: int,
    state: TrainState,
    health: Health,
    metadata: Mapping[str, Any],
    metrics: Mapping[str, float],
) -> None:
    about = {**metadata, "health": health.saved()}
    kept = phase.complete.kept
    checkpoints.save(step, state, metadata=about, metrics=metrics, phase=phase.start, kept=kept)


def _next(stream: Iterator[Batch], meter: Meter, *, step: int, total: int) -> Batch:
    try:
        with meter.spending("input_wait"):
            return next(stream)
    except StopIteration:
        raise ValueError(f"The batches ended after step {step} of {total}.") from None
