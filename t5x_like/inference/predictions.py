"""Predictions for many records: sorted by length, restartable, written in the records' order."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from t5x_like.core import progress, whole_files
from t5x_like.core.partial_files import PartialFile
from t5x_like.inference.heads.head_answers import HeadAnswers

Record = Mapping[str, Any]

_BATCHES = 4  # predicted between two writes


class Predictor(Protocol):
    """Turns records, each with the text `inputs` and maybe other fields, into predictions."""

    @property
    def batch_size(self) -> int:
        """The rows that are computed at once."""

    def check(self, record: Record) -> None:
        """Raises ValueError where a record cannot be predicted; called before any work."""

    def __call__(self, records: Sequence[Record]) -> list[dict[str, Any]]:
        """The JSON fields of each record's prediction; `truncated` where its text was cut."""


class Summary(NamedTuple):
    """How many records there were, how many were predicted now and in which time, how many cut."""

    records: int
    predicted: int
    seconds: float
    truncated: int


def check_all(predictor: Predictor, records: Sequence[Record]) -> None:
    """Raises ValueError, with the record's place, where one cannot be predicted."""
    for number, record in enumerate(records, start=1):
        try:
            if isinstance(record["inputs"], list) and not isinstance(predictor, HeadAnswers):
                raise ValueError("lists of words are for models that answer with tags")
            predictor.check(record)
        except ValueError as error:
            raise ValueError(f"input {number}: {error}") from error


def predict(
    predictor: Predictor,
    records: Sequence[Record],
    *,
    done: Mapping[int, dict[str, Any]] | None = None,
    shown: bool = False,
) -> Iterator[list[tuple[int, dict[str, Any]]]]:
    """Predictions of the records that are not `done`, the longest first.

    Args:
      predictor: what predicts.
      records: the records.
      done: predictions that exist, by the record's number.
      shown: whether to show a bar on standard error.

    Yields:
      Some records' numbers and predictions at a time.
    """
    left = [n for n in range(len(records)) if n not in (done or {})]
    left.sort(key=lambda n: -len(records[n]["inputs"]))
    size = _BATCHES * predictor.batch_size
    with progress.bar(total=len(left), desc="predicting", unit=" texts", shown=shown) as bar:
        for start in range(0, len(left), size):
            numbers = left[start : start + size]
            predictions = predictor([records[n] for n in numbers])
            yield list(zip(numbers, predictions, strict=True))
            bar.update(len(numbers))


def predict_to_file(
    predictor: Predictor, records: Sequence[Record], path: Path, *, identity: Mapping[str, Any]
) -> Summary:
    """Writes a JSON line for each record, in order: its own fields, then its prediction's.

    A `.npy` file gets the `embedding` of each record instead, float32 [records, d_model]. Until all
    are there, they lie in `<path>.partial`. Started again, this goes on from there.

    Args:
      predictor: what predicts.
      records: the records.
      path: the file; it is replaced once all predictions exist.
      identity: JSON that differs where predictions would differ.

    Raises:
      ValueError: the partial file belongs to other inputs or settings.
      OSError: the file cannot be written.
    """
    partial = PartialFile(path, identity)
    done: dict[int, dict[str, Any]] = dict(partial.resume())
    before, began = len(done), time.perf_counter()
    for some in predict(predictor, records, done=done, shown=True):
        partial.add(some)
        done |= dict(some)
    with whole_files.output(path) as output:
        if path.suffix == ".npy":
            rows = [done[n]["embedding"] for n in range(len(records))]
            whole_files.write_array(output, np.array(rows, "f4"))
        else:
            for n, record in enumerate(records):
                line = json.dumps({**record, **done[n]}, ensure_ascii=False)
                output.write((line + "\n").encode())
    partial.remove()
    cut = sum("truncated" in prediction for prediction in done.values())
    return Summary(len(records), len(records) - before, time.perf_counter() - began, cut)
