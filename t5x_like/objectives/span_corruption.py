"""Span corruption, T5's objective: predict the spans that sentinels stand for."""

from __future__ import annotations

import bisect
import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from t5x_like.objectives.noise.noise_masks import mask_of_spans, random_span_starts, span_counts
from t5x_like.objectives.parts.formats import InputsAndTargets
from t5x_like.objectives.parts.geometry import ConcatenateAndSplit, SplitDocuments
from t5x_like.objectives.parts.sentinel_spans import replace_runs

if TYPE_CHECKING:
    from t5x_like.core.protocols.data import TokenIds


def corrupted_lengths(
    raw: int, *, noise_density: float, mean_noise_span_length: float, marks: int = 1
) -> tuple[int, int]:
    """The lengths of inputs and targets made from `raw` tokens, EOS included.

    `marks` is the number of tokens that mark a span in the inputs, and a gap in the targets.
    """
    if raw < 2:
        return raw + 1, raw * marks + 1
    noise, spans = span_counts(
        raw, noise_density=noise_density, mean_span_length=mean_noise_span_length
    )
    added = marks * spans + 1
    return raw - noise + added, noise + added


def random_spans_lengths(
    inputs_length: int,
    *,
    noise_density: float = 0.15,
    mean_noise_span_length: float = 3.0,
    marks: int = 1,
) -> tuple[int, int]:
    """The raw tokens that fill `inputs_length`, and the targets length they need, EOS included.

    Inputs of 512 tokens hold 568 raw tokens and need targets of 114. Shorter samples need no more.

    Raises:
      ValueError: `inputs_length` has no room for a clean token, a sentinel and EOS.
    """
    if inputs_length < 3:
        raise ValueError(
            f"span corruption needs inputs of at least 3 tokens (a token, a sentinel, EOS), "
            f"got inputs_length={inputs_length}"
        )

    def corrupted(raw: int) -> tuple[int, int]:
        return corrupted_lengths(
            raw,
            noise_density=noise_density,
            mean_noise_span_length=mean_noise_span_length,
            marks=marks,
        )

    # With each raw token the inputs grow by one at most, and they keep the clean tokens.
    longest = int(inputs_length / (1 - noise_density))
    raw = bisect.bisect_right(
        range(1, longest + 1), inputs_length, key=lambda raw: corrupted(raw)[0]
    )
    targets_length = corrupted(raw)[1]
    # T5's rule for its 50 % presets: targets are no longer than inputs.
    if noise_density == 0.5 and targets_length > inputs_length:
        return raw - 1, targets_length - 1
    return raw, targets_length


