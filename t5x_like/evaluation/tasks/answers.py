"""The answers of a model to the examples of a task: predictions and scores."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from t5x_like.core.abilities import AnswersTask, AnswersTasks, ScoresTargets, Writes, can
from t5x_like.core.global_batches import ToDevice
from t5x_like.core.protocols.answers import TaskMetric
from t5x_like.core.protocols.data import FeatureConverter, FeatureSpec, TokenIds
from t5x_like.data.rows.feature_converters import PrefixDecoder, start_id, unpacked
from t5x_like.inference.decoding.decode import decode
from t5x_like.inference.decoding.settings import Decoding, Specials
from t5x_like.inference.heads import n_best
from t5x_like.layers.losses import ordered_classes
from t5x_like.training.hosts import multihost

if TYPE_CHECKING:
    from t5x_like.core.partitioning import Layout
    from t5x_like.core.protocols.model import Batch

Example = Mapping[str, Any]
Metric = TypeVar("Metric", bound=TaskMetric)
Row = dict[str, np.ndarray]
_LABELS = ("classes", "choices", "numbers", "ordered", "several", "tags", *n_best.WINDOWS)
SETTINGS = {"decoding": "greedy"}
"""The settings that decide predictions, besides the parameters."""


def kinds(model: Any, converter: FeatureConverter) -> set[str]:
    """The fields of `Answers` that a model gives for the rows of a converter."""
    fields = set()
    if can(model, Writes) and "inputs" in converter.task_features:
        fields.add("predictions")
    if can(model, ScoresTargets):
        fields |= {"scores", "prediction_scores"}
    if can(model, AnswersTasks) or (can(model, AnswersTask) and model.answer_form in _LABELS):
        fields.add("labels")
    return fields


def computable(metrics: Sequence[Metric], kinds: Collection[str]) -> list[Metric]:
    """The metrics that read only these fields of `Answers`."""
    return [metric for metric in metrics if {*metric.reads} <= {*kinds}]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelAnswers:
    """An `Answerer` that decodes greedily, in batches over a mesh.

    All processes call it with the same examples, and all get all answers.

    Attributes:
      model: the module with its parameters.
      layout: where its parameters and batches lie.
      converter: makes rows of examples.
      batch_size: the rows of a batch.
      ids: the ids of the vocabulary.
      lengths: the maximum number of tokens of each feature of the task.
      features: the features of its examples.
    """

    model: Any
    layout: Layout
    converter: FeatureConverter
    batch_size: int
    ids: TokenIds
    lengths: Mapping[str, int]
    features: Mapping[str, FeatureSpec]

    def predict(self, examples: Sequence[Example]) -> list[np.ndarray]:
        """The likeliest tokens, one by one: int32 [length of targets], padded after EOS."""
        ids, token_rows = self.ids, []
        decoding = Decoding(max_new_tokens=self.lengths["targets"])
        specials = Specials(-1 if ids.eos is None else ids.eos, ids.pad, ids.vocab_size)
        for prompts in self._batches(examples, self._prompt):
            with self.layout.active():
                decoded = decode(self.model, prompts, decoding=decoding, specials=specials)
            token_rows += [*multihost.whole("answers", decoded.tokens)[:, 0]]
        return token_rows[: len(examples)]

    def score(self, examples: Sequence[Example]) -> list[float]:
        """The sums of log p of the targets, by their loss weights."""
        scores: list[float] = []
        for batch in self.batches(examples):
            with self.layout.active():
                scores += multihost.whole("scores", _scores(self.model, batch)).tolist()
        return scores[: len(examples)]

    def label(self, examples: Sequence[Example]) -> list[Any]:
        """The logits of the classes of each example, or its number, or the choice.

        Of ordered classes, the median. For tags, the likeliest of each word that is asked here
        (`places`, in its row). Of several classes, each has its probability. For spans, those of
        `n_best.WINDOWS` of each window.
        """
        labels: list[Any] = []
        for batch in self.batches(examples):
            with self.layout.active():
                arrays = jax.tree.map(
                    functools.partial(multihost.whole, "labels"), _labels(self.model, batch)
                )
            labels += [jax.tree.map(lambda x, n=n: x[n], arrays) for n in range(self.batch_size)]
        if self.model.answer_form == "searched spans":
            return [n_best.searched_ends(of_row) for of_row in labels[: len(examples)]]
        if self.model.answer_form == "spans":
            return [_ends(rows, example) for rows, example in zip(labels, examples, strict=False)]
        if self.model.answer_form != "tags":
            return [label.tolist() for label in labels[: len(examples)]]
        return [
            tags[example["places"]].tolist()
            for tags, example in zip(labels, examples, strict=False)
        ]

    def batches(self, examples: Sequence[Example]) -> Iterator[Batch]:
        """Rows of one example each, on the mesh; rows of padding fill the last batch."""
        return self._batches(examples, self._row)

    def _batches(
        self, examples: Sequence[Example], row_of: Callable[[Sequence[Example]], Row]
    ) -> Iterator[Batch]:
        """Batches of the rows that `row_of` makes of one example, or of none."""
        size = self.batch_size
        to_device = ToDevice(self.layout, size)
        for start in range(0, len(examples), size):
            rows = [row_of(examples[start + n : start + n + 1]) for n in to_device.rows]
            yield to_device({name: np.stack([row[name] for row in rows]) for name in rows[0]})

    def _prompt(self, examples: Sequence[Example]) -> Row:
        """The prompt that the model reads before it writes, as `Decodable.prefill` takes it."""
        rows = self.converter
        start = start_id(rows, self.ids)
        first = np.array([self.ids.pad if start is None else start], np.int32)
        if not isinstance(rows, PrefixDecoder):
            inputs = self._row(examples)["encoder_input_tokens"]
            return {"encoder_input_tokens": inputs, "decoder_input_tokens": first}
        length = self.lengths["inputs"]
        text = examples[0]["inputs"][:length] if examples else first[:0]
        before = (length - len(text), 0)
        counts = np.pad(np.ones(1 + len(text), np.int32), before)
        return {
            "decoder_input_tokens": np.pad(np.concatenate([first, text]), before),
            "decoder_segment_ids": counts,
            "decoder_causal_attention": counts,
        }

    def _row(self, examples: Sequence[Example]) -> Row:
        return unpacked(self.converter).convert(examples, features=self.features, ids=self.ids)


def _ends(logits_L2: np.ndarray, example: Example) -> n_best.Ends:
    """The likeliest starts and ends of a window."""
    return n_best.ends(logits_L2[: len(example["inputs"])], int(example["null_position"]))


@jax.jit
def _labels(model: Any, batch: Batch) -> Any:
    """The likeliest tags, int32 [B, L], or choices, int32 [B]; of numbers the numbers, float32 [B].

    Of classes the logits, float32 [B, C], of several classes the probabilities; of spans the
    logits, float32 [B, L, 2], or what was searched (`span_heads.Answers`); of ordered classes the
    medians, int32 [B].
    """
    logits = model.answers(batch)
    if model.answer_form in ("classes", *n_best.WINDOWS):
        return logits
    if model.answer_form == "several":
        return jax.nn.sigmoid(logits)
    if model.answer_form == "ordered":
        return ordered_classes.medians(logits)
    return logits[:, 0] if model.answer_form == "numbers" else jnp.argmax(logits, axis=-1)


@jax.jit
def _scores(model: Any, batch: Batch) -> jax.Array:
    """The sum of log p of each row's targets, float32 [B]."""
    log_p_BLV = jax.nn.log_softmax(model.logits(batch).astype(jnp.float32))
    targets_BL = batch["decoder_target_tokens"]
    log_p_BL = jnp.take_along_axis(log_p_BLV, targets_BL[..., None], axis=-1)[..., 0]
    return jnp.sum(log_p_BL * batch["decoder_loss_weights"], axis=-1)
