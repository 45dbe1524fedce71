"""The settings of decoding, and what it gives."""

from __future__ import annotations

import dataclasses
from typing import Literal, NamedTuple

import jax

from t5x_like.inference.decoding.token_rules import TokenRules


@dataclasses.dataclass(frozen=True, kw_only=True)
class Decoding(TokenRules):
    """How answers are written. Names and meanings are those of transformers' `GenerationConfig`.

    Attributes:
      num_beams: the sequences that beam search keeps; 1 takes one token after another.
      num_return_sequences: the answers to a text, the best first.
      length_penalty: beam search divides a sequence's log-probability by its length to this power.
      early_stopping: whether beam search ends once it has `num_beams` whole sequences. False goes
        on while the best unfinished one would be better at its present length, "never" at any
        length.
      seed: the seed of random choices.
    """

    num_beams: int = 1
    num_return_sequences: int = 1
    length_penalty: float = 1.0
    early_stopping: bool | Literal["never"] = False
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("num_beams", "num_return_sequences"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.num_beams == 1 and self.num_return_sequences > 1 and not self.do_sample:
            raise ValueError(
                f"num_return_sequences={self.num_return_sequences} needs num_beams of at least as "
                "many, or do_sample: greedy decoding gives one answer"
            )
        if 1 < self.num_beams < self.num_return_sequences:
            raise ValueError(
                f"num_return_sequences={self.num_return_sequences} is more than the "
                f"{self.num_beams} sequences that num_beams keeps"
            )
        if self.early_stopping not in (True, False, "never"):
            raise ValueError(
                f"early_stopping must be True, False or 'never', not {self.early_stopping!r}"
            )


class Specials(NamedTuple):
    """The ids that end an answer (-1: none) and fill up rows, and the number of ids to choose from.

    Ids from `vocab_size` on are rows of the table without a token.
    """

    eos: int = 1
    pad: int = 0
    vocab_size: int | None = None


class Answers(NamedTuple):
    """The answers that a model has written.

    Attributes:
      tokens: int32 [B, num_return_sequences, T], end of sequence included, padding after it.
      scores: float32 [B, num_return_sequences]: the log-probability of the tokens under the model
        as the settings change it; beam search divides it by length ** length_penalty.
    """

    tokens: jax.Array
    scores: jax.Array
