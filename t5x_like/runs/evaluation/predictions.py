"""Predictions in files: answers so far, which a killed command continues, and the readable end."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from t5x_like.core import whole_files
from t5x_like.core.task_answers import Answers
from t5x_like.evaluation.task_metrics import target_text
from t5x_like.runs.evaluation.evaluated_task import EvaluatedTask

_SUFFIX = ".unfinished"


@dataclasses.dataclass(frozen=True)
class AnswersSoFar:
    """Answers beside the file of predictions that they will become, one line an example.

    The first line has the settings: other settings begin again.

    Attributes:
      file: the file of predictions.
      settings: JSON that decides the answers.
      fields: the fields of `Answers` that are kept.
    """

    file: Path
    settings: Mapping[str, Any]
    fields: Sequence[str]

    @property
    def _path(self) -> Path:
        return self.file.with_name(self.file.name + _SUFFIX)

    @property
    def _header(self) -> bytes:
        return json.dumps({**self.settings, "fields": [*self.fields]}).encode() + b"\n"

    def resume(self) -> int:
        """The number of examples that are answered; drops a line that was cut off.

        Raises:
          OSError: the file cannot be written.
        """
        self.file.parent.mkdir(parents=True, exist_ok=True)
        lines = self._lines()
        if not lines or lines[0] != self._header:
            lines = [self._header]
        whole_files.write(self._path, b"".join(lines))
        return len(lines) - 1

    def add(self, answers: Answers) -> None:
        """Appends the answers to the next examples."""
        columns = [[_plain(value) for value in getattr(answers, field)] for field in self.fields]
        with self._path.open("ab") as file:
            for row in zip(*columns, strict=True):
                file.write(json.dumps(row).encode() + b"\n")

    def read(self) -> Answers:
        """All answers so far."""
        rows = [json.loads(line) for line in self._lines()[1:]]
        columns: dict[str, list[Any]] = {
            field: [row[n] for row in rows] for n, field in enumerate(self.fields)
        }
        if "predictions" in columns:
            columns["predictions"] = [np.array(ids, np.int32) for ids in columns["predictions"]]
        return Answers(**columns)

    def finish(self, task: EvaluatedTask) -> None:
        """Writes the file of predictions in place of the answers."""
        answers = self.read()
        with whole_files.writing(self.file) as out:
            for line in readable_lines(task, answers):
                out.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")
        self._path.unlink()

    def _lines(self) -> list[bytes]:
        if not self._path.exists():
            return []
        lines = self._path.read_bytes().splitlines(keepends=True)
        return [line for line in lines if line.endswith(b"\n")]


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
        return [_plain(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
