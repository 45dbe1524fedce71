"""Many runs of `finetune`, one after another in this process."""

from __future__ import annotations

import dataclasses
import datetime
import inspect
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax

from t5x_like.api.finetuning import finetune
from t5x_like.api.pretraining import Pretraining
from t5x_like.core.buckets import storage
from t5x_like.core.spelling import nearest
from t5x_like.data.corpora.text_files import TextFiles
from t5x_like.runs import run_directory
from t5x_like.runs.phases import run_phases
from t5x_like.runs.program import Programs
from t5x_like.runs.settings.finetuning.methods import Method
from t5x_like.sweeps import axes, results
from t5x_like.sweeps.averages import GLUE
from t5x_like.sweeps.axes import Range
from t5x_like.sweeps.results import Result
from t5x_like.sweeps.stopping import MedianStopping
from t5x_like.sweeps.table import Table
from t5x_like.sweeps.trials import EXAMPLES, TASK, TRIALS, Trial, planned, remember
from t5x_like.training.checkpointing.ranking import BestMetric
from t5x_like.training.health.bad_steps import BadStepError

if TYPE_CHECKING:
    from t5x_like.training.callbacks import Outcome

_OF_SWEEPS = ("source", "task", "examples", "seed", "model_dir", "callbacks", "gin")
"""Arguments of `finetune` that a sweep sets itself, or has as arguments of its own."""


def sweep(
    source: str,
    *,
    grid: Mapping[str, Sequence[Any]] | None = None,
    draw: Mapping[str, Range | Sequence[Any]] | None = None,
    trials: int | None = None,
    draw_seed: int = 0,
    seeds: int | Sequence[int] = 3,
    examples: Sequence[int | str] = (),
    task: str | Sequence[str] | None = None,
    stop_bad: bool = False,
    model_dir: str | None = None,
    gin: Sequence[str] = (),
    **settings: Any,
) -> Table:
    """Fine-tunes a model with several settings and seeds, and says what they came to.

    Each is an ordinary run, equal to that of `finetune`; those of the same shapes share what is
    compiled. The same call goes on with a sweep.

    Args:
      source: as in `finetune`.
      grid: {axis: values}: a number or a name of `finetune` or `Method`, or a setting of gin.
      draw: {axis: (low, high)}, or (low, high, "log"): ranges from which values are drawn.
      trials, draw_seed: how often all ranges are drawn, and the seed of the draws.
      seeds: how many seeds each setting has, from 0, or the seeds.
      examples: numbers of training rows, or "all": a curve. Each seed draws rows of its own.
      task: a task by name or several, "glue" for those of GLUE.
      stop_bad: end trials that are worse than the median of finished ones (`MedianStopping`).
      model_dir, gin: the folder (None: `<source>-<files>-sweep`); settings of gin of all runs.
      **settings: the other arguments of `finetune`, the same in all runs.

    Raises:
      ValueError, OSError: axes or settings do not fit, the folder has another sweep, a run fails.
    """
    given = _Given.of(source, settings, gin, _tasks(task))
    given.check([*(grid or {}), *(draw or {})])
    ranges = {
        name: x if isinstance(x, Range) else _range(name, x) for name, x in (draw or {}).items()
    }
    together = axes.settings(grid or {}, ranges, trials=trials, draw_seed=draw_seed)
    seeds = range(seeds) if isinstance(seeds, int) else seeds
    several = given.tasks if len(given.tasks) > 1 else ()
    plan = planned(together, seeds, tasks=several, examples=examples)
    directory = Path(model_dir or given.directory())
    if storage.is_url(str(directory)) or jax.process_count() > 1:
        raise ValueError("a sweep runs in one process, and its folder lies on a disk")
    about = given.about(
        grid=grid or {},
        draw={name: str(drawn) for name, drawn in ranges.items()},
        trials=trials,
        draw_seed=draw_seed,
        examples=examples,
        stop_bad=stop_bad,
    )
    runs = _Runs(given, directory, stop_bad=stop_bad)
    runs.check([trial for trial in plan if trial.seed == seeds[0]])
    remember(directory, about, plan)
    with run_directory.sole_run(directory):
        return runs.table(plan)


def _tasks(task: str | Sequence[str] | None) -> tuple[str, ...]:
    """The names of tasks."""
    if isinstance(task, str):
        return GLUE if task == "glue" else (task,)
    return tuple(task or ())


def _range(name: str, ends: Sequence[Any]) -> Range:
    """The range of a tuple; raises ValueError for another one."""
    low, high, *log = ends if len(ends) in (2, 3) else ("", "")
    if isinstance(low, int | float) and isinstance(high, int | float) and log in ([], ["log"]):
        return Range(low, high, bool(log))
    raise ValueError(f"{name}: a range is (low, high) or (low, high, 'log'), not {ends!r}")


