"""Cosines of texts by TF-IDF, which vectors of a model are compared with."""

from __future__ import annotations

import collections
import math
import re
from collections.abc import Callable, Iterable, Sequence

import numpy as np

Terms = Callable[[str], list[str]]
_WORD = re.compile(r"\w+")


def words(text: str) -> list[str]:
    """The runs of letters, digits and underscores, in lower case."""
    return _WORD.findall(text.lower())


def trigrams(text: str) -> list[str]:
    """The runs of three characters in lower case, with a space before and after the text."""
    padded = f" {text.lower()} "
    return [padded[n : n + 3] for n in range(len(padded) - 2)]


class TfIdf:
    """Vectors of counts of terms, each times ln((1 + texts) / (1 + texts with it)) + 1."""

    def __init__(self, terms: Terms, texts: Iterable[str]) -> None:
        """Counts in how many of the texts each term occurs."""
        self._terms = terms
        sets = [{*terms(text)} for text in texts]
        self._texts = len(sets)
        self._with_term = collections.Counter(term for some in sets for term in some)

    def cosines(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        """The cosine of the two texts of each pair, 0 where one has no term: float64 [n]."""
        return np.array([self._cosine(*map(self._vector, pair)) for pair in pairs])

    def _vector(self, text: str) -> dict[str, float]:
        counts = collections.Counter(self._terms(text))
        return {
            term: count * (1 + math.log((1 + self._texts) / (1 + self._with_term[term])))
            for term, count in counts.items()
        }

    @staticmethod
    def _cosine(one: dict[str, float], other: dict[str, float]) -> float:
        norms = (math.hypot(*one.values()), math.hypot(*other.values()))
        product = sum(weight * other.get(term, 0.0) for term, weight in one.items())
        return product / (norms[0] * norms[1]) if all(norms) else 0.0