@dataclasses.dataclass(frozen=True)
class SpanCorruption(InputsAndTargets):
    """Inputs: the sample with a sentinel for each noise span; targets: the spans after sentinels.

    Inputs are "c1 <0> c2 <1>" and targets "<0> n1 <1> n2", without a closing sentinel (T5, section
    3.1.4 and the published code). The last span ends the sample, so a sample with room for a single
    span is always cut at the same place. Two spans need a sample of
    1.5 * `mean_noise_span_length` / `noise_density` tokens.
    """

    needs = (*InputsAndTargets.needs, "sentinels")

    noise_density: float = 0.15
    mean_noise_span_length: float = 3.0

    def __post_init__(self) -> None:
        # Noise is derived from the repr: 3 and 3.0 must not differ.
        object.__setattr__(self, "noise_density", float(self.noise_density))
        object.__setattr__(self, "mean_noise_span_length", float(self.mean_noise_span_length))
        if not 0 < self.noise_density < 1:
            raise ValueError(
                f"{type(self).__name__}: noise_density is a share of the tokens between 0 and 1 "
                f"(both excluded), got {self.noise_density}"
            )
        if not self.mean_noise_span_length >= 1:
            raise ValueError(
                f"{type(self).__name__}: mean_noise_span_length is at least 1 token, got "
                f"{self.mean_noise_span_length}"
            )

    def lengths(self, tokens: int) -> dict[str, int]:
        """`inputs` of `tokens` tokens, and the `targets` of a sample that fills them.

        Raises:
          ValueError: the inputs have no room for a clean token, a sentinel and EOS.
        """
        return {"inputs": tokens, "targets": random_spans_lengths(tokens, **self._shape())[1]}

    def geometry(self, lengths: Mapping[str, int]) -> ConcatenateAndSplit | SplitDocuments:
        """Samples of as many tokens as fill the inputs once corrupted.

        Raises:
          ValueError: `lengths` lacks a feature, or its targets are too short for the inputs.
        """
        missing = {"inputs", "targets"} - set(lengths)
        if missing:
            raise ValueError(
                f"span corruption needs the lengths of inputs and targets; {sorted(missing)} "
                f"missing from {dict(lengths)}"
            )
        raw, needed = random_spans_lengths(lengths["inputs"], **self._shape())
        if lengths["targets"] < needed:
            raise ValueError(
                f"{self} with inputs of {lengths['inputs']} tokens has targets of {needed} tokens, "
                f"but the feature lengths allow {lengths['targets']}; set the targets length to "
                f"{needed} or shorten the inputs"
            )
        return ConcatenateAndSplit(raw)

    def sizes(self, n: np.ndarray) -> dict[str, np.ndarray]:
        """The features' lengths for samples of `n` tokens (int [samples]), EOS included."""
        different, places = np.unique(n, return_inverse=True)
        known = [corrupted_lengths(raw, **self._shape()) for raw in different.tolist()]
        inputs, targets = np.array(known, np.int64).reshape(-1, 2)[places].T
        return {"inputs": inputs, "targets": targets}

    def __call__(
        self, sample: Mapping[str, np.ndarray], rng: np.random.Generator, ids: TokenIds
    ) -> dict[str, np.ndarray]:
        """Corrupts `sample["targets"]` (int [n], any n): int32 inputs and targets without EOS."""
        tokens = np.asarray(sample["targets"], dtype=np.int32)
        clean_starts, noise_starts = random_span_starts(
            len(tokens),
            rng,
            noise_density=self.noise_density,
            mean_span_length=self.mean_noise_span_length,
        )
        noise = mask_of_spans(len(tokens), clean_starts, noise_starts)
        return {
            "inputs": self._without(tokens, noise, noise_starts, ids),
            "targets": self._without(tokens, ~noise, clean_starts, ids),
        }

    def _shape(self) -> dict[str, Any]:
        return {
            "noise_density": self.noise_density,
            "mean_noise_span_length": self.mean_noise_span_length,
            "marks": self._marks,
        }

    # How many tokens mark a span or a gap that is taken out.
    _marks = 1

    @staticmethod
    def _without(
        tokens: np.ndarray, mask: np.ndarray, starts: np.ndarray, ids: TokenIds
    ) -> np.ndarray:
        return replace_runs(tokens, mask, ids=ids, starts=starts)


@dataclasses.dataclass(frozen=True)
class SplitSpanCorruption(SpanCorruption):
    """`SpanCorruption` of samples that hold tokens of one document each (T5's published code)."""

    def geometry(self, lengths: Mapping[str, int]) -> SplitDocuments:
        """Documents cut into samples that fill the inputs; the last of each may be shorter.

        Raises:
          ValueError: `lengths` lacks a feature, or its targets are too short for the inputs.
        """
        return SplitDocuments(super().geometry(lengths).length)


@dataclasses.dataclass(frozen=True)
class DropSpans(SpanCorruption):
    """Inputs: the sample without its noise spans; targets: the spans (T5, section 3.3)."""

    needs = ()

    _marks = 0

    @staticmethod
    def _without(
        tokens: np.ndarray, mask: np.ndarray, starts: np.ndarray, ids: TokenIds
    ) -> np.ndarray:
        return tokens[~mask]


PRESETS = {
    "span_corruption": SpanCorruption(),
    "drop_spans": DropSpans(0.15, 3.0),
}
SUMMARIES = {
    "span_corruption": "predict 15 % in spans of 3 tokens on average, each now a sentinel (T5)",
    "drop_spans": "predict 15 % in spans of 3 tokens on average, left out of the inputs (T5)",
}
