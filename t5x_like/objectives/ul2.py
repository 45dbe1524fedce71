"""UL2's mixture of denoisers: each example by one of several objectives, named by a mode token."""

from __future__ import annotations

import bisect
import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from t5x_like.objectives.denoising import Denoising
from t5x_like.objectives.noise.corruptions import CleanTokens, NoiseTokens
from t5x_like.objectives.noise.noise_masks import SuffixNoise
from t5x_like.objectives.parts.drawing import thresholds
from t5x_like.objectives.parts.formats import EncoderDecoder
from t5x_like.objectives.parts.geometry import ConcatenateAndSplit
from t5x_like.objectives.span_corruption import SpanCorruption

if TYPE_CHECKING:
    from t5x_like.core.protocols import TokenIds


@dataclasses.dataclass(frozen=True)
class Denoiser:
    """One objective of a mixture.

    Attributes:
      mode: the token that inputs begin with, a named one of the vocabulary.
      rate: its share of the examples, relative to the other denoisers' rates.
      objective: what makes inputs and targets from the text.
    """

    mode: str
    rate: float
    objective: SpanCorruption | Denoising

    def __post_init__(self) -> None:
        object.__setattr__(self, "rate", float(self.rate))
        if not self.rate > 0:
            raise ValueError(f"Denoiser: rate is a share above 0, got {self.rate}")


PREFIX_LM = Denoising(SuffixNoise(0.5), CleanTokens(), NoiseTokens())

# R, X and S-denoisers of UL2, table 1 and section 3.1.2, at the rates that are widely copied: the
# paper finds 20 % of S best. X-denoisers are two fifths of the examples and most of the targets.
DENOISERS = (
    Denoiser("[R]", 0.2, SpanCorruption(0.15, 3.0)),
    Denoiser("[R]", 0.2, SpanCorruption(0.15, 8.0)),
    Denoiser("[X]", 0.1, SpanCorruption(0.5, 3.0)),
    Denoiser("[X]", 0.1, SpanCorruption(0.5, 8.0)),
    Denoiser("[X]", 0.1, SpanCorruption(0.15, 64.0)),
    Denoiser("[X]", 0.1, SpanCorruption(0.5, 64.0)),
    Denoiser("[S]", 0.2, PREFIX_LM),
)


@dataclasses.dataclass(frozen=True)
class UL2(EncoderDecoder):
    """By a denoiser drawn for each example, whose mode token inputs begin with (UL2, section 3.1).

    The corpus is read once, whatever the denoisers: a sample is long enough for any, and one that
    takes fewer tokens takes them from a random place in it.

    Attributes:
      denoisers: what is mixed.
      mode_tokens: whether inputs begin with the token of the mode.
    """

    denoisers: tuple[Denoiser, ...] = DENOISERS
    mode_tokens: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "denoisers", tuple(self.denoisers))
        if not self.denoisers:
            raise ValueError("UL2: denoisers is empty; name at least one")
        modes = [denoiser.mode for denoiser in self.denoisers] if self.mode_tokens else []
        needs = [*modes, *(name for one in self.denoisers for name in one.objective.needs)]
        object.__setattr__(self, "needs", tuple(dict.fromkeys(needs)))

    def lengths(self, tokens: int) -> dict[str, int]:
        """`inputs` of all the tokens, and the longest `targets` of any denoiser."""
        targets = [one.objective.lengths(tokens)["targets"] for one in self.denoisers]
        return {"inputs": tokens, "targets": max(targets)}

    def geometry(self, lengths: Mapping[str, int]) -> ConcatenateAndSplit:
        """Samples for the longest denoiser, which start the expected length apart.

        Each holds the raw length of every denoiser, "raw_0" and so on: what fills the inputs but
        for the mode token, so that nothing is cut.

        Raises:
          ValueError: `lengths` misses a feature, or does not fit one of the denoisers.
        """
        room = {name: n - (name == "inputs" and self.mode_tokens) for name, n in lengths.items()}
        raw = [one.objective.geometry(room).length for one in self.denoisers]
        rates = [one.rate for one in self.denoisers]
        return ConcatenateAndSplit(
            length=max(raw),
            stride=round(float(np.average(raw, weights=rates))),
            constants=tuple((f"raw_{k}", n) for k, n in enumerate(raw)),
        )

    def __call__(
        self, sample: Mapping[str, np.ndarray], rng: np.random.Generator, ids: TokenIds
    ) -> dict[str, np.ndarray]:
        """Corrupts as much of `sample["targets"]` (int [n], any n) as a drawn denoiser takes."""
        chosen = bisect.bisect(thresholds([one.rate for one in self.denoisers]), rng.random())
        denoiser = self.denoisers[chosen]
        tokens = sample["targets"]
        raw = int(sample[f"raw_{chosen}"])
        if len(tokens) > raw:
            start = rng.integers(len(tokens) - raw + 1)
            tokens = tokens[start : start + raw]
        features = denoiser.objective({"targets": tokens}, rng, ids)
        if self.mode_tokens:
            mode = np.array([ids.named[denoiser.mode]], np.int32)
            features["inputs"] = np.concatenate([mode, features["inputs"]])
        return features


PRESETS = {"ul2": UL2()}
SUMMARIES = {
    "ul2": "spans short and rare, or long or many, or the rest of a text, after a mode token (UL2)"
}
