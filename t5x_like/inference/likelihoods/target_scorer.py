"""Log-likelihoods of targets, by models that write.

Suffixes: B batch, L length, V vocabulary.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from t5x_like.core.protocols.data import TokenIds
from t5x_like.inference import text_rows
from t5x_like.inference.likelihoods.likelihood import Likelihood, Span
from t5x_like.inference.model_on_mesh import ModelOnMesh

if TYPE_CHECKING:
    from t5x_like.core.protocols.model import Batch


class Pair(NamedTuple):
    """An input and a target, as tokens; a model that only reads or only continues has one text.

    Of the target, the last `counted` tokens are summed; None for all.
    """

    inputs: list[int]
    targets: list[int]
    counted: int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class TargetScorer:
    """log p(target | input) of models that write, summed over the target's tokens.

    Attributes:
      model: an encoder-decoder, or a decoder alone.
      ids: the special ids of its vocabulary.
      start: the id that a decoder reads first; None where a decoder alone begins with the input,
        or without one with what a text follows (`text_rows.beginning`).
      prefix: whether a decoder alone sees the input from both sides.
      batch_size: the rows of a batch.
      max_positions: the most tokens of a decoder's row; None for any number.
    """

    both_sides: ClassVar[bool] = False

    model: ModelOnMesh
    ids: TokenIds
    start: int | None
    prefix: bool = False
    batch_size: int = text_rows.ROWS
    max_positions: int | None = None

    @property
    def alone(self) -> bool:
        """Whether the model has no encoder."""
        return not self.model.model.reads_apart

    def check(self, pair: Pair) -> None:
        """Raises ValueError where the decoder has too few positions."""
        pair, _ = self.fitted(pair)
        length = len(pair.targets) + (len(pair.inputs) if self.alone else 0)
        if self.max_positions is not None and length > self.max_positions:
            raise ValueError(
                f"{len(pair.targets)} tokens leave no room among the {self.max_positions} that the "
                "model reads: shorten the text whose likelihood is asked for"
            )

    def fitted(self, pair: Pair) -> tuple[Pair, bool]:
        """The pair, and whether its input has lost its first tokens.

        A decoder alone keeps as many of the last ones as it has positions for beside the target.
        """
        length = len(pair.inputs) + len(pair.targets)
        over = 0 if self.max_positions is None else length - self.max_positions
        if not self.alone or not 0 < over < len(pair.inputs):
            return pair, False
        return pair._replace(inputs=pair.inputs[over:]), True

    def scored(self, pair: Pair) -> int:
        """The number of tokens whose log-probabilities are summed.

        Those are all of the target, but for its first one where nothing is before it.
        """
        nothing = self.alone and not self._prompt(pair.inputs)
        counted = len(pair.targets) if pair.counted is None else pair.counted
        return max(min(len(pair.targets) - nothing, counted), 0)

    def spans(self, spans: Sequence[Span]) -> list[Likelihood]:
        """How likely each span is after the tokens before it, by a decoder alone.

        Of these, it reads as many of the last ones as it has positions for.
        """
        pairs = [Pair(tokens[:begin], tokens[begin:end]) for tokens, begin, end in spans]
        return self([self.fitted(pair)[0] for pair in pairs])

    def __call__(self, pairs: Sequence[Pair]) -> list[Likelihood]:
        """How likely each target is, its end included if it has one."""
        likelihoods = [Likelihood(0.0, True, 0)] * len(pairs)
        size = self.model.rows(self.batch_size)
        # Rows are as long as the longer side; both are padded to one bucket.
        longest = [
            [0]
            * (len(p.inputs) + len(p.targets) if self.alone else max(len(p.inputs), len(p.targets)))
            for p in pairs
        ]
        for batch in text_rows.batches(
            longest, pad=self.ids.pad, size=size, max_length=self.max_positions
        ):
            chosen = [pairs[n] for n in batch.numbers]
            make = self._one_row if self.alone else self._two_rows
            arrays = make(chosen, *batch.tokens.shape)
            sums, likeliest = map(np.asarray, self.model(_target_log_p, arrays))
            for place, n in enumerate(batch.numbers):
                likelihoods[n] = Likelihood(
                    float(sums[place]), bool(likeliest[place]), self.scored(pairs[n])
                )
        return likelihoods

    def _two_rows(self, pairs: Sequence[Pair], size: int, length: int) -> dict[str, np.ndarray]:
        start = self.ids.pad if self.start is None else self.start
        arrays = _empty(size, length, self.ids.pad)
        arrays["encoder_input_tokens"] = np.full((size, length), self.ids.pad, np.int32)
        arrays["encoder_attention_mask"] = np.zeros((size, length), np.int32)
        for place, pair in enumerate(pairs):
            arrays["encoder_input_tokens"][place, : len(pair.inputs)] = pair.inputs
            arrays["encoder_attention_mask"][place, : len(pair.inputs)] = 1
            _fill(arrays, place, [start, *pair.targets], scored=self.scored(pair))
        return arrays

    def _one_row(self, pairs: Sequence[Pair], size: int, length: int) -> dict[str, np.ndarray]:
        arrays = _empty(size, length, self.ids.pad)
        seen = np.zeros((size, length), np.int32)
        for place, pair in enumerate(pairs):
            prompt = self._prompt(pair.inputs)
            _fill(arrays, place, [*prompt, *pair.targets], scored=self.scored(pair))
            seen[place, : len(prompt)] = 1
        return arrays | ({"decoder_causal_attention": seen} if self.prefix else {})

    def _prompt(self, inputs: Sequence[int]) -> list[int]:
        """The tokens that a decoder without an encoder reads before the target."""
        before = [] if self.start is None else [self.start]
        return [*before, *inputs] or text_rows.beginning(self.ids)


def _empty(size: int, length: int, pad: int) -> dict[str, np.ndarray]:
    return {
        "decoder_input_tokens": np.full((size, length), pad, np.int32),
        "decoder_target_tokens": np.full((size, length), pad, np.int32),
        "decoder_loss_weights": np.zeros((size, length), np.float32),
        "decoder_segment_ids": np.zeros((size, length), np.int32),
    }


def _fill(arrays: Mapping[str, np.ndarray], place: int, tokens: Sequence[int], scored: int) -> None:
    """Writes a row that reads all `tokens` but the last; the last `scored` targets count."""
    length = max(len(tokens) - 1, 0)
    arrays["decoder_input_tokens"][place, :length] = tokens[:-1]
    arrays["decoder_target_tokens"][place, :length] = tokens[1:]
    arrays["decoder_loss_weights"][place, length - scored : length] = 1
    arrays["decoder_segment_ids"][place, :length] = 1


@jax.jit
def _target_log_p(model: Any, batch: Batch) -> tuple[jax.Array, jax.Array]:
    """Of each row's weighted targets the sum, float32 [B], and whether all are the likeliest."""
    alone = "encoder_input_tokens" not in batch
    # Without an encoder, ids of segments tell padding from tokens.
    read = batch if alone else {k: v for k, v in batch.items() if k != "decoder_segment_ids"}
    log_p_BLV = jax.nn.log_softmax(model.logits(read))
    targets_BL1 = batch["decoder_target_tokens"][..., None]
    found_BL = jnp.take_along_axis(log_p_BLV, targets_BL1, axis=-1)[..., 0]
    weights_BL = batch["decoder_loss_weights"]
    likeliest_BL = log_p_BLV.argmax(axis=-1) == batch["decoder_target_tokens"]
    return (found_BL * weights_BL).sum(axis=1), (likeliest_BL | (weights_BL == 0)).all(axis=1)
