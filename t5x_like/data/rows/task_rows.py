"""Rows of several tasks, which one body reads and a head for each task answers."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from t5x_like.core.protocols.data import FeatureConverter, FeatureSpec, Objective, TokenIds
from t5x_like.core.protocols.tasks import TASK, of_task
from t5x_like.data.rows.feature_converters import Encoder

if TYPE_CHECKING:
    from t5x_like.data.rows.feature_converters import Example, Features, Row

_SHARED = ("inputs", "token_type_ids")
"""The features that the body reads, which rows of all tasks have."""


@dataclasses.dataclass(frozen=True)
class TaskRows:
    """Rows of an `Encoder` in which each task has features of its own, such as `sst2/labels`.

    A row has the features of all tasks, so that rows of several tasks share a batch. Those of other
    tasks than its own are zeros, and int32 `task` is the place of its own among `tasks`, or -1
    where it has none.

    Attributes:
      tasks: the objective of each task, in the order of their numbers.
      task: the name of the task whose rows it makes; None for rows of none, without labels.
    """

    tasks: Mapping[str, Objective]
    task: str | None = None

    kind: ClassVar = "encoder"
    pack: ClassVar = False
    task_features: ClassVar = ("inputs",)

    def convert(self, examples: Sequence[Example], *, features: Features, ids: TokenIds) -> Row:
        """The row of one example, or a row of padding without an example.

        Args:
          examples: at most one example of the task.
          features: L and dtype of each feature of the task.
          ids: the ids of the vocabulary.

        Raises:
          ValueError: a feature is missing, or there are several examples.
        """
        shared = {name: features[name] for name in _SHARED if name in features}
        row = Encoder().convert(examples, features=shared, ids=ids)
        number = -1
        for n, (name, objective) in enumerate(self.tasks.items()):
            is_own = name == self.task and bool(examples)
            number = n if is_own else number
            declared = objective.features({"inputs": features["inputs"].length or 0})
            labels = {key: spec for key, spec in declared.items() if key not in _SHARED}
            values = _labels(examples if is_own else (), labels, ids)
            row |= {of_task(name, key): value for key, value in values.items()}
        return {**row, TASK: np.array(number, np.int32)}


def _labels(examples: Sequence[Example], features: Mapping[str, FeatureSpec], ids: TokenIds) -> Row:
    return Encoder().convert(examples, features=features, ids=ids)


def bound(converter: FeatureConverter, task: str) -> FeatureConverter:
    """The converter for the rows of one task, where rows of several tasks share batches."""
    return (
        dataclasses.replace(converter, task=task) if isinstance(converter, TaskRows) else converter
    )


def apart(converter: FeatureConverter) -> FeatureConverter:
    """The converter for rows that hold one task alone, as if there were no others."""
    return Encoder() if isinstance(converter, TaskRows) else converter
