"""How likely a model finds texts: log-likelihoods of answers, pseudo-log-likelihoods, ranks.

Suffixes: B batch, L length, K masked positions, V vocabulary.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from t5x_like.core.protocols.data import TokenIds
from t5x_like.inference import masked_words, text_rows
from t5x_like.inference.model_on_mesh import ModelOnMesh
from t5x_like.inference.text_rows import Framing, Row

if TYPE_CHECKING:
    from t5x_like.core.protocols.model import Batch


class Pair(NamedTuple):
    """An input and a target, as tokens; a model that only reads or only continues has one text."""

    inputs: list[int]
    targets: list[int]


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
        return Pair(pair.inputs[over:], pair.targets), True

    def scored(self, pair: Pair) -> int:
        """The number of tokens whose log-probabilities are summed.

        Those are all of the target, but for its first one where nothing is before it.
        """
        nothing = self.alone and not self._prompt(pair.inputs)
        return max(len(pair.targets) - nothing, 0)

    def __call__(self, pairs: Sequence[Pair]) -> list[float]:
        """The log-probability of each target, its end included if it has one, in nats."""
        log_p = [0.0] * len(pairs)
        size = self.model.rows(self.batch_size)
        # Rows are as long as the longer side; both are padded to one bucket.
        longest = [
            [0] * (len(p.inputs) + len(p.targets) if self.alone else max(map(len, p)))
            for p in pairs
        ]
        for batch in text_rows.batches(
            longest, pad=self.ids.pad, size=size, max_length=self.max_positions
        ):
            chosen = [pairs[n] for n in batch.numbers]
            make = self._one_row if self.alone else self._two_rows
            arrays = make(chosen, *batch.tokens.shape)
            sums = np.asarray(self.model(_target_log_p, arrays))
            for place, n in enumerate(batch.numbers):
                log_p[n] = float(sums[place])
        return log_p

    def _two_rows(self, pairs: Sequence[Pair], size: int, length: int) -> dict[str, np.ndarray]:
        start = self.ids.pad if self.start is None else self.start
        arrays = _empty(size, length, self.ids.pad)
        arrays["encoder_input_tokens"] = np.full((size, length), self.ids.pad, np.int32)
        arrays["encoder_attention_mask"] = np.zeros((size, length), np.int32)
        for place, (inputs, targets) in enumerate(pairs):
            arrays["encoder_input_tokens"][place, : len(inputs)] = inputs
            arrays["encoder_attention_mask"][place, : len(inputs)] = 1
            _fill(arrays, place, [start, *targets], first=0)
        return arrays

    def _one_row(self, pairs: Sequence[Pair], size: int, length: int) -> dict[str, np.ndarray]:
        arrays = _empty(size, length, self.ids.pad)
        seen = np.zeros((size, length), np.int32)
        for place, (inputs, targets) in enumerate(pairs):
            prompt = self._prompt(inputs)
            _fill(arrays, place, [*prompt, *targets], first=max(len(prompt) - 1, 0))
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


def _fill(arrays: Mapping[str, np.ndarray], place: int, tokens: Sequence[int], first: int) -> None:
    """Writes a row that reads all `tokens` but the last; targets count from number `first` on."""
    length = max(len(tokens) - 1, 0)
    arrays["decoder_input_tokens"][place, :length] = tokens[:-1]
    arrays["decoder_target_tokens"][place, :length] = tokens[1:]
    arrays["decoder_loss_weights"][place, first:length] = 1
    arrays["decoder_segment_ids"][place, :length] = 1


@jax.jit
def _target_log_p(model: Any, batch: Batch) -> jax.Array:
    """The sum over each row's weighted targets, float32 [B]."""
    alone = "encoder_input_tokens" not in batch
    # Without an encoder, ids of segments tell padding from tokens.
    read = batch if alone else {k: v for k, v in batch.items() if k != "decoder_segment_ids"}
    log_p_BLV = jax.nn.log_softmax(model.logits(read))
    targets_BL1 = batch["decoder_target_tokens"][..., None]
    found_BL = jnp.take_along_axis(log_p_BLV, targets_BL1, axis=-1)[..., 0]
    return (found_BL * batch["decoder_loss_weights"]).sum(axis=1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class MaskedScorer:
    """The pseudo-log-likelihood of texts: each token is masked in turn (Salazar et al., 2020).

    Attributes:
      model: predicts masked tokens.
      framing: of texts; tokens that it adds are not masked.
      batch_size: the rows of a batch.
    """

    model: ModelOnMesh
    framing: Framing
    batch_size: int = text_rows.ROWS

    def __call__(self, rows: Sequence[Row]) -> list[float]:
        """The sum over a row's tokens of log p(token | all others), in nats."""
        ids, is_text = self.framing.ids, self.framing.is_text
        mask = ids.given("mask")
        tokens = [row.tokens for row in rows]
        places = [(n, at) for n, row in enumerate(tokens) for at, i in enumerate(row) if is_text(i)]
        masked = [
            rows[n]._replace(tokens=[*tokens[n][:at], mask, *tokens[n][at + 1 :]])
            for n, at in places
        ]
        totals = [0.0] * len(rows)
        for batch in self.framing.batches(masked, self.model.rows(self.batch_size)):
            at = np.zeros((len(batch.tokens), 1), np.int32)
            wanted = np.zeros(len(batch.tokens), np.int32)
            for place, number in enumerate(batch.numbers):
                n, at[place, 0] = places[number]
                wanted[place] = tokens[n][at[place, 0]]
            logits = self.model(masked_words.predictions, masked_words.asked(batch, at))
            log_p = np.asarray(jax.nn.log_softmax(logits[:, 0, : ids.vocab_size]))
            for place, number in enumerate(batch.numbers):
                totals[places[number][0]] += float(log_p[place, wanted[place]])
        return totals


@dataclasses.dataclass(frozen=True)
class Scoring:
    """The predictor of log-likelihoods of given texts (`predictions.Predictor`).

    Attributes:
      score: turns pairs, or rows for a model that only reads, into numbers.
      framing: of inputs.
      targets: of targets, and of the text where a decoder alone is given no target; None for a
        model that only reads one text.
      batch_size: the rows of a batch.
    """

    score: TargetScorer | MaskedScorer
    framing: Framing
    targets: Framing | None
    batch_size: int = text_rows.ROWS

    def check(self, record: Mapping[str, Any]) -> None:
        """Raises ValueError where a target is missing or no text; a decoder alone needs none."""
        alone = isinstance(self.score, TargetScorer) and self.score.alone
        needed = self.targets is not None and ("targets" in record or not alone)
        if needed and not isinstance(record.get("targets"), str):
            raise ValueError(
                "a log-likelihood needs inputs and targets: give JSON lines "
                '{"inputs": ..., "targets": ...} or a .tsv with these columns'
            )
        if isinstance(self.score, TargetScorer):
            self.score.check(self._row(record)[0])

    def __call__(self, records: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """`log_likelihood`, and the number of `target_tokens` that it sums over."""
        rows = [self._row(record) for record in records]
        values = self.score([row for row, _, _ in rows])
        return [
            {"log_likelihood": value, "target_tokens": count} | cut
            for value, (_, count, cut) in zip(values, rows, strict=True)
        ]

    def _row(self, record: Mapping[str, Any]) -> tuple[Any, int, dict[str, Any]]:
        if self.targets is not None and "targets" not in record:  # a text alone
            record = {"inputs": "", "targets": record["inputs"]}
        inputs = self.framing.text(record["inputs"])
        if self.targets is None:
            count = sum(map(self.framing.is_text, inputs.tokens))
            return inputs, count, _cut(inputs.truncated)
        targets = self.targets.text(record["targets"]).tokens
        assert isinstance(self.score, TargetScorer)  # there are targets
        pair, cut = self.score.fitted(Pair(inputs.tokens, targets))
        return pair, self.score.scored(pair), _cut(cut or inputs.truncated)


def _cut(truncated: bool) -> dict[str, Any]:
    return {"truncated": True} if truncated else {}


@dataclasses.dataclass(frozen=True)
class Ranking:
    """The predictor of the best of given choices (`predictions.Predictor`).

    Attributes:
      scoring: gives a choice's log-likelihood.
      per_token: whether to divide it by the number of its tokens.
    """

    scoring: Scoring
    per_token: bool = False

    @property
    def batch_size(self) -> int:
        return self.scoring.batch_size

    def check(self, record: Mapping[str, Any]) -> None:
        """Raises ValueError where a record has no list of choices."""
        choices = record.get("choices")
        if not (isinstance(choices, list) and choices and all(isinstance(c, str) for c in choices)):
            raise ValueError(
                'a rank needs choices: give JSON lines {"inputs": ..., "choices": ["...", "..."]}'
            )

    def __call__(self, records: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """The `choice`, its number from 0, and the `scores` of all choices."""
        asked = [
            {"inputs": self._text(record["inputs"], choice), "targets": choice}
            for record in records
            for choice in record["choices"]
        ]
        scored = iter(self.scoring(asked))
        answers = []
        for record in records:
            choices = [next(scored) for _ in record["choices"]]
            scores = [
                choice["log_likelihood"]
                / (max(choice["target_tokens"], 1) if self.per_token else 1)
                for choice in choices
            ]
            best = int(np.argmax(scores))
            truncated = (
                {"truncated": True} if any("truncated" in choice for choice in choices) else {}
            )
            answers.append(
                {"choice": record["choices"][best], "number": best, "scores": scores} | truncated
            )
        return answers

    def _text(self, inputs: str, choice: str) -> str:
        """The text to read; for a model that only reads, it includes the choice."""
        return inputs if self.scoring.targets is not None else f"{inputs} {choice}".strip()
