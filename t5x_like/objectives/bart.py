"""BART's denoising: a decoder restores a text that one or several kinds of noise changed."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

import numpy as np

from t5x_like.objectives.noise.document_rotation import DocumentRotation
from t5x_like.objectives.noise.sentence_permutation import SentencePermutation
from t5x_like.objectives.noise.text_infilling import TextInfilling
from t5x_like.objectives.noise.token_noise import TokenDeletion, TokenMasking
from t5x_like.objectives.parts.formats import InputsAndTargets
from t5x_like.objectives.parts.sentence_blocks import SentenceBlocks

if TYPE_CHECKING:
    from t5x_like.core.protocols.data import TokenIds

SPECIALS = 2


class Noise(Protocol):
    """A change of a text: a frozen dataclass, whose repr identifies the noise.

    Attributes:
      needs: what the vocabulary must have, as in `protocols.Objective`.
    """

    @property
    def needs(self) -> tuple[str, ...]: ...

    def __call__(self, tokens: np.ndarray, rng: np.random.Generator, ids: TokenIds) -> np.ndarray:
        """The noisy text: int32 [at most n] for int32 [n], any n. `tokens` stay unchanged."""


def with_special_tokens(text: np.ndarray, ids: TokenIds) -> np.ndarray:
    """int32 [n + 2]: "<s> text </s>", with [CLS] where the vocabulary has no <s>."""
    tokens = np.empty(len(text) + SPECIALS, np.int32)
    tokens[0] = ids.given("cls") if ids.bos is None else ids.bos
    tokens[1:-1] = text
    tokens[-1] = ids.given("eos")
    return tokens


@dataclasses.dataclass(frozen=True)
class BART(InputsAndTargets):
    """Inputs: a block of sentences with noise; targets: the whole block (BART, section 2).

    Both have the form "<s> text </s>". The `noises` are applied one after the other. The decoder
    starts from </s>, so the first token that it learns to predict is <s>.
    """

    steps = ()
    decoder_start = "eos"

    noises: tuple[Noise, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "noises", tuple(self.noises))
        needs = [name for noise in self.noises for name in noise.needs]
        # A vocabulary with <s> has it as its [CLS] too.
        object.__setattr__(self, "needs", tuple(dict.fromkeys(["cls", "eos", *needs])))

    def lengths(self, tokens: int) -> dict[str, int]:
        """Inputs and targets of `tokens` tokens each."""
        return {"inputs": tokens, "targets": tokens}

    def geometry(self, lengths: Mapping[str, int]) -> SentenceBlocks:
        """Whole sentences of one document, as many as fit between <s> and </s>.

        Raises:
          ValueError: `lengths` lacks a feature, or leaves no room for text.
        """
        if missing := {"inputs", "targets"} - set(lengths):
            raise ValueError(
                f"denoising needs the lengths of inputs and targets; {sorted(missing)} missing "
                f"from {dict(lengths)}"
            )
        # Noise never makes a text longer, so the shorter feature sets the length of both.
        shorter = min(lengths["inputs"], lengths["targets"])
        if shorter <= SPECIALS:
            raise ValueError(
                f"inputs and targets need {SPECIALS + 1} tokens at least (<s>, a token, </s>), "
                f"got {dict(lengths)}"
            )
        return SentenceBlocks(shorter - SPECIALS, cross_documents=False)

    def __call__(
        self, sample: Mapping[str, np.ndarray], rng: np.random.Generator, ids: TokenIds
    ) -> dict[str, np.ndarray]:
        """Adds noise to `sample["targets"]` (int [n], any n): int32 inputs and targets.

        The sample's `segments`, if there are any, are its sentences.

        Raises:
          ValueError: the vocabulary lacks some of `needs`.
        """
        if missing := ids.missing(self.needs):
            raise ValueError(f"{self} needs a vocabulary with {', '.join(missing)}")
        text = np.asarray(sample["targets"], np.int32)
        noisy = text
        for noise in self.noises:
            if isinstance(noise, SentencePermutation) and noisy is text:
                # After another noise the sentences would start elsewhere.
                noisy = noise(text, rng, ids, sample.get("segments"))
            else:
                noisy = noise(noisy, rng, ids)
        return {
            "inputs": with_special_tokens(noisy, ids),
            "targets": with_special_tokens(text, ids),
        }


PRESETS = {
    "bart": BART((SentencePermutation(), TextInfilling())),
    # The paper gives no rate of masking or deletion. It follows BERT, and so does the rate here.
    "token_masking": BART((TokenMasking(),)),
    "token_deletion": BART((TokenDeletion(),)),
    "text_infilling": BART((TextInfilling(),)),
    "sentence_permutation": BART((SentencePermutation(),)),
    "document_rotation": BART((DocumentRotation(),)),
}
SUMMARIES = {
    "bart": "restore shuffled sentences and spans of words, each now a mask (BART, section 5.1)",
    "token_masking": "restore a text with 15 % of its tokens masked (BART, section 2.2)",
    "token_deletion": "restore a text with 15 % of its tokens deleted (BART, section 2.2)",
    "text_infilling": "restore spans of words, 30 % in all, each now a mask (BART, section 2.2)",
    "sentence_permutation": "restore the order of shuffled sentences (BART, section 2.2)",
    "document_rotation": "find where a rotated text begins (BART, section 2.2)",
}
