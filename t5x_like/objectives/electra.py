"""ELECTRA's examples: text in one or two segments, masked for the generator."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from t5x_like.core.protocols import FeatureSpec
from t5x_like.objectives.noise import masking
from t5x_like.objectives.parts.formats import MaskedEncoder, masked_features
from t5x_like.objectives.parts.probabilities import check_share
from t5x_like.objectives.parts.sentence_blocks import LineBlocks
from t5x_like.objectives.parts.words import whole_words

if TYPE_CHECKING:
    from t5x_like.core.protocols import TokenIds

ONE_SEGMENT = 0.1
MASK = 0.85


def slots(length: int, masked_rate: float) -> int:
    """Predictions at most of an example of `length` tokens: 19 of 128 and 79 of 512 at 0.15."""
    return max(1, int((masked_rate + 0.005) * length))


def in_first_segment(sizes: list[int], goal: float, coins: list[float]) -> list[bool]:
    """Which lines go to the first of two segments (the published code).

    The first line does, and every one with which the segment stays below its goal; so may, by the
    toss of a coin, the one with which it reaches it. Once the second segment has a line, a later
    one can still go to the first.
    """
    first = second = 0
    chosen = []
    for size, coin in zip(sizes, coins, strict=True):
        crosses = second == 0 and first < goal and coin < 0.5
        chosen.append(first == 0 or first + size < goal or crosses)
        if chosen[-1]:
            first += size
        else:
            second += size
    return chosen


@dataclasses.dataclass(frozen=True)
class ELECTRA(MaskedEncoder):
    """Masked tokens for a generator, whose samples a discriminator is to tell from the original.

    "[CLS] A [SEP] B [SEP]" of lines of one document, B being absent from many. There are
    `masked_rate` times as many slots as tokens, and each takes a position of the text whatever the
    others took: `masked_positions` may hold one twice. A slot makes its position [MASK] with
    probability 0.85 and leaves it otherwise (ELECTRA, section 3.1 and the published code).

    The original tokens are `inputs` with `masked_targets` put at `masked_positions`; from them the
    model makes what the discriminator reads. `discriminator_loss_weights` (float32 [n]) are 1 where
    that second network is scored, and `text_weights` (float32 [n]) 1 at tokens of the text: special
    ones are never replaced, which is soon known. The paper's ablations (section 3.5) score it at
    the masked positions alone (ELECTRA 15 %, Replace MLM) or, as ELECTRA does, everywhere
    (All-Tokens MLM); whether it tells tokens apart or predicts them is the model's.

    Attributes:
      masked_rate: slots per token, special ones counted; 0.25 for the large model.
      every_token: scores the discriminator everywhere; if not, at the masked positions.
    """

    masked_rate: float = 0.15
    every_token: bool = True

    def __post_init__(self) -> None:
        check_share(self, "masked_rate", zero=False)

    def geometry(self, lengths: Mapping[str, int]) -> LineBlocks:
        """Lines that reach the length of the inputs, or a little more.

        Raises:
          ValueError: `lengths` has no inputs, or they are too short.
        """
        return LineBlocks(masking.text_room(lengths, 4) + 4)

    def features(self, lengths: Mapping[str, int]) -> dict[str, FeatureSpec]:
        """The features of a masked encoder, `discriminator_loss_weights` and `text_weights`."""
        length = lengths["inputs"]
        return {
            **masked_features(length, slots(length, self.masked_rate)),
            "discriminator_loss_weights": FeatureSpec(length, "float32"),
            "text_weights": FeatureSpec(length, "float32"),
        }

    def __call__(
        self, sample: Mapping[str, np.ndarray], rng: np.random.Generator, ids: TokenIds
    ) -> dict[str, np.ndarray]:
        """Cuts `sample["targets"]` (int [n], any n) to size and masks it.

        The sample holds the `segments` of the targets, `max_tokens` that they were to reach, and
        `length`, that of the inputs.
        """
        length = int(sample["length"])
        inputs, token_type_ids = masking.with_specials(
            ids, *self._segments(sample, length, rng, ids)
        )
        candidates = masking.text_positions(inputs, ids)
        text = np.zeros(len(inputs), np.float32)
        text[candidates] = 1
        candidates = candidates[inputs[candidates] != ids.mask]
        count = min(max(1, round(len(inputs) * self.masked_rate)), slots(length, self.masked_rate))
        # No text at all is the one case without a slot.
        drawn = rng.integers(max(1, len(candidates)), size=count if len(candidates) else 0)
        positions = candidates[drawn]
        noisy = masking.replaced(inputs, positions, rng, ids, mask=MASK, random=0)
        weights = np.full(len(inputs), self.every_token, np.float32)
        weights[positions] = 1
        features = masking.example(noisy, token_type_ids, inputs, positions)
        return features | {"discriminator_loss_weights": weights, "text_weights": text}

    @staticmethod
    def _segments(
        sample: Mapping[str, np.ndarray], length: int, rng: np.random.Generator, ids: TokenIds
    ) -> tuple[np.ndarray, np.ndarray]:
        """The two segments, cut after a word so that they fit; the second may be empty."""
        tokens = sample["targets"]
        sizes = np.diff(sample["segments"], prepend=0, append=len(tokens))
        alone, *coins = rng.random(1 + len(sizes)).tolist()
        goal = math.inf if alone < ONE_SEGMENT else (int(sample["max_tokens"]) - 3) // 2
        is_first = np.repeat(in_first_segment(sizes.tolist(), goal, coins), sizes)
        first = whole_words(tokens[is_first], length - 2, ids)
        return first, whole_words(tokens[~is_first], max(0, length - len(first) - 3), ids)


PRESETS = {
    "electra": ELECTRA(),
    "electra_15": ELECTRA(every_token=False),
    "electra_replace_mlm": ELECTRA(every_token=False),
    "electra_all_tokens_mlm": ELECTRA(),
}
SUMMARIES = {
    "electra": "masked tokens for a generator and a discriminator (ELECTRA)",
    "electra_15": "as electra, the discriminator scored at the masked tokens alone (ELECTRA 15 %)",
    "electra_replace_mlm": "as electra_15, for a model that predicts them (Replace MLM)",
    "electra_all_tokens_mlm": "as electra, for a model that predicts every token (All-Tokens MLM)",
}
