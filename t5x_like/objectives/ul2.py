"""UL2's mixture of denoisers: one of several objectives for each example, with a mode token."""

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
from t5x_like.objectives.parts.formats import InputsAndTargets
from t5x_like.objectives.parts.geometry import ConcatenateAndSplit
from t5x_like.objectives.span_corruption import SpanCorruption

if TYPE_CHECKING:
    from t5x_like.core.protocols.data import TokenIds


@dataclasses.dataclass(frozen=True)
class Denoiser:
    """One objective of a mixture.

    Attributes:
      mode: the token that inputs begin with, one of `TokenIds.named`.
      rate: its share of the examples, relative to the other denoisers' rates.
      objective: makes inputs and targets from the text.
    """

    mode: str
    rate: float
    objective: SpanCorruption | Denoising

    def __post_init__(self) -> None:
        object.__setattr__(self, "rate", float(self.rate))
        if not self.rate > 0:
            raise ValueError(f"Denoiser: rate is a share above 0, got {self.rate}")


PREFIX_LM = Denoising(SuffixNoise(0.5), CleanTokens(), NoiseTokens())

# The R-, X- and S-denoisers are those of UL2, table 1 and section 3.1.2. The rates are the ones
# that are widely copied; the paper finds 20 % of S best. X-denoisers make two fifths of the
# examples and most of the target tokens.
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
class UL2(InputsAndTargets):
    """Draws a denoiser for each example; inputs begin with its mode token (UL2, section 3.1).

    All denoisers read the same samples, which are long enough for each of them. A denoiser that
    takes fewer tokens takes them from a random place of the sample.

    Attributes:
      denoisers: the denoisers of the mixture.
      mode_tokens: whether inputs begin with the mode token.
    """

    denoisers: tuple[Denoiser, ...] = DENOISERS
    mode_tokens: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "denoisers", tuple(self.denoisers))
        if not self.denoisers:
            raise ValueError("UL2: denoisers is empty; name at least one")
        modes = [denoiser.mode for denoiser in self.denoisers] if self.mode_tokens else []
        needs = [
            *modes,
            *(name for denoiser in self.denoisers for name in denoiser.objective.needs),
        ]
        object.__setattr__(self, "needs", tuple(dict.fromkeys(needs)))

    def lengths(self, tokens: int) -> dict[str, int]:
        """`inputs` of `tokens` tokens, and the longest `targets` of any denoiser."""
        targets = [denoiser.objective.lengths(tokens)["targets"] for denoiser in self.denoisers]
        return {"inputs": tokens, "targets": max(targets)}

    def geometry(self, lengths: Mapping[str, int]) -> ConcatenateAndSplit:
        """Samples as long as the longest denoiser needs; they start a mean length apart.

        Each sample holds the raw length of denoiser 0 as "raw_0", and so on: the tokens that fill
        the inputs together with the mode token, so that nothing is cut.

        Raises:
          ValueError: `lengths` lacks a feature, or does not fit one of the denoisers.
        """
        room = {name: n - (name == "inputs" and self.mode_tokens) for name, n in lengths.items()}
        raw = [denoiser.objective.geometry(room).length for denoiser in self.denoisers]
        rates = [denoiser.rate for denoiser in self.denoisers]
        return ConcatenateAndSplit(
            length=max(raw),
            stride=round(float(np.average(raw, weights=rates))),
            constants=tuple((f"raw_{k}", n) for k, n in enumerate(raw)),
        )

    def __call__(
        self, sample: Mapping[str, np.ndarray], rng: np.random.Generator, ids: TokenIds
    ) -> dict[str, np.ndarray]:
        """Draws a denoiser and corrupts the part of `sample["targets"]` (int [n]) it takes."""
        chosen = bisect.bisect(
            thresholds([any_denoiser.rate for any_denoiser in self.denoisers]), rng.random()
        )
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
    "ul2": "predict short spans, long or many spans, or the rest of a text, by a mode token (UL2)"
}
