"""CANINE's objectives: masked words of pairs of texts, predicted by characters or as subwords.

CANINE is Clark et al., 2022. The code of its pretraining was not published: this follows the
paper's words (section 3.3).
"""

from __future__ import annotations

import dataclasses
import functools
from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from t5x_like.core.protocols.data import FeatureSpec, Locates
from t5x_like.objectives.mlm import NextSentence
from t5x_like.objectives.noise import masking

if TYPE_CHECKING:
    from t5x_like.core.protocols.data import TokenIds

_SLOTS = ("masked_positions", "masked_targets", "masked_loss_weights")


@dataclasses.dataclass(frozen=True)
class CanineC(NextSentence):
    """Predicts the characters of 15 % of a pair of texts, in whole words, all of which are masked.

    A word has the white space before it. `masked_positions` come in the order in which they are
    predicted, which is random: each is predicted from those before it. Pairs are those of BERT,
    drawn again in each epoch.
    """

    whole_words: bool = True

    shares: ClassVar[Mapping[str, float]] = {"mask": 1.0, "random": 0.0}

    def _masked(
        self,
        inputs: np.ndarray,
        token_type_ids: np.ndarray,
        rng: np.random.Generator,
        ids: TokenIds,
    ) -> dict[str, np.ndarray]:
        """Masks inputs (int32 [n], special tokens included) and returns the features."""
        features = super()._masked(inputs, token_type_ids, rng, ids)
        order = rng.permutation(len(features["masked_positions"]))
        return features | {name: features[name][order] for name in _SLOTS}


@dataclasses.dataclass(frozen=True)
class CanineS(NextSentence):
    """Predicts 15 % of the subwords of a pair of texts, which another vocabulary finds.

    Of these, 80 % become [MASK] at all of their characters, 10 % the characters of a random subword
    of the same length, and 10 % stay. `masked_positions` are their first characters, and
    `masked_subwords` their ids in the other vocabulary, int32 [k]. Pairs are those of BERT, drawn
    again in each epoch.

    Attributes:
      vocabulary: that of the subwords, as `VOCABULARY` names one; the row's own is one of code
        points.
    """

    vocabulary: str = dataclasses.field(kw_only=True)

    def features(self, lengths: Mapping[str, int]) -> dict[str, FeatureSpec]:
        """The features of masked pairs, and `masked_subwords`."""
        features = super().features(lengths)
        return features | {"masked_subwords": features["masked_targets"]}

    def _masked(
        self,
        inputs: np.ndarray,
        token_type_ids: np.ndarray,
        rng: np.random.Generator,
        ids: TokenIds,
    ) -> dict[str, np.ndarray]:
        """Masks inputs (int32 [n], special tokens included) and returns the features."""
        subwords = _subwords(self.vocabulary)
        found = subwords.of_row(inputs, ids)
        budget = min(masking.budget(len(found), self.masked_rate), self._budget(len(inputs)))
        chosen = rng.choice(len(found), min(budget, len(found)), replace=False)
        noisy = inputs.copy()
        for (_, start, end), draw in zip(found[chosen], rng.random(len(chosen)), strict=True):
            if draw < self.shares["mask"]:
                noisy[start:end] = ids.mask
            elif draw < self.shares["mask"] + self.shares["random"]:
                same = subwords.by_length.get(end - start, inputs[None, start:end])
                noisy[start:end] = same[rng.integers(len(same))]
        chosen = chosen[np.argsort(found[chosen, 1], kind="stable")]
        features = masking.example(noisy, token_type_ids, inputs, found[chosen, 1])
        return features | {"masked_subwords": found[chosen, 0].astype(np.int32)}


@dataclasses.dataclass(frozen=True)
class _Subwords:
    """A vocabulary, and the characters of its subwords by their number, int32 [pieces, number]."""

    vocabulary: Locates
    by_length: Mapping[int, np.ndarray]

    def of_row(self, inputs: np.ndarray, ids: TokenIds) -> np.ndarray:
        """The id of each subword of a row of code points, its first character and its end.

        int64 [k, 3]; text ends at special tokens of `ids`.
        """
        special = (inputs == ids.cls) | (inputs == ids.sep)
        bounds = [*np.flatnonzero(special).tolist(), len(inputs)]
        found = [np.zeros((0, 3), np.int64)]
        for before, end in zip([-1, *bounds], bounds, strict=False):
            if end <= before + 1:
                continue
            text = "".join(map(chr, inputs[before + 1 : end].tolist()))
            numbers, places = self.vocabulary.locate(text)
            rows = np.column_stack([numbers, places + before + 1]).astype(np.int64)
            found.append(rows[rows[:, 2] > rows[:, 1]])
        return np.concatenate(found)


@functools.cache
def _subwords(name: str) -> _Subwords:
    """Those of a vocabulary by name, read once in a process.

    Raises:
      ValueError: it does not know where its subwords are in a text.
      FileNotFoundError: nothing has this name.
    """
    # A vocabulary reads files, which no other objective does.
    from t5x_like.vocabularies import loading

    vocabulary = loading.load(name)
    special = {*vocabulary.token_ids.special}
    pieces = [vocabulary.piece(i) for i in range(vocabulary.vocab_size) if i not in special]
    if not isinstance(vocabulary, Locates):
        raise ValueError(
            f"CanineS.vocabulary {name!r} does not know where its subwords are in a text: choose a "
            "tokenizer.json, a vocab.txt or a SentencePiece .model file"
        )
    texts = defaultdict(list)
    for text in (piece.replace("\u2581", "") for piece in pieces):
        texts[len(text)].append([*map(ord, text)])
    return _Subwords(vocabulary, {n: np.array(of, np.int32) for n, of in texts.items() if n})


PRESETS = {"canine_c": CanineC()}

SUMMARIES = {
    "canine_c": "masked words, by characters in a random order, and next sentences (CANINE-C)",
}
