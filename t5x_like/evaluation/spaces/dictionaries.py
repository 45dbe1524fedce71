"""Pairs of words of two spaces that mean the same: from a file, or because they look alike."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from t5x_like.evaluation.language import reading
from t5x_like.evaluation.spaces.word_vectors import WordVectors

_NUMERAL = re.compile("[0-9]+")


class Pairs(NamedTuple):
    """Pairs of two spaces.

    Attributes:
      rows: int [N, 2], the rows of the source and of the target.
      unknown: how many pairs had a word that one space lacks.
    """

    rows: np.ndarray
    unknown: int = 0


def read(path: str, source: WordVectors, target: WordVectors) -> Pairs:
    """The pairs of a file with a word of the source and one of the target in each line.

    Raises:
      ValueError, OSError: the file is missing, or a line has other than two words.
    """
    rows, unknown = [], 0
    for file in reading.files(path):
        for number, line in reading.lines(file):
            words = line.split("\t") if "\t" in line else line.split()
            if len(words) != 2:
                raise ValueError(
                    f"{file}:{number}: {line[:60]!r} has {len(words)} words, and not 2"
                )
            row = source.places.get(words[0]), target.places.get(words[1])
            if None in row:
                unknown += 1
            else:
                rows.append(row)
    return Pairs(_array(rows), unknown)


def identical(source: WordVectors, target: WordVectors) -> Pairs:
    """Words that are in both."""
    return Pairs(_array([(n, target.places[w]) for w, n in _in_both(source, target)]))


def numerals(source: WordVectors, target: WordVectors) -> Pairs:
    """Numbers that are in both, written in digits (Artetxe et al., 2017, section 4.1)."""
    both = _in_both(source, target)
    return Pairs(_array([(n, target.places[w]) for w, n in both if _NUMERAL.fullmatch(w)]))


ALIKE: Mapping[str, Callable[[WordVectors, WordVectors], Pairs]] = {
    "identical": identical,
    "numerals": numerals,
}
"""Pairs that need no file, by name."""


def named(name: str, source: WordVectors, target: WordVectors) -> Pairs:
    """The pairs of a name of `ALIKE`, or of a file.

    Raises:
      ValueError, OSError: as `read`.
    """
    return ALIKE[name](source, target) if name in ALIKE else read(name, source, target)


def divided(pairs: Pairs, *, share: float, seed: int) -> tuple[Pairs, Pairs]:
    """A share of the pairs, and the rest of them, drawn by their source words."""
    words = np.unique(pairs.rows[:, 0])
    drawn = np.random.default_rng(seed).permutation(words)[: round(share * len(words))]
    chosen = np.isin(pairs.rows[:, 0], drawn)
    return Pairs(pairs.rows[chosen]), Pairs(pairs.rows[~chosen])


def without(pairs: Pairs, others: Pairs) -> Pairs:
    """The pairs whose source words are in none of the others."""
    return pairs._replace(rows=pairs.rows[~np.isin(pairs.rows[:, 0], others.rows[:, 0])])


def _in_both(source: WordVectors, target: WordVectors) -> list[tuple[str, int]]:
    return [(word, n) for word, n in source.places.items() if word in target.places]


def _array(rows: Sequence[Sequence[int | None]]) -> np.ndarray:
    return np.array(rows, np.int64).reshape(-1, 2)
