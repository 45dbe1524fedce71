"""ELECTRA's objective: text in one or two segments, masked for the generator."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from t5x_like.core.protocols.data import FeatureSpec
from t5x_like.objectives.noise import masking
from t5x_like.objectives.parts.formats import MaskedTokens, masked_features
from t5x_like.objectives.parts.probabilities import check_share
from t5x_like.objectives.parts.sentence_blocks import LineBlocks
from t5x_like.objectives.parts.words import whole_words

if TYPE_CHECKING:
    from t5x_like.core.protocols.data import TokenIds

ONE_SEGMENT = 0.1
MASK = 0.85


def slots(length: int, masked_rate: float) -> int:
    """The most predictions for `length` tokens: at a rate of 0.15, 19 for 128 and 79 for 512."""
    return max(1, int((masked_rate + 0.005) * length))


def in_first_segment(sizes: list[int], goal: float, coins: list[float]) -> list[bool]:
    """Which lines go to the first of two segments (the published code).

    The first line does, and so does every line with which the first segment stays below its goal.
    A line with which it reaches the goal goes there by the toss of a coin, while the second segment
    is empty. A later, shorter line can still go to the first segment.
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
class ELECTRA(MaskedTokens):
    """Masked tokens for a generator and a discriminator, which finds the generator's samples.

    Rows are "[CLS] A [SEP] B [SEP]" with lines of one document; many have no B. For each token
    `masked_rate` positions are drawn from the text, each independently, so `masked_positions` may
    hold a position twice. Each draw makes its position [MASK] with probability 0.85 and else
    leaves it (ELECTRA, section 3.1 and the published code).

    `inputs` with `masked_targets` at `masked_positions` are the original tokens. From them the
    model makes what the discriminator reads. `discriminator_loss_weights` (float32 [n]) are 1
    where the discriminator is scored. `text_weights` (float32 [n]) are 1 at tokens of the text:
    special tokens are never replaced, which a model soon learns. The paper's ablations (section
    3.5) score the discriminator at the masked positions (ELECTRA 15 %, Replace MLM) or everywhere,
    as ELECTRA does (All-Tokens MLM). The model decides whether it classifies or predicts tokens.

    Attributes:
      masked_rate: draws per token, special tokens counted; the large model has 0.25.
      every_token: whether the discriminator is scored everywhere, or at the masked positions.
    """

    masked_rate: float = 0.15
    every_token: bool = True

    def __post_init__(self) -> None:
        check_share(self, "masked_rate", zero=False)

    def geometry(self, lengths: Mapping[str, int]) -> LineBlocks:
        """Lines that together reach the length of the inputs, or a little more.

        Raises:
          ValueError: `lengths` has no inputs, or they are too short.
        """
        return LineBlocks(masking.text_room(lengths, 4) + 4)

    def sizes(self, n: np.ndarray) -> dict[str, np.ndarray]:
        """The greatest feature lengths for samples of `n` tokens (int [samples]).

        They are those of two segments; what does not fit a row is cut.
        """
        return {"inputs": n + 3, "masked_positions": masking.budgets(n + 3, self.masked_rate)}

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
        """Cuts `sample["targets"]` (int [n], any n) to the length of the inputs and masks it.

        The sample also holds `segments`, where lines start, `max_tokens`, the length that the
        lines were to reach, and `length`, the length of the inputs.
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
        # Nothing is drawn only where there is no text.
        drawn = rng.integers(max(1, len(candidates)), size=count if len(candidates) else 0)
        positions = candidates[drawn]
        noisy = masking.masked_copy(inputs, positions, rng, ids, mask=MASK, random=0)
        weights = np.full(len(inputs), self.every_token, np.float32)
        weights[positions] = 1
        features = masking.example(noisy, token_type_ids, inputs, positions)
        return features | {"discriminator_loss_weights": weights, "text_weights": text}

    @staticmethod
    def _segments(
        sample: Mapping[str, np.ndarray], length: int, rng: np.random.Generator, ids: TokenIds
    ) -> tuple[np.ndarray, np.ndarray]:
        """The two segments, each cut after a word so that both fit; the second may be empty."""
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
    "electra_15": "like electra; the discriminator is scored at masked tokens only (ELECTRA 15 %)",
    "electra_replace_mlm": "like electra_15, for a model that predicts the tokens (Replace MLM)",
    "electra_all_tokens_mlm": "like electra, for a model that predicts all tokens (All-Tokens MLM)",
}
