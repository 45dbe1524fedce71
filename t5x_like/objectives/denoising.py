"""T5's table of denoising objectives: a noise mask, and what inputs and targets show under it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from t5x_like.objectives.noise.corruptions import (
    CleanTokens,
    CleanToSentinels,
    MaskNoise,
    NoiseTokens,
    NoiseToSentinels,
    Original,
    ShuffleNoise,
)
from t5x_like.objectives.noise.noise_masks import FragmentNoise, IidNoise, SuffixNoise
from t5x_like.objectives.parts.formats import EncoderDecoder
from t5x_like.objectives.parts.geometry import ConcatenateAndSplit, SplitDocuments
from t5x_like.objectives.parts.probabilities import check_share

if TYPE_CHECKING:
    from t5x_like.core.protocols import TokenIds

    Noise = Callable[[int, np.random.Generator], np.ndarray]
    Corruption = Callable[[np.ndarray, np.ndarray, np.random.Generator, TokenIds], np.ndarray]


@dataclasses.dataclass(frozen=True)
class Denoising(EncoderDecoder):
    """Inputs: the sample under a noise mask; targets: it, or what the mask took (T5, section 3.3).

    Attributes:
      noise: draws the mask of so many tokens (`noise_masks`).
      inputs: what the encoder reads, by tokens and mask (`corruptions`).
      targets: what the decoder writes.
      targets_share: the length of the targets as a share of that of the inputs. Where noise is of
        a random amount, longer targets are cut at the end, as in T5: as rarely as it was there for
        inputs of 512, but more often for shorter ones, whose noise varies more (of `iid_replace`,
        one in 14 at 128); give `TASK_FEATURE_LENGTHS` longer targets then.
      concatenate: samples run on from one document to the next; if not, none holds two.
    """

    noise: Noise
    inputs: Corruption
    targets: Corruption
    targets_share: float = 1.0
    concatenate: bool = True

    def __post_init__(self) -> None:
        check_share(self, "targets_share")
        if isinstance(self.noise, IidNoise) and self.targets_share < (mean := self._mean_share()):
            raise ValueError(
                f"targets_share={self.targets_share:.3g} would cut the targets of most samples, "
                f"which are {mean:.3g} of a sample on average under {self.noise}: set "
                "denoising.Denoising.targets_share above that (T5 has some 1.1 times as much)"
            )
        needs = [
            name for part in (self.inputs, self.targets) for name in getattr(part, "needs", ())
        ]
        object.__setattr__(self, "needs", tuple(dict.fromkeys(needs)))

    def _mean_share(self) -> float:
        """Tokens of the targets under independent noise, as a share of the sample's."""
        density = self.noise.density if isinstance(self.noise, IidNoise) else 1.0
        clean_runs = density * (1 - density)
        shares = {NoiseTokens: density, CleanToSentinels: density + clean_runs}
        return shares.get(type(self.targets), 1.0)

    def lengths(self, tokens: int) -> dict[str, int]:
        """`inputs` of all the tokens, and `targets` of their share."""
        return {"inputs": tokens, "targets": math.ceil(tokens * self.targets_share)}

    def geometry(self, lengths: Mapping[str, int]) -> ConcatenateAndSplit | SplitDocuments:
        """Samples of as many tokens as the inputs hold beside the end of sequence.

        Raises:
          ValueError: `lengths` misses a feature, its inputs hold no token, or its targets are
            shorter than their share.
        """
        missing = {"inputs", "targets"} - set(lengths)
        if missing:
            raise ValueError(
                f"denoising needs the lengths of inputs and targets; {sorted(missing)} missing "
                f"from {dict(lengths)}"
            )
        if lengths["inputs"] < 2:
            raise ValueError(
                "denoising needs inputs of at least 2 tokens (a token, EOS), got "
                f"{lengths['inputs']}"
            )
        share = self.lengths(lengths["inputs"])["targets"]
        if lengths["targets"] < share:
            raise ValueError(
                f"{self} has targets of {share} tokens for inputs of {lengths['inputs']}, but the "
                f"feature lengths allow {lengths['targets']}; set the targets length to {share}, "
                "or targets_share to have more of them cut"
            )
        shape = ConcatenateAndSplit if self.concatenate else SplitDocuments
        return shape(lengths["inputs"] - 1)

    def sizes(self, n: np.ndarray) -> dict[str, np.ndarray]:
        """The longest features of samples of `n` tokens (int [samples]), EOS included."""
        return {"inputs": n + 1, "targets": n + 1}

    def __call__(
        self, sample: Mapping[str, np.ndarray], rng: np.random.Generator, ids: TokenIds
    ) -> dict[str, np.ndarray]:
        """Corrupts `sample["targets"]` (int [n], any n): int32 inputs and targets, no EOS."""
        tokens = np.asarray(sample["targets"], dtype=np.int32)
        mask = self.noise(len(tokens), rng)
        return {
            "inputs": self.inputs(tokens, mask, rng, ids),
            "targets": self.targets(tokens, mask, rng, ids),
        }


def iid_replaced(density: float, targets_share: float) -> Denoising:
    """Independent noise; its runs become sentinels."""
    return Denoising(IidNoise(density), NoiseToSentinels(), CleanToSentinels(), targets_share)


def iid_dropped(density: float, targets_share: float) -> Denoising:
    """Independent noise; it is left out of the inputs."""
    return Denoising(IidNoise(density), CleanTokens(), NoiseTokens(), targets_share)


# Shares are T5's target lengths for 512 inputs. It has none for other rates of dropped tokens:
# there, one sample in 1,000 is cut, as at its rate of 15 %.
PRESETS = {
    "prefix_lm": Denoising(SuffixNoise(0.5), CleanTokens(), NoiseTokens(), concatenate=False),
    "bert_style": Denoising(IidNoise(0.15), MaskNoise(random=0.1), Original()),
    "deshuffling": Denoising(IidNoise(1.0), ShuffleNoise(), Original(), concatenate=False),
    "mass_style": Denoising(IidNoise(0.15), MaskNoise(), Original()),
    "iid_replace": iid_replaced(0.15, 192 / 512),
    "iid_drop": iid_dropped(0.15, 104 / 512),
    "mass": Denoising(
        FragmentNoise(0.5), MaskNoise(random=0.1, kept=0.1), NoiseTokens(), targets_share=0.5
    ),
}
SUMMARIES = {
    "prefix_lm": "the rest of a text from its beginning, cut at a random place (T5)",
    "bert_style": "the whole text from one with 15 % masked, a tenth of that by random tokens (T5)",
    "deshuffling": "the whole text from its tokens in random order (T5)",
    "mass_style": "the whole text from one with 15 % of the tokens masked (T5)",
    "iid_replace": "runs of tokens drawn one by one, 15 %, each run replaced by a sentinel (T5)",
    "iid_drop": "the tokens left out of a text, 15 % drawn one by one (T5)",
    "mass": "half the text, one fragment masked in the inputs (MASS)",
}
