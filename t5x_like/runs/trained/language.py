"""Evaluations of language by name, with what a run knows beside its model."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from flax import nnx

from t5x_like.core.spelling import nearest
from t5x_like.data.vocabulary_choice import never
from t5x_like.evaluation.language import (
    analogies,
    last_words,
    layer_probes,
    minimal_pairs,
    multiple_choice,
    similarity,
)
from t5x_like.evaluation.language.results import Model, Results, Settings
from t5x_like.evaluation.unigram import text_counts
from t5x_like.runs.trained.baseline_comparison import untrained_params

if TYPE_CHECKING:
    from t5x_like.runs.trained.trained_run import TrainedRun


class LoadedModel(Model, Protocol):
    """A dataclass with its run, which is None where it was imported."""

    @property
    def run(self) -> TrainedRun | None: ...


class Evaluation(NamedTuple):
    """An evaluation.

    Attributes:
      evaluate: makes its results of a model, files and settings.
      reads: the names of the settings that it reads.
      what: what it measures.
    """

    evaluate: Callable[[Any, Any, Settings], Results]
    reads: Sequence[str]
    what: str


EVALUATIONS: Mapping[str, Evaluation] = {
    name: Evaluation(module.evaluate, module.READS, what)
    for name, module, what in (
        ("pairs", minimal_pairs, "minimal pairs: the likelier of two sentences (BLiMP, CLAMS)"),
        ("lambada", last_words, "the last word of a passage (LAMBADA)"),
        ("choices", multiple_choice, "multiple choice by likelihood"),
        ("similarity", similarity, "cosines of sentences and people's ratings (STS)"),
        ("analogies", analogies, "word analogies by the vectors of tokens"),
        ("probe", layer_probes, "linear probes of the layers, for tags or classes"),
    )
}


def evaluate(model: LoadedModel, name: str, files: str | Sequence[str], **given: Any) -> Results:
    """The results of an evaluation by name, as `t5x_like language`.

    Args:
      model: what `t5x.load` gives.
      name: one of `EVALUATIONS`.
      files: the files to evaluate on.
      given: fields of `Settings`, such as `examples`.

    Raises:
      ValueError, OSError: there is no such evaluation, it does not read a setting, the files are
        missing or of another form, or the model cannot be asked this.
    """
    if name not in EVALUATIONS:
        raise ValueError(f"no evaluation {name!r}{nearest(name, [*EVALUATIONS], of='evaluations')}")
    evaluation = EVALUATIONS[name]
    for setting in given:
        if setting not in evaluation.reads:
            raise ValueError(f"{name} reads no {setting}: it reads {', '.join(evaluation.reads)}")
    settings = Settings(**given)
    if model.run is not None and "counts" in evaluation.reads:
        settings = dataclasses.replace(settings, counts=_counts(model.run))
    if model.run is not None and "untrained" in evaluation.reads:
        settings = dataclasses.replace(settings, untrained=untrained(model, model.run))
    return evaluation.evaluate(model, files, settings)


def untrained(model: Any, run: TrainedRun) -> Model:
    """The same model with newly drawn parameters."""
    params = untrained_params(run)
    fresh: Model = dataclasses.replace(model, model=nnx.merge(run.program.graphdef, params))
    return fresh


def _counts(run: TrainedRun) -> np.ndarray | None:
    """How often each id occurs in the training text; None where it or its cache is not there."""
    try:
        counts = sum(text_counts(run.run.data.open(once=never)).values())
    except (ValueError, OSError):
        return None
    return counts if isinstance(counts, np.ndarray) and counts.ndim else None
