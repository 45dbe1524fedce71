"""The watch over a run while it trains: whether its numbers are good, it moves, and it ends."""

from __future__ import annotations

import collections
import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import jax

from t5x_like.training.callbacks import Callback, Outcome
from t5x_like.training.checkpointing.checkpoints import Checkpoints
from t5x_like.training.checkpointing.ranking import has_metrics
from t5x_like.training.health import bad_batches
from t5x_like.training.health.bad_steps import BadStepError, Health, was_skipped
from t5x_like.training.health.early_stopping import EarlyStopping
from t5x_like.training.health.ending import farewell, over, status
from t5x_like.training.health.safeguards import Safeguards
from t5x_like.training.hosts.leaving import Asked, notice_of_leaving
from t5x_like.training.hosts.multihost import Vote, everywhere
from t5x_like.training.hosts.watchdog import Watchdog
from t5x_like.training.logs.run_log import RunLog
from t5x_like.training.metrics import Meter
from t5x_like.training.periods import LoopPhase, Periods, phase_of

if TYPE_CHECKING:
    from t5x_like.core.protocols.model import Batch
    from t5x_like.training.step import TrainState


class Watch:
    """Reads metrics a few steps late, judges and logs them, and knows whether the run ends.

    It is used in this order: `watching`, `resume`, `start`, and then the rest.

    Args:
      log: where it reports; closed at the end.
      periods: how long the run is, and how often it logs, evaluates and saves.
      safeguards: what is done about bad numbers and about standing still.
      times_bad: {step: how often it was bad before}; after the second time it is left out.
      callback: an object that process 0 calls while the run trains.

    Attributes:
      health: what is known of the loss and the parameters so far.
      listener: the callback; in other processes than 0 one that does nothing.
      meter: adds up metrics and times; there from `start` on.
      missing: whether the newest step is saved without its evaluation.
      ended: how training ended; None while it goes on, and where an error ends it.
    """

    asked: Asked
    meter: Meter
    _dog: Watchdog
    _stopping: EarlyStopping
    _vote: Vote

    def __init__(
        self,
        log: RunLog,
        periods: Periods,
        *,
        safeguards: Safeguards,
        times_bad: Mapping[int, int] = {},
        callback: Callback | None = None,
    ) -> None:
        self.log, self.periods, self._safeguards = log, periods, safeguards
        self.listener = (
            callback if callback is not None and jax.process_index() == 0 else Callback()
        )
        self.health = Health(*safeguards.limits)
        self.missing = False
        self.ended: Outcome | None = None
        self._times_bad = times_bad
        self._started = False
        self._leaves: Literal["asked", "caller", "early"] | None = None
        self._unread: collections.deque[tuple[int, Any, Any, Batch]] = collections.deque()

    @contextlib.contextmanager
    def watching(self, checkpoints: Checkpoints) -> Iterator[None]:
        """Heeds signals and standing still; closes the checkpoints and the log at the end."""
        with contextlib.ExitStack() as stack:
            self.asked = stack.enter_context(notice_of_leaving())
            stack.callback(lambda: self.log.close(self.ended))
            stack.callback(checkpoints.close)
            minutes = self._safeguards.stall_minutes
            self._dog = Watchdog(self.log.ledger.kind, minutes=minutes, asked=self.asked)
            stack.enter_context(self._dog.watching())
            try:
                yield
            finally:
                if self._started:
                    self.listener.end(self.ended)

    def resume(self, step: int, phases: Sequence[LoopPhase], checkpoints: Checkpoints) -> None:
        """Looks at what the run has said up to `step`: its evaluations, and whether one is missing.

        One is missing where a run that was asked to leave has saved the step without it.
        """
        self._stopping = EarlyStopping(checkpoints.best, self.periods.early_stopping)
        for earlier, values in self.log.evaluations(step):
            self._stopping.add(earlier, values, phase=phase_of(earlier - 1, phases).start)
        if not step or not self.evaluates(phase_of(step - 1, phases), step):
            return
        if not has_metrics(checkpoints.directory / str(step)):
            logged = any(earlier == step for earlier, _ in self.log.evaluations(step))
            self.missing = not everywhere("evaluation left out", logged)[0]

    def over(self, step: int) -> str:
        """Why there is nothing to do after `step` steps; "" if there is."""
        return "" if self.missing else over(step, self.periods, self._stopping)

    def start(self, step: int, about: Mapping[str, Any]) -> None:
        """Starts the log and the callback, which gets `about` (`Callback.start`): steps follow."""
        self.log.start(step)
        self.listener.start({**about, "step": step, "total_steps": self.periods.train_steps})
        self._started = True
        self._vote, self.meter = Vote(), Meter(self.log.ledger)

    @property
    def leaving(self) -> bool:
        """Whether no further step is taken."""
        return self._leaves is not None

    def leave(self) -> None:
        """The caller takes no further step."""
        self._leaves = "caller"

    def evaluates(self, phase: LoopPhase, step: int) -> bool:
        """Whether an evaluation follows a step of a phase."""
        return phase.evaluate is not None and self.periods.due("eval", step)

    def leaves_out(self, step: int) -> bool:
        """Whether the batch of a step is left out, because it was bad twice."""
        if self._times_bad.get(step, 0) <= 1:
            return False
        self.log.message(f"Leaves out the batch of step {step}, which was bad twice.")
        return True

    def add(self, step: int, metrics: Mapping[str, Any], batch: Batch) -> None:
        """Takes the metrics of a step, which are still computed."""
        self._unread.append((step, metrics, self._vote.cast(self.asked.is_set()), batch))

    def read(self, unread: int) -> None:
        """Reads all but the newest `unread` steps; leaves if a process was asked to in one.

        Raises:
          BadStepError: one of them is bad; its batch is written out.
        """
        while len(self._unread) > unread:
            step, metrics, leave, batch = self._unread.popleft()
            # On all devices, not on the first alone: a process must not end while others exchange.
            values = jax.device_get(jax.block_until_ready((metrics, leave)))[0]
            self._dog.step(step)
            self._judge(step, values, batch)
            self.meter.add(values)
            if bool(leave) and not self.leaving:
                self._leaves = "asked"
            if self.periods.due("log", step):
                report = self.meter.report()
                self.log.train(step, report)
                self.listener.log(step, report)

    def evaluated(self, phase: LoopPhase, step: int, state: TrainState) -> Mapping[str, float]:
        """The results of an evaluation, which are told, judged and counted; the run may then end.

        None where the run already leaves: the evaluation is then `missing`.

        Raises:
          BadStepError: the run has lost what it had learned.
        """
        assert phase.evaluate is not None
        self.missing = self.leaving
        if self.leaving:
            return {}
        with self.meter.spending("evaluation"):
            values = phase.evaluate(state.eval_params)
            self.log.evaluation(step, values)
            self.listener.evaluate(step, values)
            if warning := self.health.compare(step, values, self.log.baseline(phase.start)):
                self.log.message(warning)
            self._stopping.add(step, values, phase=phase.start)
        if self._stopping.over():
            self._leaves = "early"
        return values

    def finish(self, step: int) -> str:
        """Training has ended after `step` steps; returns the last message, "" if there is none."""
        self.ended = Outcome(
            status(
                step,
                self.periods,
                stopped_early=self._leaves == "early",
                missing=self.missing,
                by_hand=self._leaves == "caller" or self.asked.by_hand,
            ),
            step,
        )
        return farewell(self.ended, self._stopping)

    def _judge(self, step: int, metrics: Mapping[str, Any], batch: Batch) -> None:
        try:
            self.health.add(step, metrics)
        except BadStepError:
            self._keep(step, batch)
            raise
        if was_skipped(metrics):
            self.log.message(f"Step {step} is skipped: its gradient is not finite.")
            self._keep(step, batch)
        if self._times_bad.get(step) == 1:
            self.log.message(
                f"Step {step} was bad and is good from the same state and batch: a chip or its "
                "memory computes wrongly. See `t5x_like doctor`, and replace that host."
            )

    def _keep(self, step: int, batch: Batch) -> None:
        try:
            path = bad_batches.write(self.log.directory, step, batch)
        except OSError as error:  # what is bad matters more than where it can be seen
            self.log.message(f"The batch of step {step} cannot be kept: {error}")
            return
        if path is not None:
            self.log.message(f"The batch of step {step}: t5x_like show {path}")
