"""DeBERTa's objectives: masked n-grams of words, and masked tokens for a generator (v3)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from t5x_like.core.protocols.data import FeatureSpec
from t5x_like.objectives.noise import masking
from t5x_like.objectives.parts.formats import MaskedTokens, masked_features
from t5x_like.objectives.parts.geometry import ConcatenateAndSplit, SplitDocuments
from t5x_like.objectives.parts.probabilities import check_count, check_share
from t5x_like.objectives.parts.words import word_bounds, word_starts

if TYPE_CHECKING:
    from t5x_like.core.protocols.data import TokenIds


def marked_units(
    units: int, *, rate: float, max_ngram: int, rng: np.random.Generator
) -> np.ndarray:
    """The numbers of marked units, words or tokens, ascending: int64.

    A window has n times as many units as one of which a share `rate` is marked, rounded down; n,
    at most `max_ngram`, is drawn with a probability of 1 / n up to a factor. In each window after
    the one before, n units are marked from a random one on, maybe beyond its end (the published
    code). So at 0.15 about a sixth of the units is marked.
    """
    weights = 1 / np.arange(1, max_ngram + 1)
    sizes = rng.choice(max_ngram, units, p=weights / weights.sum()) + 1 if max_ngram > 1 else None
    draws = rng.random(units)
    marked = np.zeros(units, np.bool_)
    offset = window = 0
    while offset < units:
        n = 1 if sizes is None else int(sizes[window])
        width = min(int(1 / rate) * n, units - offset)
        start = offset + int(draws[window] * width)
        marked[start : start + n] = True
        offset = max(offset + width, start + n)
        window += 1
    return marked.nonzero()[0]


@dataclasses.dataclass(frozen=True)
class NGrams(MaskedTokens):
    """Predicts words, up to `max_ngram` in a row, or tokens where that is 1 (DeBERTa, appendix A).

    Rows are "[CLS] text [SEP]" with running text. Of the predicted tokens 80 % become [MASK], 10 %
    a random id, and 10 % stay. Words are marked over the whole row (`marked_units`), then predicted
    from left to right as long as they fit into `masked_rate` of the row. As more are marked than
    fit, its end is rarely predicted (the published code does the same, and cuts no word).

    Attributes:
      masked_rate: the share of the inputs to predict, at most.
      max_ngram: the most words in a row that are marked at once.
      mask: the share of predicted tokens that become [MASK].
      random: the share of those that become a random id.
    """

    masked_rate: float = 0.15
    max_ngram: int = 3
    mask: float = 0.8
    random: float = 0.1

    def __post_init__(self) -> None:
        check_share(self, "masked_rate", zero=False)
        check_count(self, "max_ngram", of="words")
        for name in ("mask", "random"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(
                    f"{type(self).__name__}: {name} is a share, from 0 to 1, not "
                    f"{getattr(self, name)}"
                )
        if self.mask + self.random > 1:
            raise ValueError(
                f"{type(self).__name__}: mask and random are shares of the same tokens, at most 1 "
                f"together, not {self.mask} and {self.random}"
            )
        if self.max_ngram > 1:
            object.__setattr__(self, "needs", (*type(self).needs, "word_starts"))

    def geometry(self, lengths: Mapping[str, int]) -> ConcatenateAndSplit:
        """Running text whose length is that of the inputs less two special tokens.

        Raises:
          ValueError: `lengths` has no inputs, or they are too short.
        """
        return ConcatenateAndSplit(masking.text_room(lengths, 2))

    def documents(self, lengths: Mapping[str, int]) -> SplitDocuments:
        """Of packed rows: documents, or parts of them that fill the inputs."""
        return SplitDocuments(masking.text_room(lengths, 2))

    def sizes(self, n: np.ndarray) -> dict[str, np.ndarray]:
        """The greatest feature lengths for samples of `n` tokens (int [samples])."""
        return {"inputs": n + 2, "masked_positions": masking.budgets(n + 2, self.masked_rate)}

    def features(self, lengths: Mapping[str, int]) -> dict[str, FeatureSpec]:
        """The features of a masked encoder, with the predictions that full inputs need."""
        length = lengths["inputs"]
        return masked_features(length, masking.budget(length, self.masked_rate))

    def __call__(
        self, sample: Mapping[str, np.ndarray], rng: np.random.Generator, ids: TokenIds
    ) -> dict[str, np.ndarray]:
        """Masks `sample["targets"]` (int [n], any n)."""
        inputs, token_type_ids = masking.with_specials(ids, sample["targets"])
        positions = self._positions(inputs, rng, ids)
        noisy = masking.masked_copy(inputs, positions, rng, ids, mask=self.mask, random=self.random)
        return masking.example(noisy, token_type_ids, inputs, positions)

    def _positions(self, inputs: np.ndarray, rng: np.random.Generator, ids: TokenIds) -> np.ndarray:
        """The positions to predict, ascending."""
        starts, sizes = np.arange(len(inputs)), np.ones(len(inputs), np.int64)
        if self.max_ngram > 1:
            bounds = word_bounds(word_starts(inputs, ids))
            starts, sizes = bounds[:-1], bounds[1:] - bounds[:-1]
        is_text = ~np.isin(inputs[starts], [i for i in ids.special if i is not None])
        starts, sizes = starts[is_text], sizes[is_text]
        marked = marked_units(len(starts), rate=self.masked_rate, max_ngram=self.max_ngram, rng=rng)
        budget = masking.budget(len(inputs), self.masked_rate)
        fitting = marked[np.cumsum(sizes[marked]) <= budget]
        return masking.span_positions(starts[fitting], sizes[fitting])


@dataclasses.dataclass(frozen=True)
class ReplacedTokens(NGrams):
    """Masked tokens for a generator, whose samples a discriminator finds (DeBERTa v3, section 3).

    As `NGrams`, but for single tokens, all of which become [MASK]. `text_weights` (float32 [n]) are
    1 at tokens of the text; the discriminator is scored at special ones, too, which are never
    replaced.
    """

    max_ngram: int = 1
    mask: float = 1.0
    random: float = 0.0

    def features(self, lengths: Mapping[str, int]) -> dict[str, FeatureSpec]:
        """The features of a masked encoder, and `text_weights`."""
        weights = FeatureSpec(lengths["inputs"], "float32")
        return {**super().features(lengths), "text_weights": weights}

    def __call__(
        self, sample: Mapping[str, np.ndarray], rng: np.random.Generator, ids: TokenIds
    ) -> dict[str, np.ndarray]:
        """Masks `sample["targets"]` (int [n], any n)."""
        features = super().__call__(sample, rng, ids)
        text = np.ones(len(features["inputs"]), np.float32)
        text[[0, -1]] = 0
        return {**features, "text_weights": text}


PRESETS = {"ngrams": NGrams(), "replaced_tokens": ReplacedTokens()}
SUMMARIES = {
    "ngrams": "masked words, up to three in a row (DeBERTa)",
    "replaced_tokens": "masked tokens for a generator and a discriminator (DeBERTa v3)",
}
