"""Skip-gram with negative sampling: words and those around them, beside words drawn at random."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from t5x_like.core.protocols.data import PLAIN_TEXT, Column, FeatureSpec
from t5x_like.objectives.noise import masking
from t5x_like.objectives.parts.derived import once_per_vocabulary
from t5x_like.objectives.parts.geometry import SplitDocuments

if TYPE_CHECKING:
    from t5x_like.core.protocols.data import TokenIds

_FLATTENED = 0.75
"""The power of a word's count by which it is drawn (Mikolov et al., 2013, section 2.2)."""
_TABLE = 1 << 22
"""Places of the table from which words are drawn; word2vec's has 100 million."""


@once_per_vocabulary
def _counts(ids: TokenIds) -> np.ndarray:
    """float64 [vocab_size]: how often the text has each id; 0 for special ids."""
    if ids.counts is None:
        raise ValueError(
            "words are drawn by how often the training text has them, but this vocabulary comes "
            "without such counts: use a task with a cache, which has counted them"
        )
    counts = np.asarray(ids.counts, np.float64).copy()
    counts[list(ids.special)] = 0
    return counts


@once_per_vocabulary
def _drawn(ids: TokenIds) -> np.ndarray:
    """int32 [places]: ids, each as often as it shall be drawn."""
    shares = np.cumsum(_counts(ids) ** _FLATTENED)
    if not shares[-1]:
        raise ValueError("the training text has no words: all that it has are special ids")
    places = (np.arange(_TABLE) + 0.5) / _TABLE * shares[-1]
    return np.searchsorted(shares, places, side="right").astype(np.int32)


@dataclasses.dataclass(frozen=True)
class WordPairs:
    """A text without some of its frequent words, how far each sees, and words that are not near it.

    `inputs` are the words that stay. `reach`, [n, window], is 1 in the columns up to a number from
    1 to `window` that is drawn for each: a word sees so many words on either side. `negatives`,
    [n, negatives], are drawn by count ** 0.75 for each word, and serve all that it sees (Ji et al.,
    2016); word2vec draws them for each pair. Special ids are left out, as word2vec leaves out words
    that it does not know.

    Attributes:
      window: the farthest that a word sees.
      negatives: how many words are drawn for each.
      sample: the share of a text above which a word is left out at times: one with share f stays
        with probability sqrt(sample / f) + sample / f, as in word2vec's code; 0 keeps all.
    """

    kind: ClassVar = "encoder"
    reads: ClassVar[tuple[Column, ...]] = PLAIN_TEXT
    answers: ClassVar[str | None] = None
    measures: ClassVar[tuple[str, ...]] = ()
    needs: ClassVar[tuple[str, ...]] = ("counts",)
    steps: ClassVar[tuple[str, ...]] = ()
    static: ClassVar = False

    window: int = 5
    negatives: int = 5
    sample: float = 1e-3

    def __post_init__(self) -> None:
        if self.window < 1 or self.negatives < 1 or not 0 <= self.sample < 1:
            raise ValueError(
                "WordPairs: a window and negatives are 1 at least, a sample is a share below 1; "
                f"got {self.window}, {self.negatives} and {self.sample}"
            )

    def lengths(self, tokens: int) -> dict[str, int]:
        """`inputs` of `tokens` tokens."""
        return {"inputs": tokens}

    def geometry(self, lengths: Mapping[str, int]) -> SplitDocuments:
        """Pieces of one document that fill the inputs.

        Raises:
          ValueError: `lengths` has no inputs, or no room for a word and one around it.
        """
        return SplitDocuments(masking.text_room(lengths, 0, texts=2))

    def sizes(self, n: np.ndarray) -> dict[str, np.ndarray]:
        """The greatest feature lengths for samples of `n` tokens (int [samples])."""
        return dict.fromkeys(("inputs", "reach", "negatives"), n)

    def features(self, lengths: Mapping[str, int]) -> dict[str, FeatureSpec]:
        """`inputs`, and `reach` and `negatives` of the same length."""
        length = lengths["inputs"]
        return {
            "inputs": FeatureSpec(length),
            "reach": FeatureSpec(length, item=(self.window,)),
            "negatives": FeatureSpec(length, item=(self.negatives,)),
        }

    def __call__(
        self, sample: Mapping[str, np.ndarray], rng: np.random.Generator, ids: TokenIds
    ) -> dict[str, np.ndarray]:
        """The features of `sample["targets"]` (int [n], any n)."""
        tokens = np.asarray(sample["targets"], np.int32)
        counts = _counts(ids)
        share = counts[tokens] / max(counts.sum(), 1.0)
        draws = rng.random(len(tokens))
        stays = share > 0
        if self.sample:
            ratio = self.sample / np.maximum(share, 1e-300)
            stays &= draws < np.sqrt(ratio) + ratio
        inputs = tokens[stays]
        radius = rng.integers(1, self.window + 1, len(inputs))
        table = _drawn(ids)
        places = rng.integers(0, len(table), (len(inputs), self.negatives))
        return {
            "inputs": inputs,
            "reach": (np.arange(self.window) < radius[:, None]).astype(np.int32),
            "negatives": table[places],
        }


PRESETS = {"skip_gram": WordPairs()}

SUMMARIES = {"skip_gram": "words and those around them, beside words drawn at random (word2vec)"}
