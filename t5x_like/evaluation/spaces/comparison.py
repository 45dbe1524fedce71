"""Two spaces of word vectors, one mapped to the other: how often the nearest word is the right one.

Suffixes: S words of the source, T words of the target, D dimensions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from t5x_like.core.spelling import nearest as nearest_name
from t5x_like.evaluation.spaces import alignment, dictionaries
from t5x_like.evaluation.spaces.dictionaries import Pairs
from t5x_like.evaluation.spaces.word_vectors import WordVectors

AT = (1, 5, 10)
"""How many of the nearest words may hold the right one."""
_FEWEST = 2
HELD_OUT = 0.2
"""The share of words written alike that are held out where all of them are both seeds and test."""


@dataclasses.dataclass(frozen=True)
class Comparison:
    """A source mapped to a target.

    Attributes:
      source: the source's words with their mapped vectors, of length 1.
      target: the target's words, normalised.
      seeds: the pairs that the map began with.
      test: the pairs that it was asked for.
      precision: {way: {k: share of the asked words with a right one among the k nearest}}.
      similarities: of the rounds of self-learning; none without it.
    """

    source: WordVectors
    target: WordVectors
    seeds: Pairs
    test: Pairs
    precision: Mapping[str, Mapping[int, float]]
    similarities: Sequence[float] = ()

    @property
    def asked(self) -> np.ndarray:
        """The rows of the source's words that were asked for."""
        return np.unique(self.test.rows[:, 0])

    def moved(self, count: int, *, among: int = 10_000) -> list[tuple[str, float]]:
        """Words of both whose vectors are farthest apart, with their cosines, the farthest first.

        Args:
          count: how many words.
          among: the first words of each space, mostly the frequent ones, that are compared: vectors
            of rare words differ by chance.
        """
        both = dictionaries.identical(self.source, self.target).rows
        both = both[(both < among).all(axis=1)]
        x, y = self.source.vectors[both[:, 0]], self.target.vectors[both[:, 1]]
        cosines = (x * y).sum(axis=1)
        order = np.argsort(cosines, kind="stable")[:count]
        return [(self.source.words[both[n, 0]], float(cosines[n])) for n in order]

    def neighbours(self, word: str, count: int = 5) -> tuple[list[str], list[str]]:
        """The nearest words of a word that both have, in the source and in the target."""
        return tuple(  # type: ignore[return-value]
            [
                space.words[n]
                for n in alignment.nearest(x, space.vectors, count=count + 1)[0]
                if space.words[n] != word
            ][:count]
            for space in (self.source, self.target)
            for x in [space.vectors[space.places[word]][None]]
        )


def compare(
    source: WordVectors,
    target: WordVectors,
    *,
    seeds: str = "identical",
    test: str = "identical",
    map: str = "orthogonal",
    self_learning: bool = False,
    csls: int = 10,
    seed: int = 0,
) -> Comparison:
    """Maps the source to the target by some pairs, and asks for others.

    Args:
      source: the space that is mapped.
      target: the other one.
      seeds: the pairs that make the map: a name of `dictionaries.ALIKE` or a file.
      test: the pairs that are asked for, alike. Those whose source word is a seed are left out; if
        both are all identical words, a fifth of these is held out.
      map: a name of `alignment.FITS`.
      self_learning: whether the map finds new pairs, and these a better map, until none is better.
      csls: the neighbours that CSLS counts.
      seed: for what is held out.

    Raises:
      ValueError, OSError: there is no such map, too few seeds, or nothing to ask for; or a file is
        missing or of another form.
    """
    if map not in alignment.FITS:
        raise ValueError(f"no map {map!r}{nearest_name(map, [*alignment.FITS], of='maps')}")
    fit = alignment.FITS[map]
    begin, asked = _pairs(source, target, seeds=seeds, test=test, seed=seed)
    x_SD, y_TD = alignment.normalised(source.vectors), alignment.normalised(target.vectors)
    similarities: list[float] = []
    if self_learning:
        matrix, similarities = alignment.self_learned(x_SD, y_TD, begin.rows, fit=fit)
    else:
        matrix = fit(x_SD[begin.rows[:, 0]], y_TD[begin.rows[:, 1]])
    mapped = alignment.mapped(x_SD, matrix)
    hubs_T = alignment.hubness(y_TD, mapped, neighbours=csls)
    ways: dict[str, tuple[np.ndarray, np.ndarray | None]]
    ways = {"cosine": (mapped, None), "CSLS": (mapped, hubs_T)}
    if x_SD.shape[1] == y_TD.shape[1]:
        ways["without a map"] = (x_SD, None)
    precision = {
        name: _precision(x, y_TD, asked.rows, hubs_T=hubs) for name, (x, hubs) in ways.items()
    }
    precision["the same word"] = _copied(source, target, asked.rows)
    return Comparison(
        WordVectors(source.words, mapped),
        WordVectors(target.words, y_TD),
        begin,
        asked,
        precision,
        similarities,
    )


def _pairs(
    source: WordVectors, target: WordVectors, *, seeds: str, test: str, seed: int
) -> tuple[Pairs, Pairs]:
    begin = dictionaries.named(seeds, source, target)
    if len(begin.rows) < _FEWEST:
        raise ValueError(
            f"the two spaces share {len(begin.rows)} pairs of the seeds {seeds!r}: a map needs "
            f"{_FEWEST} at least, and a good one hundreds, or self-learning"
        )
    if seeds == test:
        asked, begin = dictionaries.divided(begin, share=HELD_OUT, seed=seed)
    else:
        asked = dictionaries.without(dictionaries.named(test, source, target), begin)
    if not len(asked.rows):
        raise ValueError(
            f"no pair of the test {test!r} is left to ask for: none has words of both spaces, or "
            "all are seeds"
        )
    return begin, asked


def _precision(
    x_SD: np.ndarray, y_TD: np.ndarray, pairs: np.ndarray, *, hubs_T: np.ndarray | None
) -> dict[int, float]:
    """{k: share}: a word with several translations counts once, and any of them is right."""
    asked = np.unique(pairs[:, 0])
    found = alignment.nearest(x_SD[asked], y_TD, count=max(AT), hubs_T=hubs_T)
    right = _right(pairs)
    hits = np.array(
        [
            [n in right[word] for n in row]
            for word, row in zip(asked.tolist(), found.tolist(), strict=True)
        ]
    )
    return {k: float(hits[:, :k].any(axis=1).mean()) for k in AT}


def _copied(source: WordVectors, target: WordVectors, pairs: np.ndarray) -> dict[int, float]:
    """The share that is right if each word's translation is the word itself."""
    right = _right(pairs)
    hits = [target.places.get(source.words[word]) in of_word for word, of_word in right.items()]
    return dict.fromkeys(AT, float(np.mean(hits)))


def _right(pairs: np.ndarray) -> dict[int, set[int]]:
    right: dict[int, set[int]] = {}
    for one, other in pairs.tolist():
        right.setdefault(one, set()).add(other)
    return right
