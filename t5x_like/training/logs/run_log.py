"""The log of a run: what its user sees, and the files that say afterwards how it went."""

from __future__ import annotations

import collections
import contextlib
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO

import jax
from etils import epath
from tqdm import tqdm

from t5x_like.core import progress
from t5x_like.core.buckets import storage
from t5x_like.core.buckets.sending import Sender
from t5x_like.training.callbacks import Outcome
from t5x_like.training.logs import shown_values
from t5x_like.training.logs.account import Account
from t5x_like.training.logs.event_file import EventFiles
from t5x_like.training.logs.ledger import Ledger
from t5x_like.training.logs.metrics_file import METRICS_FILE, MetricsFile, lines_up_to
from t5x_like.training.logs.starts import STARTS_FILE
from t5x_like.training.logs.summary import SUMMARY_FILE
from t5x_like.training.logs.text_log import LOG_FILE, TextLog, listening

_SEND_SECONDS = 60.0
_MARKS = 10
"""The number of log lines over which the pace is measured."""


class RunLog:
    """The log of a run, which process 0 writes; in other processes it does nothing.

    A line of `metrics.jsonl` is {"step": n, "train/<name>": x, ...} for the steps since the line
    before, {"step": n, "eval/<name>": x, ...} for an evaluation after n steps, or
    {"step": n, "baseline/<name>": x, ...} for what evaluations of a phase that starts after n steps
    compare with. `starts.jsonl` has what became of each start, `log.txt` what it said, and
    `summary.json` the run in numbers.

    As a context, it closes at the end, and until then Python's warnings go to `log.txt` too.
    """

    def __init__(
        self,
        directory: epath.PathLike,
        *,
        total_steps: int,
        stream: TextIO | None = None,
        tensorboard: bool = True,
        ledger: Ledger | None = None,
    ) -> None:
        """`ledger` has the time since the start began; None: it begins now."""
        self.directory = epath.Path(directory)
        self._total = total_steps
        self._stream = sys.stderr if stream is None else stream
        self._tensorboard = tensorboard
        self._active = jax.process_index() == 0
        self._bar: progress.Bar | None = None
        self._events: EventFiles | None = None
        self._failing: set[str] = set()
        self._baselines: dict[int, dict[str, float]] = {}
        self._marks: collections.deque[tuple[int, float]] = collections.deque(maxlen=_MARKS)
        # Files in a bucket cannot grow: they are written here, and sent whole now and then.
        self._sender: Sender | None = None
        self._closing = contextlib.ExitStack()
        self._files = self.directory
        self.ledger = Ledger() if ledger is None else ledger
        self._account = Account(self.ledger)
        self._text = TextLog(self.ledger.begun)
        self._listening = contextlib.ExitStack()
        self._started = False
        self._closed = False

    def __enter__(self) -> RunLog:
        if self._active:
            self._listening.enter_context(listening(self._write_down))
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def describe(
        self, about: Mapping[str, Any], checkpoints: Callable[[], Mapping[str, Any]]
    ) -> None:
        """Sets, before `start`, the facts about the run that `summary.json` records.

        Args:
          about: JSON values (`about.known` names them).
          checkpoints: gives the saved `steps`, and the `best` of them.
        """
        self._account.describe(about, checkpoints)

    def start(self, step: int) -> None:
        """Continues after `step`; drops what an earlier run logged for later steps.

        Raises:
          OSError: the log of an earlier run cannot be read.
        """
        self._marks.clear()
        self._begun = step
        if not self._active:
            return
        # An error here ends the run before it trains: a log that was not read must not be replaced.
        before, damaged = lines_up_to(self.directory / METRICS_FILE, step)
        if damaged:
            self.message(f"{self.directory / METRICS_FILE}: {damaged} damaged lines are left out.")
        if storage.is_url(self.directory):
            folder = tempfile.TemporaryDirectory(prefix="t5x_like-logs-")
            self._files = epath.Path(self._closing.enter_context(folder))
            for name in (STARTS_FILE, LOG_FILE):
                if (earlier := self.directory / name).exists():
                    (self._files / name).write_bytes(earlier.read_bytes())
            self._sender = self._closing.enter_context(
                Sender(Path(self._files), str(self.directory), seconds=_SEND_SECONDS)
            )
        number = self._account.open(self._files, step)
        self._metrics = MetricsFile(self._files / METRICS_FILE)
        with self._going_on("write the log"):
            self._files.mkdir(parents=True, exist_ok=True)
            self._metrics.start(before)
        with self._going_on(f"write {LOG_FILE}"):
            self._text.start(self._files / LOG_FILE, number)
        with self._going_on(f"write {STARTS_FILE}"):
            self._account.begin()
        self._started = True
        self._baselines = {line["step"]: values for line in before if (values := _baselines(line))}
        if self._tensorboard:
            self._events = EventFiles(Path(self._files) / "tensorboard", first_step=step + 1)
        if self._stream.isatty():
            self._bar = progress.bar(total=self._total, initial=step, file=self._stream)

    def train(self, step: int, values: Mapping[str, float]) -> None:
        """Logs the means and rates of the steps up to `step`."""
        if not self._active:
            return
        self._write(step, {f"train/{name}": value for name, value in values.items()})
        shown, pace = shown_values.of_steps(values), f"{values['steps_per_second']:.2f} steps/s"
        left = f"ETA {self._left(step, values['steps_per_second'])}"
        line = "  ".join([f"step {step}/{self._total}", *shown, pace, left])
        if self._bar is None:
            self.message(line)
        else:
            # One pace is enough: 80 columns shall have room for a bar.
            self._bar.say("  ".join([*(shown or [pace]), left]))
            self._bar.update(step - self._bar.n)
            self._write_down(line)
        if self._account.due():
            self._note()

    def evaluation(self, step: int, values: Mapping[str, float]) -> None:
        """Logs the results of an evaluation after `step` steps, named `<task>/<metric>`."""
        if not self._active:
            return
        self._write(step, {f"eval/{name}": value for name, value in values.items()})
        compared = {name for phase in self._baselines.values() for name in phase}
        lines = shown_values.of_evaluation(values, compared=compared)
        self.message(f"step {step}/{self._total}  " + "\n".join(lines))

    def evaluations(self, step: int) -> list[tuple[int, dict[str, float]]]:
        """The steps and values of the evaluations up to `step`; empty in other processes."""
        if not self._active:
            return []
        evaluations = []
        lines, _ = lines_up_to(self._files / METRICS_FILE, step)
        for line in lines:
            values = {
                name.removeprefix("eval/"): value
                for name, value in line.items()
                if name.startswith("eval/") and value is not None
            }
            if values:
                evaluations.append((line["step"], values))
        return evaluations

    def baselines(self, start: int, compute: Callable[[], Mapping[str, float]]) -> None:
        """Logs what evaluations compare with, in the phase that starts after `start` steps.

        Once a phase: `compute` is not called if the log has it already.
        """
        if self._active and start not in self._baselines:
            values = self._baselines[start] = dict(compute())
            if values:
                self._write(start, {f"baseline/{name}": value for name, value in values.items()})

    def baseline(self, start: int) -> Mapping[str, float]:
        """The values that `baselines` logged for a phase; empty in processes other than 0."""
        return self._baselines.get(start, {})

    def message(self, text: str) -> None:
        """Shows a line to the user."""
        if self._active:
            if self._bar is not None:
                self._bar.write(text, file=self._stream)
            else:
                print(text, file=self._stream, flush=True)
            self._write_down(text)

    def close(self, outcome: Outcome | None = None) -> None:
        """Ends the log; an error has ended the run if there is no outcome."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None
        if self._events is not None:
            with self._going_on("write TensorBoard's file"):
                self._events.close()
            self._events = None
        if self._started:
            self._started = False
            if (error := sys.exception()) is not None:
                self._write_down(f"error: {type(error).__name__}: {error}")
            status = "failed" if outcome is None else outcome.status
            self._note(status=status)
            self._summarise(status)
            with self._going_on("write the log"):
                self._metrics.flush()
            with self._going_on(f"write {LOG_FILE}"):
                self._text.flush()
        self._send()
        self._sender = None
        self._closed = True
        self._listening.close()
        self._closing.close()

    def keep(self) -> None:
        """Writes what is known up to now, and sends it to the run's bucket, if it has one.

        A run does so before it saves a checkpoint, so that the log of no saved step is lost. An
        error is only shown.
        """
        if self._active:
            self._note()
            self._summarise("running")
            self._send()

    def _note(self, **more: str) -> None:
        with self._going_on(f"write {STARTS_FILE}"):
            self._account.note(**more)

    def _summarise(self, status: str) -> None:
        with self._going_on(f"write {SUMMARY_FILE}"):
            self._account.summarise(status)

    def _write_down(self, text: str) -> None:
        if not self._closed:
            with self._going_on(f"write {LOG_FILE}"):
                self._text.add(text)

    def _send(self) -> None:
        if self._sender is not None:
            with self._going_on("send the log"):
                self._sender.send()

    def _left(self, step: int, rate: float) -> str:
        """The time to the last step, at the pace of the last lines, evaluations included.

        The first line uses `rate`, in steps per second: the time before it was compilation.
        """
        if step == self._begun + 1:
            return "unknown yet"  # there was one step only, with its compilation
        now = time.monotonic()
        pace = 1 / rate if rate else 0.0
        if self._marks and step > self._marks[0][0]:
            pace = (now - self._marks[0][1]) / (step - self._marks[0][0])
        self._marks.append((step, now))
        return tqdm.format_interval(pace * max(self._total - step, 0))

    def _write(self, step: int, values: Mapping[str, float]) -> None:
        with self._going_on("write the log"):
            self._metrics.add(step, values)
        if self._events is not None:
            with self._going_on("write TensorBoard's file"):
                self._events.add(step, values)

    @contextlib.contextmanager
    def _going_on(self, what: str) -> Iterator[None]:
        """Says what failed, once until it works again: a log never stops a run that trains."""
        try:
            yield
        except OSError as error:
            if what not in self._failing:
                self._failing.add(what)
                self.message(
                    f"Cannot {what} in {self.directory}: {error.strerror or error}. Training goes "
                    "on; the next line tries again."
                )
        else:
            self._failing.discard(what)


def _baselines(line: Mapping[str, Any]) -> dict[str, float]:
    return {
        name.removeprefix("baseline/"): value
        for name, value in line.items()
        if name.startswith("baseline/")
    }
