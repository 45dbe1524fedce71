"""The average over several tasks, as GLUE counts it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from t5x_like.sweeps import axes
from t5x_like.sweeps.results import Result
from t5x_like.sweeps.trials import TASK

GLUE = ("cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte", "wnli")
"""The tasks that `glue` stands for (Wang et al., 2019, table 1)."""
AVERAGE = "average"
_TWO = {
    "mrpc": ("f1", ("accuracy", "exact_match")),
    "qqp": ("f1", ("accuracy", "exact_match")),
    "stsb": ("pearson", ("spearman",)),
}
"""The tasks with two metrics, whose mean is their score: the first, and names of the second."""


def score(result: Result) -> float | None:
    """The score of a trial of a task: its metric, or the mean of the two that GLUE gives the task.

    Both are those of the evaluation that was best by the first. None where one has no value.
    """
    first, others = _TWO.get(str(result.setting.get(TASK)), ("", ()))
    if not first:
        return result.value
    values = [result.metrics.get(first), *(result.metrics.get(name) for name in others)]
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if len(known) == 2 else None


def averages(results: Iterable[Result], tasks: Sequence[str]) -> list[Result]:
    """The mean score over all tasks, for each setting and seed of which all tasks have one."""
    groups: dict[str, dict[str, Result]] = {}
    for result in results:
        groups.setdefault(_others(result), {})[str(result.setting[TASK])] = result
    return [
        _average([of_task[task] for task in tasks])
        for of_task in groups.values()
        if {*tasks} <= {*of_task} and all(score(of_task[task]) is not None for task in tasks)
    ]


def _others(result: Result) -> str:
    """The setting without the task, and the seed."""
    setting: Mapping[str, Any] = {k: x for k, x in result.setting.items() if k != TASK}
    return axes.label({**setting, "seed": result.seed})


def _average(of_tasks: Sequence[Result]) -> Result:
    scores = [value for value in map(score, of_tasks) if value is not None]
    first = of_tasks[0]
    return Result(
        trial="",
        setting={**first.setting, TASK: AVERAGE},
        seed=first.seed,
        metric="score",
        higher=True,
        value=sum(scores) / len(scores),
        step=None,
        metrics={},
        floor=None,
        evaluations=(),
        ended_early=None,
        diverged=False,
        seconds=sum(result.seconds for result in of_tasks),
    )
