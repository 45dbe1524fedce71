"""Span corruption, the objective of T5: predict the spans that sentinels stand for."""

from __future__ import annotations

import bisect
import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from t5x_like.objectives.geometry import ConcatenateAndSplit
from t5x_like.objectives.noise_masks import random_spans, span_counts
from t5x_like.objectives.sentinels import replace_runs

if TYPE_CHECKING:
    from t5x_like.protocols import TokenIds


def random_spans_lengths(
    inputs_length: int, *, noise_density: float = 0.15, mean_noise_span_length: float = 3.0
) -> tuple[int, int]:
    """The raw tokens that fill `inputs_length`, and the targets length they need, EOS included.

    512 inputs take 568 raw tokens and 114 targets. Shorter samples never need more of either.

    Raises:
      ValueError: `inputs_length` has no room for a clean token, a sentinel and EOS.
    """
    if inputs_length < 3:
        raise ValueError(
            f"span corruption needs inputs of at least 3 tokens (a token, a sentinel, EOS), "
            f"got inputs_length={inputs_length}"
        )

    def corrupted(raw: int) -> tuple[int, int]:
        noise, spans = span_counts(
            raw, noise_density=noise_density, mean_span_length=mean_noise_span_length
        )
        return raw - noise + spans + 1, noise + spans + 1

    # Inputs grow with the raw length, by a token at most, and keep the clean share of it.
    longest = int(inputs_length / (1 - noise_density))
    raw = bisect.bisect_right(range(1, longest), inputs_length, key=lambda raw: corrupted(raw)[0])
    targets_length = corrupted(raw)[1]
    # T5's rule for its 50 % presets: targets no longer than inputs.
    if noise_density == 0.5 and targets_length > inputs_length:
        return raw - 1, targets_length - 1
    return raw, targets_length


@dataclasses.dataclass(frozen=True)
class SpanCorruption:
    """Inputs: the sample with each noise span as one sentinel; targets: the spans, so marked.

    "c1 <0> c2 <1>" and "<0> n1 <1> n2", without a closing sentinel (T5, section 3.1.4 and the
    published code).
    """

    noise_density: float = 0.15
    mean_noise_span_length: float = 3.0

    def __post_init__(self) -> None:
        # Noise is derived from the repr: 3 and 3.0 must not differ.
        object.__setattr__(self, "noise_density", float(self.noise_density))
        object.__setattr__(self, "mean_noise_span_length", float(self.mean_noise_span_length))
        if not 0 < self.noise_density < 1:
            raise ValueError(
                f"SpanCorruption: noise_density is a share of the tokens between 0 and 1 (both "
                f"excluded), got {self.noise_density}"
            )
        if not self.mean_noise_span_length >= 1:
            raise ValueError(
                "SpanCorruption: mean_noise_span_length is at least 1 token, got "
                f"{self.mean_noise_span_length}"
            )

    def geometry(self, lengths: Mapping[str, int]) -> ConcatenateAndSplit:
        """Samples of as many tokens as fill the inputs once corrupted.

        Raises:
          ValueError: `lengths` misses a feature, or its targets are too short for the inputs.
        """
        missing = {"inputs", "targets"} - set(lengths)
        if missing:
            raise ValueError(
                f"span corruption needs the lengths of inputs and targets; {sorted(missing)} "
                f"missing from {dict(lengths)}"
            )
        raw, needed = random_spans_lengths(
            lengths["inputs"],
            noise_density=self.noise_density,
            mean_noise_span_length=self.mean_noise_span_length,
        )
        if lengths["targets"] < needed:
            raise ValueError(
                f"{self} with inputs of {lengths['inputs']} tokens has targets of {needed} tokens, "
                f"but the feature lengths allow {lengths['targets']}; set the targets length to "
                f"{needed} or shorten the inputs"
            )
        return ConcatenateAndSplit(raw)

    def __call__(
        self, sample: Mapping[str, np.ndarray], rng: np.random.Generator, ids: TokenIds
    ) -> dict[str, np.ndarray]:
        """Corrupts `sample["targets"]` (int [n], any n): int32 inputs and targets, no EOS."""
        tokens = np.asarray(sample["targets"], dtype=np.int32)
        noise = random_spans(
            len(tokens),
            rng,
            noise_density=self.noise_density,
            mean_span_length=self.mean_noise_span_length,
        )
        return {
            "inputs": replace_runs(tokens, noise, ids=ids),
            "targets": replace_runs(tokens, ~noise, ids=ids),
        }


PRESETS = {"span_corruption": SpanCorruption()}
