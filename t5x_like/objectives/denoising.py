"""T5's denoising objectives: a noise mask, and what inputs and targets keep under it."""

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
from t5x_like.objectives.parts.formats import InputsAndTargets
from t5x_like.objectives.parts.geometry import ConcatenateAndSplit, SplitDocuments
from t5x_like.objectives.parts.probabilities import check_share

if TYPE_CHECKING:
    from t5x_like.core.protocols.data import TokenIds

    Noise = Callable[[int, np.random.Generator], np.ndarray]
    Corruption = Callable[[np.ndarray, np.ndarray, np.random.Generator, TokenIds], np.ndarray]


@dataclasses.dataclass(frozen=True)
class Denoising(InputsAndTargets):
    """Inputs: the corrupted sample; targets: the sample or its noise (T5, section 3.3).

    Attributes:
      noise: draws the noise mask for a number of tokens (`noise_masks`).
      inputs: makes what the encoder reads from tokens and mask (`corruptions`).
      targets: makes what the decoder writes from tokens and mask.
      targets_share: the length of the targets as a share of the length of the inputs. Where the
        amount of noise is random, targets that are too long are cut at the end, as in T5. For
        inputs of 512 this is as rare as in T5. Shorter inputs have noise that varies more
        (`iid_replace` at 128 cuts one sample in 14): set longer targets in
        `TASK_FEATURE_LENGTHS` there.
      concatenate: whether a sample may hold tokens of several documents.
    """

    noise: Noise
    inputs: Corruption
    targets: Corruption
    targets_share: float = 1.0
    concatenate: bool = True

    def __post_init__(self) -> None:
        check_share(self, "targets_share")
        if isinstance(self.noise, IidNoise) and self.targets_share < (mean := self.mean_share):
            raise ValueError(
                f"targets_share={self.targets_share:.3g} would cut the targets of most samples, "
                f"which are {mean:.3g} of a sample on average under {self.noise}: set "
                "denoising.Denoising.targets_share above that (T5 has some 1.1 times as much)"
            )
        needs = [
            name for part in (self.inputs, self.targets) for name in getattr(part, "needs", ())
        ]
        object.__setattr__(self, "needs", tuple(dict.fromkeys(needs)))

    @property
    def mean_share(self) -> float:
        """The mean length of the targets under independent noise, as a share of the sample."""
        density = self.noise.density if isinstance(self.noise, IidNoise) else 1.0
        clean_runs = density * (1 - density)
        shares = {NoiseTokens: density, CleanToSentinels: density + clean_runs}
        return shares.get(type(self.targets), 1.0)

    def lengths(self, tokens: int) -> dict[str, int]:
        """`inputs` of `tokens` tokens, and `targets` of `targets_share` of that, rounded up."""
        return {"inputs": tokens, "targets": math.ceil(tokens * self.targets_share)}

    def geometry(self, lengths: Mapping[str, int]) -> ConcatenateAndSplit | SplitDocuments:
        """Samples that fill the inputs together with the end of sequence.

        Targets that are longer than their length are cut. After a prefix they have any length, so
        that theirs is free, as in T5.

        Raises:
          ValueError: `lengths` lacks a feature, the inputs have no room for a token, or the
            targets are shorter than `targets_share` of the inputs.
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
        if lengths["targets"] < share and not isinstance(self.noise, SuffixNoise):
            raise ValueError(
                f"{self} has targets of {share} tokens for inputs of {lengths['inputs']}, but the "
                f"feature lengths allow {lengths['targets']}; set the targets length to {share}, "
                "or targets_share to have more of them cut"
            )
        shape = ConcatenateAndSplit if self.concatenate else SplitDocuments
        return shape(lengths["inputs"] - 1)

    def sizes(self, n: np.ndarray) -> dict[str, np.ndarray]:
        """The greatest feature lengths for samples of `n` tokens (int [samples]), EOS included."""
        return {"inputs": n + 1, "targets": n + 1}

    def __call__(
        self, sample: Mapping[str, np.ndarray], rng: np.random.Generator, ids: TokenIds
    ) -> dict[str, np.ndarray]:
        """Corrupts `sample["targets"]` (int [n], any n): int32 inputs and targets without EOS."""
        tokens = np.asarray(sample["targets"], dtype=np.int32)
        mask = self.noise(len(tokens), rng)
        return {
            "inputs": self.inputs(tokens, mask, rng, ids),
            "targets": self.targets(tokens, mask, rng, ids),
        }


@dataclasses.dataclass(frozen=True)
class SeparatedDenoising(Denoising):
    """`Denoising` of text with a separator after each document; no example ends with EOS.

    T5's published code has it for prefix language models ("prefix LM objective").
    """

    steps = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "needs", tuple(dict.fromkeys((*self.needs, "eos"))))

    def geometry(self, lengths: Mapping[str, int]) -> ConcatenateAndSplit:
        """Samples that fill the inputs.

        Raises:
          ValueError: as `Denoising.geometry`.
        """
        return ConcatenateAndSplit(super().geometry(lengths).length + 1, separators=True)

    def sizes(self, n: np.ndarray) -> dict[str, np.ndarray]:
        """The greatest feature lengths for samples of `n` tokens (int [samples])."""
        return {"inputs": n, "targets": n}


def iid_replaced(density: float, targets_share: float) -> Denoising:
    """Noise on each token independently; each run of noise becomes a sentinel."""
    return Denoising(IidNoise(density), NoiseToSentinels(), CleanToSentinels(), targets_share)


def iid_dropped(density: float, targets_share: float) -> Denoising:
    """Noise on each token independently; the inputs leave the noise out."""
    return Denoising(IidNoise(density), CleanTokens(), NoiseTokens(), targets_share)


# The shares are T5's target lengths for inputs of 512 tokens.
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
    "prefix_lm": "predict the rest of a text from its beginning, cut at a random place (T5)",
    "bert_style": "restore a text with 15 % of its tokens replaced: 90 % masked, 10 % random (T5)",
    "deshuffling": "restore the order of a text's shuffled tokens (T5)",
    "mass_style": "restore a text with 15 % of its tokens masked (T5)",
    "iid_replace": "predict 15 % of the tokens, drawn singly, each run replaced by a sentinel (T5)",
    "iid_drop": "predict 15 % of the tokens, drawn singly and left out of the inputs (T5)",
    "mass": "predict one fragment, half of the text, that is masked in the inputs (MASS)",
}
