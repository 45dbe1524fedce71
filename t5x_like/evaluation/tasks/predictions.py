"""Predictions in files: answers so far, which a killed command continues, and the readable end."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from t5x_like.core import whole_files
from t5x_like.core.partial_files import PartialFile
from t5x_like.core.protocols.answers import Answers
from t5x_like.evaluation.task_metrics import target_text
from t5x_like.evaluation.tasks.evaluated_task import EvaluatedTask


@dataclasses.dataclass(frozen=True)
class AnswersSoFar:
    """Answers beside the file of predictions that they will become.

    Attributes:
      partial: the answers so far, a row of `fields` for each example in order.
      fields: the fields of `Answers` that are kept.
    """

    partial: PartialFile
    fields: Sequence[str]

    def add(self, answers: Answers) -> None:
        """Appends the answers to the next examples."""
        columns = [[_plain(value) for value in getattr(answers, field)] for field in self.fields]
        self.partial.add(zip(*columns, strict=True))

    def read(self) -> Answers:
        """All answers so far.

        Raises:
          ValueError: they are answers of other settings.
          OSError: the file cannot be written.
        """
        rows = self.partial.resume()
        columns: dict[str, list[Any]] = {
            field: [row[n] for row in rows] for n, field in enumerate(self.fields)
        }
        if "predictions" in columns:
            columns["predictions"] = [np.array(ids, np.int32) for ids in columns["predictions"]]
        return Answers(**columns)

    def finish(self, task: EvaluatedTask, answers: Answers) -> None:
        """Writes the file of predictions in place of the answers."""
        with whole_files.writing(self.partial.file) as out:
            for line in readable_lines(task, answers):
                out.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")
        self.partial.remove()


def readable_lines(task: EvaluatedTask, answers: Answers) -> Iterator[dict[str, Any]]:
    """For each example its `inputs`, `prediction`, `target` and `score` and the task's raw fields.

    Ids of features are left out, because their text is there.
    """
    tokens = set(task.lengths)
    for n, example in enumerate(task.examples):
        line = {}
        if "inputs" in example:
            text = example.get("inputs_pretokenized")
            line["inputs"] = task.decode(list(example["inputs"])) if text is None else text
        if answers.predictions:
            line["prediction"] = task.decode(list(answers.predictions[n]))
        line["target"] = target_text(example, task.decode)
        if answers.scores:
            line["score"] = answers.scores[n]
        raw = {
            name: value
            for name, value in example.items()
            if name not in tokens and not name.endswith("_pretokenized") and name not in line
        }
        yield {name: _plain(value) for name, value in {**line, **raw}.items()}


def _plain(value: Any) -> Any:
    """A value of NumPy or SeqIO as JSON: bytes are text, nan and infinity are null."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
