"""Plans are made in parts, whatever the number of processes that share them.

A part is some documents, or some steps of carried rows. Its random numbers follow from its number,
so that a plan depends on the text and the geometry alone.
"""

from __future__ import annotations

import dataclasses
import itertools
import multiprocessing
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from t5x_like.core import progress
from t5x_like.core.protocols.data import TokenIds
from t5x_like.data.cache import workers
from t5x_like.data.samples.randomness import example_rng
from t5x_like.data.samples.segments import Segments
from t5x_like.data.samples.token_stream import TokenStream

START, END = "_start", "_end"
"""Of the names of two columns between which a text lies."""

_TOKENS = 1 << 23
"""Tokens of a part, at least. Blocks of sentences end where a part does."""
_PARTS_OF_A_PROCESS = 4
"""Fewer take less time than the start of a process."""
_SILENT_SECONDS = 2


@dataclasses.dataclass(frozen=True)
class PlanParts:
    """The parts of a plan; calling it makes one. It can be pickled.

    Attributes:
      stream: the tokens.
      shape: a `geometry.Planned`, or a `geometry.Carried`.
      rows: those of a batch, for the latter.
      ids: of the vocabulary; None where every token begins a word.
      source: the name of the noise (`randomness.noise_source`).
    """

    stream: TokenStream
    shape: Any
    rows: int | None
    ids: TokenIds | None
    source: str

    def __call__(self, job: tuple[int, range]) -> np.ndarray:
        """The rows of a part of this number: int64 [n, columns]."""
        number, part = job
        rng = example_rng(0, self.source, number)
        if self.rows is None:
            documents = Segments(self.stream, self.ids, part=part)
            return self._rows(self.shape.plan(documents, rng, part))
        return self._rows(
            self.shape.plan_rows(Segments(self.stream, self.ids), rng, part, self.rows)
        )

    def _rows(self, blocks: Iterable[Any]) -> np.ndarray:
        columns = tuple(self.shape.columns)
        checked = [
            _checked(rows, self.shape, columns=columns, total=self.stream.total)
            for rows in blocks
            if len(rows)
        ]
        return np.concatenate([np.zeros((0, len(columns)), np.int64), *checked])

    def first(self) -> np.ndarray:
        """The rows of the first part."""
        return self((0, range(*self._edges()[:2])))

    def made(self) -> Iterator[np.ndarray]:
        """The rows of all parts, in order; processes share the work if there is much of it.

        Raises:
          ValueError: the text is too short for carried rows.
        """
        edges = self._edges()
        total = edges[-1]
        parts = [range(*pair) for pair in itertools.pairwise(edges)]
        spread = 1
        daemon = multiprocessing.current_process().daemon  # it may not start processes
        if self.stream.split.directory is not None and not daemon:
            spread = max(1, min(workers.default_workers(), len(parts) // _PARTS_OF_A_PROCESS))
        bar = progress.bar(
            total=total,
            desc=f"planning samples of {self.stream.split.name}",
            unit=" documents" if self.rows is None else " steps",
            unit_scale=True,
            delay=_SILENT_SECONDS,
        )
        with bar, workers.mapping(self, workers=spread, threads=False) as planned:
            for part, rows in zip(parts, planned(enumerate(parts)), strict=True):
                yield rows
                bar.update(len(part))

    def _edges(self) -> list[int]:
        """Where parts begin, and where the last ends."""
        if self.rows is None:
            return self.stream.document_edges(_TOKENS)
        steps = self.shape.steps(self.stream.total, self.rows)
        of_part = max(1, _TOKENS * steps // max(1, self.stream.total))
        return [*range(0, steps, of_part), steps]


def texts_of(columns: Sequence[str]) -> dict[str, tuple[int, int]]:
    """The numbers of the columns of each text's start and end."""
    texts = {}
    for i, column in enumerate(columns):
        if column.endswith(START):
            name = column.removesuffix(START)
            if name + END not in columns:
                raise ValueError(f"columns {columns} have {column} but not {name + END}")
            texts[name] = (i, columns.index(name + END))
    return texts


def _checked(rows: Any, shape: object, *, columns: Sequence[str], total: int) -> np.ndarray:
    block = np.asarray(rows, np.int64)
    if block.shape[1] != len(columns):
        raise ValueError(f"{shape} planned rows of {block.shape[1]} numbers for columns {columns}")
    for start, end in texts_of(columns).values():
        begins, ends = block[:, start], block[:, end]
        if (begins < 0).any() or (ends < begins).any() or (ends > total).any():
            wrong = ((begins < 0) | (ends < begins) | (ends > total)).argmax()
            raise ValueError(
                f"{shape} planned a text from {begins[wrong]} to {ends[wrong]} in a stream of "
                f"{total} tokens"
            )
    return block
