"""XLNet: predict spans in a random order, each from the text and the spans before it."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from t5x_like.core.protocols.data import FeatureSpec
from t5x_like.objectives.noise import masking
from t5x_like.objectives.noise.context_spans import context_spans
from t5x_like.objectives.noise.permutation import visibility
from t5x_like.objectives.parts.carried_rows import SPECIALS, CarriedRows
from t5x_like.objectives.parts.drawing import thresholds, uniforms
from t5x_like.objectives.parts.formats import MaskedTokens, masked_features
from t5x_like.objectives.parts.probabilities import check_count
from t5x_like.objectives.parts.words import word_starts

if TYPE_CHECKING:
    from t5x_like.core.protocols.data import TokenIds


def sequence(
    reused: np.ndarray, first: np.ndarray, second: np.ndarray, *, ids: TokenIds
) -> tuple[np.ndarray, np.ndarray]:
    """The inputs "reused first [SEP] second [SEP] [CLS]" and their segments: int32 [n] each.

    Segments are 0 up to the first [SEP], 1 up to the second, and 2 for [CLS]. The model reads only
    whether two positions have the same segment.
    """
    split, separator = len(reused), len(reused) + len(first)
    inputs = np.empty(separator + len(second) + SPECIALS, np.int32)
    inputs[:split] = reused
    inputs[split:separator] = first
    inputs[separator] = inputs[-2] = ids.given("sep")
    inputs[separator + 1 : -2] = second
    inputs[-1] = ids.given("cls")
    token_type_ids = np.zeros(len(inputs), np.int32)
    token_type_ids[separator + 1 : -1] = 1
    token_type_ids[-1] = 2
    return inputs, token_type_ids


@dataclasses.dataclass(frozen=True)
class XLNet(MaskedTokens):
    """Predicts spans of tokens in a random order, from the rest and the spans before (XLNet).

    Inputs are the original tokens: a first part, then two texts. The first part begins where the
    first part of the previous sample in its row ended, so that the model's memory continues. The
    random order is drawn for the first part and for the texts separately. It comes as two int32
    [n]: position i may not see j where `permutation_query_order[i] <= permutation_key_order[j]`
    (see `permutation.visibility`). Special tokens are never predicted. `reset_memory` is 1 where
    the model must forget the row's memory. `backward` is 1 where the row is read from right to
    left; the model needs it for its relative positions.

    Attributes:
      partial_prediction: K of the paper (section 2.3): one token in K is predicted, half of them in
        each part, and a span of n tokens has K * n tokens around it.
      max_ngram: the most tokens of a span; n tokens have probability proportional to 1/n.
      perm_size: tokens of a block, within which positions are permuted while blocks keep their
        order; None for one block in each part.
      reuse_length: tokens of the first part; None for half of the sequence.
      bidirectional: whether half of the rows of a batch are read from right to left.
    """

    partial_prediction: int = 6
    max_ngram: int = 5
    perm_size: int | None = None
    reuse_length: int | None = None
    bidirectional: bool = True

    needs = ("cls", "sep", "word_starts")

    def __post_init__(self) -> None:
        check_count(self, "max_ngram", of="tokens")
        for name in ("partial_prediction", "perm_size", "reuse_length"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"XLNet: {name} is a number of tokens, at least 1, got {value}")

    @functools.cached_property
    def _lengths(self) -> tuple[float, ...]:
        return thresholds([1 / n for n in range(1, self.max_ngram + 1)])

    def _predictions(self, length: int) -> int:
        return round(length / self.partial_prediction)

    def geometry(self, lengths: Mapping[str, int]) -> CarriedRows:
        """Rows of text that continue from batch to batch; two texts follow each piece."""
        length = masking.text_room(lengths, SPECIALS) + SPECIALS
        reuse = length // 2 if self.reuse_length is None else self.reuse_length
        return CarriedRows(length, reuse, self.bidirectional)

    def features(self, lengths: Mapping[str, int]) -> dict[str, FeatureSpec]:
        """The features of a masked encoder, the two orders, `reset_memory` and `backward`."""
        length = lengths["inputs"]
        return {
            **masked_features(length, self._predictions(length)),
            "permutation_query_order": FeatureSpec(length),
            "permutation_key_order": FeatureSpec(length),
            "reset_memory": FeatureSpec(None),
            "backward": FeatureSpec(None),
        }

    def __call__(
        self, sample: Mapping[str, np.ndarray], rng: np.random.Generator, ids: TokenIds
    ) -> dict[str, np.ndarray]:
        """Makes the features of a sample of `CarriedRows`, whose texts may be empty."""
        backward = bool(sample["backward"])
        parts = [sample[name] for name in ("inputs", "first", "second")]
        if backward:
            parts = [part[::-1] for part in parts]
        split = len(parts[0])
        inputs, token_type_ids = sequence(*parts, ids=ids)
        functional = np.array([split + len(parts[1]), len(inputs) - 2, len(inputs) - 1])
        masked = self._masked(inputs, split, backward=backward, rng=rng, ids=ids)
        query, key = visibility(masked, functional, split=split, block=self.perm_size, rng=rng)
        masked[functional] = False
        return {
            **masking.example(inputs, token_type_ids, inputs, masked.nonzero()[0]),
            "permutation_query_order": query,
            "permutation_key_order": key,
            "reset_memory": np.asarray(sample["reset_memory"], np.int32),
            "backward": np.asarray(sample["backward"], np.int32),
        }

    def _masked(
        self,
        inputs: np.ndarray,
        split: int,
        *,
        backward: bool,
        rng: np.random.Generator,
        ids: TokenIds,
    ) -> np.ndarray:
        """The positions to predict, special tokens included: bool [n]."""
        # Words and spans are found in the order of the text, which a backward row reverses.
        reading = -1 if backward else 1
        starts = word_starts(inputs[::reading], ids)[::reading]
        goal, draws = self._predictions(len(inputs)), uniforms(rng)
        marked = bytearray()
        for part, share in ((starts[:split], goal - goal // 2), (starts[split:], goal // 2)):
            spans = context_spans(
                part[::reading].tobytes(),
                min(share, len(part)),
                lengths=self._lengths,
                context=self.partial_prediction,
                draws=draws,
            )
            marked += spans[::reading]
        return np.frombuffer(marked, np.bool_)


PRESETS = {"xlnet": XLNet()}
SUMMARIES = {"xlnet": "predict spans in a random order, with memory of the text before (XLNet)"}
