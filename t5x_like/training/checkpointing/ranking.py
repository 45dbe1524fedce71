"""The metric by which checkpoints are ranked, and its values in saved steps."""

from __future__ import annotations

import dataclasses
import json
import logging
import math
from collections.abc import Iterable, Mapping
from typing import Literal

import jax
from etils import epath

from t5x_like.core import whole_files
from t5x_like.core.spelling import nearest
from t5x_like.training.checkpointing.checkpoint_items import CheckpointError
from t5x_like.training.hosts import multihost

logger = logging.getLogger(__name__)

WantedStep = int | Literal["best"] | None
"""A step by its number, the best one, or the newest one (None)."""

METRICS = "metrics"
"""The item of a step, and its file, that has the metrics to rank it by."""
_PHASE = "phase"
_LOW = frozenset(
    {"loss", "perplexity", "bits", "nll", "error", "errors", "wer", "cer", "ter", "mae", "mse"}
)


@dataclasses.dataclass(frozen=True)
class BestMetric:
    """A metric by its whole name, `<task>/<metric>`, or its last part: the mean over tasks.

    Several names, with commas between them, stand for the mean of their metrics.

    Attributes:
      name: the name, or the names.
      higher: whether higher values are better.
    """

    name: str
    higher: bool

    @classmethod
    def parse(cls, text: str) -> BestMetric:
        """The metric that a setting names.

        Lower values are better if a word of the metric's name, such as `loss` in `content_loss`, is
        one of loss, perplexity, bits, nll, error, errors, wer, cer, ter, mae and mse. A sign before
        the name says it instead: `-` for lower, `+` for higher values.

        Raises:
          ValueError: it is not a name, or higher values of some and lower values of others of
            several are better.
        """
        if not isinstance(text, str) or not text.lstrip("+-"):
            raise ValueError(
                "BEST_METRIC must be the name of a metric, such as 'loss', 'accuracy' or "
                f"'my_task/accuracy', not {text!r}"
            )
        name = text[1:] if text[0] in "+-" else text
        lows = {bool(_LOW & {*_last(of).split("_")}) for of in name.split(",")}
        if text[0] not in "+-" and len(lows) > 1:
            raise ValueError(
                f"BEST_METRIC is {name!r}, of which some are better if they are lower, and some if "
                "they are higher: such metrics have no mean"
            )
        low = text[0] == "-" or (text[0] != "+" and lows == {True})
        return cls(name, not low)

    @property
    def names(self) -> list[str]:
        """The names, each of one metric."""
        return self.name.split(",")

    def value(self, metrics: Mapping[str, float]) -> float | None:
        """Its value in the metrics of an evaluation; None if they have none that is a number.

        Of several, all have one.
        """
        means = []
        for named in self.names:
            values = [x for name, x in metrics.items() if _is(named, name) and math.isfinite(x)]
            if not values:
                return None
            means.append(sum(values) / len(values))
        return sum(means) / len(means)

    def rank(self, metrics: Mapping[str, float]) -> tuple[float, ...]:
        """A sort key, lowest for the best of several `with_phase`; (inf,) without a value."""
        value = self.value(metrics)
        if value is None:
            return (math.inf,)
        return (-metrics.get(_PHASE, 0), -value if self.higher else value)

    def step_in(self, directory: epath.Path, steps: Iterable[int]) -> int:
        """The best of the steps that are saved below a directory.

        Raises:
          CheckpointError: no step has a value of the metric.
        """
        steps = [*steps]
        ranks = {step: self.rank(_known_metrics(directory / str(step))) for step in steps}
        best = min(steps, key=lambda step: ranks[step])
        if len(ranks[best]) == 1:
            raise CheckpointError(
                f"No step in {directory} has a value of {self.name!r} (BEST_METRIC), so none is "
                f"best: name one of the steps {steps}."
            )
        return best

    def check(self, names: Iterable[str]) -> None:
        """Raises ValueError if no metric of an evaluation has this name."""
        names = [*names]
        for named in self.names:
            if not any(_is(named, name) for name in names):
                known = sorted({*names, *map(_last, names)})
                raise ValueError(
                    f"BEST_METRIC is {named!r}, but no evaluation of this run gives such a metric"
                    + nearest(named, known, of="metrics")
                )


def _is(meant: str, name: str) -> bool:
    """Whether a metric of an evaluation is one that a setting means."""
    # The loss of a text-to-text task has a name that says what it is of.
    either = ("loss", "token_loss") if meant == "loss" else (meant,)
    return name in either or name.endswith(tuple(f"/{ending}" for ending in either))


def _last(name: str) -> str:
    return name.rpartition("/")[2]


def with_phase(metrics: Mapping[str, float], phase: int) -> dict[str, float]:
    """Metrics to rank: those of a later phase, a number that rises, come before all others.

    Means of different phases are not comparable: the last phase that has one counts.
    """
    return {**metrics, _PHASE: phase}


def _known_metrics(directory: epath.Path) -> dict[str, float]:
    """`saved_metrics`; none, with a message, if they are damaged: the step itself may be good."""
    try:
        return saved_metrics(directory)
    except ValueError as error:
        logger.warning("Step %s has no rank: %s", directory.name, error)
        return {}


def saved_metrics(directory: epath.Path) -> dict[str, float]:
    """The metrics in the directory of a step, `with_phase`; empty if there are none.

    Raises:
      ValueError: they are damaged.
    """
    file = directory / METRICS / METRICS
    try:
        metrics = whole_files.read_json(file)
    except FileNotFoundError:
        return {}
    if not all(type(value) in (int, float) for value in metrics.values()):
        raise ValueError(f"{file} is damaged: a metric is not a number")
    return metrics


def has_metrics(directory: epath.Path) -> bool:
    """Whether there was an evaluation before a step was saved in a directory."""
    return not saved_metrics(directory).keys() <= {_PHASE}


def write_metrics(directory: epath.Path, metrics: Mapping[str, float]) -> None:
    """Writes metrics, `with_phase`, where `saved_metrics` and Orbax read them; all call it."""
    if jax.process_index() == 0:
        (directory / METRICS).mkdir(exist_ok=True)
        whole_files.write(directory / METRICS / METRICS, json.dumps(dict(metrics)).encode())
    multihost.barrier("metrics of a saved step written")
