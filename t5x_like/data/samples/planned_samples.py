"""Samples from a plan, which lists the start and the end of each sample's texts in the stream."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from t5x_like.core.protocols.data import TokenIds
from t5x_like.data.samples import plans
from t5x_like.data.samples.plan_parts import END, START, PlanParts, texts_of
from t5x_like.data.samples.randomness import noise_source
from t5x_like.data.samples.token_stream import FEATURE, TokenStream

_SPAN = (f"{FEATURE}{START}", f"{FEATURE}{END}")


class PlannedSamples:
    """A sample for each row of a plan.

    Args:
      stream: the tokens.
      plan: the plan, with a row for each sample.
      columns: the names of the plan's columns, as in `geometry.Planned`.
      segments_of: the text of whose segments a sample holds the starts; None for none.
      constants: additional features of every sample.
    """

    def __init__(
        self,
        stream: TokenStream,
        plan: plans.Table,
        *,
        columns: Sequence[str] = _SPAN,
        segments_of: str | None = None,
        constants: Mapping[str, np.ndarray] | None = None,
    ) -> None:
        self.stream = stream
        self.plan = plan
        self.constants = dict(constants or {})
        self._texts = texts_of(columns)
        self._numbers = [
            (name, i) for i, name in enumerate(columns) if not name.endswith((START, END))
        ]
        self._segments_of = None if segments_of is None else self._texts[segments_of]

    def __len__(self) -> int:
        return len(self.plan.values)

    def __getitem__(self, i: int) -> tuple[dict[str, np.ndarray]]:
        if not 0 <= i < len(self):
            raise IndexError(f"no sample {i} among {len(self)}")
        row = self.plan.values[i].tolist()
        sample = {
            name: self.stream.read(row[start], row[end])
            for name, (start, end) in self._texts.items()
        }
        for name, column in self._numbers:
            sample[name] = np.array(row[column], np.int32)
        if self._segments_of is not None:
            start, end = self._segments_of
            sample["segments"], sample["documents"] = self.stream.marks(row[start], row[end])
        return (sample | self.constants,)


def split_documents(stream: TokenStream, length: int) -> PlannedSamples:
    """The parts of documents, each cut every `length` tokens, as for `geometry.SplitDocuments`."""

    def blocks() -> Iterator[np.ndarray]:
        for bounds in stream.documents():
            starts, ends = bounds.T
            counts = -(-(ends - starts) // length)
            before = np.repeat(np.cumsum(counts) - counts, counts)
            place = np.arange(len(before)) - before
            begin = np.repeat(starts, counts) + place * length
            yield np.stack([begin, np.minimum(begin + length, np.repeat(ends, counts))], axis=1)

    what = f"documents cut every {length}"
    return PlannedSamples(
        stream, plans.load_or_make(stream.split, what, blocks, columns=len(_SPAN))
    )


def plan_samples(
    stream: TokenStream,
    shape: Any,
    number: int = 0,
    *,
    constants: Mapping[str, np.ndarray],
    rows: int | None,
    ids: TokenIds | None,
    glimpse: bool = False,
) -> PlannedSamples:
    """The samples of a `geometry.Planned`, or of a `geometry.Carried` for batches of `rows`.

    Args:
      stream: the tokens.
      shape: the geometry.
      number: the number of the pass over the text.
      constants: additional features of every sample.
      rows: the rows of a batch.
      ids: the ids of the vocabulary.
      glimpse: whether to plan only the first part of the text, and not to keep the plan.

    Raises:
      ValueError: `rows` is None for a carried geometry, or the plan is invalid.
    """
    if getattr(shape, "passes", 1) > 1:  # a pass has the same plan, whatever their number
        shape = dataclasses.replace(shape, passes=1)
    columns = tuple(shape.columns)
    texts_of(columns)
    carried = hasattr(shape, "plan_rows")
    if carried and rows is None:
        raise ValueError(f"{shape} carries rows from batch to batch: say how many a batch has")
    pass_name = f"|pass {number}" if number else ""

    # The noise depends on the geometry alone: a text has one plan, which all runs share.
    source = noise_source("plan", shape) + pass_name
    parts = PlanParts(stream, shape, rows if carried else None, ids, source)

    what = f"{plans.identity(shape)}|{rows}" if carried else plans.identity(shape) + pass_name
    if ids is not None and ids.word_starts is not None:
        what += "|words"
    if glimpse:
        table = plans.Table(parts.first())
    else:
        table = plans.load_or_make(stream.split, what, parts.made, columns=len(columns), bar=False)
    if carried and rows is not None and len(table.values) % rows:
        raise ValueError(f"{shape} planned {len(table.values)} samples for batches of {rows} rows")
    return PlannedSamples(
        stream, table, columns=columns, segments_of=shape.segments_of, constants=constants
    )
