"""The table of a sweep: its trials that have ended, and what they came to by setting."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path

from t5x_like.core import whole_files
from t5x_like.sweeps import axes, results, summary
from t5x_like.sweeps.averages import AVERAGE, averages
from t5x_like.sweeps.results import Result
from t5x_like.sweeps.summary import Summary
from t5x_like.sweeps.trials import SWEEP_FILE, TASK, TRIALS


@dataclasses.dataclass(frozen=True)
class Table:
    """What a sweep has come to.

    Attributes:
      directory: its folder.
      results: the trials that have ended, in the order of the sweep.
      left: how many have not.
    """

    directory: Path
    results: Sequence[Result]
    left: int = 0

    @classmethod
    def read(cls, directory: Path) -> Table:
        """The table of a sweep's folder.

        Raises:
          ValueError, OSError: its files cannot be read.
        """
        names = whole_files.read_json(directory / SWEEP_FILE)["trials"]
        known = results.read(directory)
        return cls(directory, [*known.values()], sum(name not in known for name in names))

    @property
    def summaries(self) -> list[Summary]:
        """What each setting came to; with several tasks also the average over them."""
        tasks = [*dict.fromkeys(str(r.setting[TASK]) for r in self.results if TASK in r.setting)]
        mean = averages(self.results, tasks) if tasks else []
        return summary.summaries([*self.results, *mean])

    @property
    def best(self) -> list[Summary]:
        """The setting with the best median, of each task and number of examples."""
        return summary.best(self.summaries)

    def run(self, result: Result) -> str:
        """The directory of a trial's run, an ordinary one."""
        return str(self.directory / TRIALS / result.trial)

    def conclusions(self) -> Iterator[str]:
        """Sentences about the best settings and how to go on."""
        if not self.results:
            yield "No trial has ended yet."
            return
        if self.left:
            yield f"{self.left} of {self.left + len(self.results)} trials have not ended."
        failed = sum(result.failed for result in self.results)
        if failed:
            yield (
                f"{failed} of {len(self.results)} trials are not better than always giving the "
                "same answer."
            )
        if one_class := sum(result.one_class for result in self.results):
            yield (
                f"In {one_class} of {len(self.results)} trials all held-out rows have one class, "
                "so that none can be better: hold out more rows, or others (--dev)."
            )
        best = self.best
        if len(self.summaries) == len(best) > 1:  # tasks or numbers of examples, without a choice
            return
        for of in best:
            assert of.best is not None
            assert of.median is not None
            label = axes.label(of.setting) or "the usual setting"
            yield f"Best by its median: {label} ({of.best.metric} {of.median:.4f})."
            if of.setting.get(TASK) != AVERAGE:
                yield f"  its best run: t5x_like predict {self.run(of.best)} --step best 'a text'"

    def __str__(self) -> str:
        """The table and the conclusions."""
        metrics = dict.fromkeys(result.metric for result in self.results)
        title = [f"Held-out {', '.join(metrics)} by setting:"] if metrics else []
        table = summary.lines(self.summaries) if self.results else []
        return "\n".join([*title, *table, "", *self.conclusions()])


def runs(directory: str) -> list[str]:
    """The directories of the runs of a sweep that have ended with a value; others are themselves.

    Raises:
      ValueError, OSError: the files of a sweep cannot be read, or none has ended so.
    """
    if not (Path(directory) / SWEEP_FILE).exists():
        return [directory]
    table = Table.read(Path(directory))
    ended = [table.run(result) for result in table.results if result.value is not None]
    if not ended:
        raise ValueError(f"{directory} is a sweep of which no run has ended with a value")
    return ended