@dataclasses.dataclass(frozen=True)
class _Given:
    """What all runs of a sweep share: arguments of `finetune`, and those of its `Method`."""

    source: str
    settings: Mapping[str, Any]
    gin: Sequence[str]
    tasks: Sequence[str]

    @classmethod
    def of(
        cls, source: str, settings: Mapping[str, Any], gin: Sequence[str], tasks: Sequence[str]
    ) -> _Given:
        """The arguments of a sweep; raises ValueError for those that `finetune` lacks."""
        known = [name for name in inspect.signature(finetune).parameters if name not in _OF_SWEEPS]
        for name in settings:
            if name not in known:
                raise ValueError(
                    f"{name!r} is not a setting of all runs of a sweep"
                    + nearest(name, known, of="settings")
                )
        method = settings.get("method")
        of_method = method if isinstance(method, Method) else Method(method)
        named = {**settings, **of_method._asdict(), "method": of_method.name}
        named.pop("name")
        return cls(source, {k: x for k, x in named.items() if x is not None}, gin, tasks)

    def check(self, names: Sequence[str]) -> None:
        """Raises ValueError for an axis that is set for all runs as well."""
        macros = {binding.partition("=")[0].strip() for binding in self.gin}
        for name in names:
            if name in self.settings or name in macros:
                raise ValueError(f"{name} is both an axis and a setting of all runs: leave out one")

    def directory(self) -> str:
        """The usual folder of the sweep.

        Raises:
          ValueError: nothing is named to learn.
        """
        train: str | Sequence[str] | None = self.settings.get("train")
        learned = "+".join(self.tasks)
        if not learned:
            if train is None:
                raise ValueError("say what there is to learn: files (train), or a task (task)")
            learned = TextFiles(train).name
        return f"{self.source.rstrip('/')}-{learned}-sweep"

    def about(self, **said: Any) -> dict[str, Any]:
        """What decides the trials, besides their seeds, as JSON."""
        settings = {name: x for name, x in self.settings.items() if name != "cache_dir"}
        return {"source": self.source, **settings, "gin": self.gin, "task": self.tasks, **said}

    def run(self, trial: Trial, model_dir: Path) -> Pretraining:
        """The run of a trial; errors are those of `finetune`."""
        values = {**self.settings, **trial.arguments()}
        of_method = {name: values.pop(name, None) for name in Method._fields[1:]}
        if self.tasks:
            values.setdefault(TASK, self.tasks[0])
        return finetune(
            self.source,
            **{**values, "method": Method(values.get("method"), **of_method)},
            seed=trial.seed,
            model_dir=str(model_dir),
            gin=[*self.gin, *trial.bindings()],
        )


class _Runs:
    """The runs of a sweep, which share their programs."""

    def __init__(self, given: _Given, directory: Path, *, stop_bad: bool) -> None:
        self._given, self._directory, self._stop_bad = given, directory, stop_bad
        self._programs = Programs()
        self._made: dict[str, Pretraining] = {}
        self._ended = results.read(directory)

    def check(self, trials: Sequence[Trial]) -> None:
        """Makes the runs of trials, so that errors come before any is trained."""
        for trial in trials:
            if trial.name in self._ended:
                continue
            try:
                self._made[trial.name] = made = self._given.run(trial, self._folder(trial))
                phases = run_phases(made.run)
                for phase, program in zip(
                    phases, self._programs.of([phase.run for phase in phases]), strict=True
                ):
                    phase.check_program(program)
            except (ValueError, OSError):
                print(f"The trial {trial.label} cannot run.", file=sys.stderr)
                raise

    def table(self, trials: Sequence[Trial]) -> Table:
        """Trains all trials that have not ended, and says what all came to."""
        begun, left = time.monotonic(), [t for t in trials if t.name not in self._ended]
        for done, trial in enumerate(left):
            passed = time.monotonic() - begun
            rest = f"; about {_duration(passed / done * (len(left) - done))} left" if done else ""
            number = len(trials) - len(left) + done + 1
            print(f"Trial {number} of {len(trials)}: {trial.label}{rest}.", file=sys.stderr)
            result = self._result(trial)
            if result is None:
                break
            self._ended[trial.name] = result
            results.write(self._directory, self._ended.values())
        ended = [self._ended[trial.name] for trial in trials if trial.name in self._ended]
        return Table(self._directory, ended, len(trials) - len(ended))

    def _folder(self, trial: Trial) -> Path:
        return self._directory / TRIALS / trial.name

    def _result(self, trial: Trial) -> Result | None:
        """Trains a trial; None if it was asked to leave before its end."""
        begun, folder = time.monotonic(), self._folder(trial)
        made = self._made.pop(trial.name, None) or self._given.run(trial, folder)
        best = BestMetric.parse(made.run.options.best_metric)
        judge = self._judge(trial, best) if self._stop_bad else None
        run = dataclasses.replace(
            made, callbacks=() if judge is None else (judge,), programs=self._programs
        )
        diverged = False
        try:
            if run.train().left if judge is None else _trained(run, judge):
                return None
        except BadStepError as error:
            print(f"The trial {trial.label} has diverged: {error}", file=sys.stderr)
            diverged = True
        return results.measured(
            folder,
            best,
            trial=trial.name,
            setting=trial.setting,
            seed=trial.seed,
            ended_early=None if judge is None else judge.ended_at,
            diverged=diverged,
            seconds=round(time.monotonic() - begun, 1),
        )

    def _judge(self, trial: Trial, best: BestMetric) -> MedianStopping:
        """What ends a trial if it is bad."""
        place = [trial.setting.get(name) for name in (TASK, EXAMPLES)]
        finished = [
            result
            for result in self._ended.values()
            if result.ended_early is None
            and not result.diverged
            and [result.setting.get(name) for name in (TASK, EXAMPLES)] == place
        ]
        _, before = results.best_of(self._folder(trial), best)
        return MedianStopping(best, finished, before)


def _trained(run: Pretraining, judge: MedianStopping) -> bool:
    """Trains a run until its end, or until it is bad; says whether it was asked to leave."""
    taken = run.steps()
    while judge.ended_at is None:
        try:
            next(taken)
        except StopIteration as ended:
            outcome: Outcome = ended.value
            return outcome.left
    taken.close()  # saves the step that was reached
    return False


def _duration(seconds: float) -> str:
    """A time such as 0:12:05."""
    return str(datetime.timedelta(seconds=round(seconds)))
