"""Random texts for pairs: segments of other documents than that of the first text."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from t5x_like.objectives.parts.excerpts import Excerpt
from t5x_like.objectives.parts.planning import in_pieces

if TYPE_CHECKING:
    from t5x_like.objectives.parts.geometry import Sentences

_WINDOW = 256
"""Segments of a document among which random texts are, at most."""
_LEAST_WINDOWS, _MOST_WINDOWS = 64, 4096
_PLACES = 32
_SHARE = 1 / 16
"""Tokens of these windows, by those of the documents whose pairs they are for, in a text of more
than `_MOST_WINDOWS` documents. Of fewer, there are as many: all documents of a small text."""


@dataclasses.dataclass(frozen=True)
class Elsewhere:
    """Windows of random documents, from which random texts are taken.

    Attributes:
      text: the windows.
      documents: int64 [W]: the document of each, ascending.
      choices: int64 [W]: in how many segments of each a random text may begin. Near the end of a
        window that does not end its document, a text would be too short.
    """

    text: Excerpt
    documents: np.ndarray
    choices: np.ndarray

    @classmethod
    def drawn(
        cls, sentences: Sentences, rng: np.random.Generator, *, length: int, tokens: int
    ) -> Elsewhere:
        """Windows for samples of `length` tokens from documents that have `tokens` together."""
        windows: list[np.ndarray] = []
        documents: list[int] = []
        choices: list[int] = []
        size = 0
        wanted = tokens * (_SHARE if len(sentences) > _MOST_WINDOWS else 1)
        for document in _documents(sentences, rng, wanted):
            enough = len(windows) >= (_LEAST_WINDOWS if size >= wanted else _MOST_WINDOWS)
            # Of few documents, each has as many windows.
            if enough and (len(sentences) > _LEAST_WINDOWS or not len(windows) % len(sentences)):
                break
            bounds = sentences[document]
            start = int(rng.integers(max(1, len(bounds) - _WINDOW)))
            some = bounds[start : start + _WINDOW + 1]
            window = in_pieces(sentences, some, longest=length, piece=(length + 1) // 2)
            ends = some[-1] == bounds[-1]
            before = int(window.searchsorted(window[-1] - length, "right"))
            windows.append(window)
            documents.append(document)
            choices.append(len(window) - 1 if ends else max(1, before))
            size += int(window[-1] - window[0])
        order = np.argsort(documents, kind="stable")
        windows = [windows[i] for i in order]
        counts = np.fromiter(map(len, windows), np.int64, len(windows))
        return cls(
            Excerpt.of(sentences, np.concatenate(windows), counts),
            np.array(documents)[order],
            np.array(choices)[order],
        )

    def texts(
        self, documents: np.ndarray, tokens: np.ndarray, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """For each document a random window of another one, and the edges of a text, int64 [2, n].

        A text has `tokens` tokens or a little more. There are fewer at the end of a document, but
        at least one segment. Where there is no other document, it is the same one, as in the
        published code.
        """
        low = self.documents.searchsorted(documents)
        own_windows = self.documents.searchsorted(documents, "right") - low
        own_windows[own_windows == len(self.documents)] = 0
        window = random_integers(0, len(self.documents) - own_windows - 1, rng)
        window += np.where(window >= low, own_windows, 0)
        bounds = self.text.bounds
        first = self.text.firsts[window] + random_integers(0, self.choices[window] - 1, rng)
        end = bounds.searchsorted(bounds[first] + np.maximum(1, tokens))
        end = np.minimum(end, self.text.lasts[window])
        return window, np.stack([bounds[first], bounds[end]])


def _documents(sentences: Sentences, rng: np.random.Generator, wanted: float) -> Iterator[int]:
    """Random documents without end: each as often as any other, as far as one can tell.

    Those of a large text are some consecutive ones of each random place, which are read together.
    """
    while len(sentences) > _MOST_WINDOWS:
        first = int(rng.integers(len(sentences)))
        some = range(first, min(first + _MOST_WINDOWS // _PLACES, len(sentences)))
        heads = sentences.heads(some)
        enough = max(1, int(heads.searchsorted(heads[0] + wanted / _PLACES)))
        some = some[:enough]
        sentences.remember(some)
        yield from some
    while True:
        yield from rng.permutation(len(sentences)).tolist()


def random_integers(
    low: int | np.ndarray, high: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Random integers from `low` to `high`, both included; less than 1 are `low`."""
    return low + (rng.random(len(high)) * (high - low + 1)).astype(np.int64)
