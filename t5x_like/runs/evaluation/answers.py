"""The answers of a run's model to the examples of a task: predictions and scores."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from t5x_like.core.abilities import ScoresTargets, Writes, can
from t5x_like.core.protocols.answers import TaskMetric
from t5x_like.core.protocols.data import FeatureConverter, FeatureSpec, TokenIds
from t5x_like.data.feature_converters import PrefixDecoder, start_id
from t5x_like.inference.decoding.decode import decode
from t5x_like.inference.decoding.settings import Decoding, Specials
from t5x_like.runs.batches import ToDevice
from t5x_like.training.hosts import multihost

if TYPE_CHECKING:
    from t5x_like.core.protocols.model import Batch
    from t5x_like.runs.run import Run

Example = Mapping[str, Any]
Metric = TypeVar("Metric", bound=TaskMetric)
Row = dict[str, np.ndarray]
SETTINGS = {"decoding": "greedy"}
"""What decides predictions besides the parameters."""


def kinds(run: Run) -> set[str]:
    """The fields of `Answers` that a run's model gives."""
    model, rows = run.abstract_model, run.feature_converter
    found = set()
    if can(model, Writes) and "inputs" in rows.task_features:
        found.add("predictions")
    if can(model, ScoresTargets):
        found |= {"scores", "prediction_scores"}
    return found


def computable(run: Run, metrics: Sequence[Metric]) -> list[Metric]:
    """The metrics whose answers a run's model gives."""
    return [one for one in metrics if {*one.reads} <= kinds(run)]


def unpacked(converter: FeatureConverter) -> FeatureConverter:
    """A converter that makes a row of each example."""
    made: Any = converter
    found: FeatureConverter = dataclasses.replace(made, pack=False) if converter.pack else made
    return found


@dataclasses.dataclass(frozen=True)
class ModelAnswers:
    """An `Answerer` that decodes greedily, in batches over the run's mesh.

    All processes call it with the same examples, and all get all answers.

    Attributes:
      run: the run, whose batch size is used.
      model: the module with its parameters.
      ids: the ids of the vocabulary.
      lengths: the maximum number of tokens of each feature.
    """

    run: Run
    model: Any
    ids: TokenIds
    lengths: Mapping[str, int]

    def predict(self, examples: Sequence[Example]) -> list[np.ndarray]:
        """The likeliest tokens, one by one: int32 [length of targets], padded after EOS."""
        ids, found = self.ids, []
        decoding = Decoding(max_new_tokens=self.lengths["targets"])
        specials = Specials(-1 if ids.eos is None else ids.eos, ids.pad, ids.vocab_size)
        for prompts in self._batches(examples, self._prompt):
            with self.run.layout.active():
                said = decode(self.model, prompts, decoding=decoding, specials=specials)
            found += [*multihost.whole("answers", said.tokens)[:, 0]]
        return found[: len(examples)]

    def score(self, examples: Sequence[Example]) -> list[float]:
        """The sums of log p of the targets, by their loss weights."""
        found: list[float] = []
        for batch in self.batches(examples):
            with self.run.layout.active():
                found += multihost.whole("scores", _scores(self.model, batch)).tolist()
        return found[: len(examples)]

    def batches(self, examples: Sequence[Example]) -> Iterator[Batch]:
        """Rows of one example each, on the mesh; rows of padding fill the last batch."""
        return self._batches(examples, self._row)

    def _batches(
        self, examples: Sequence[Example], row_of: Callable[[Sequence[Example]], Row]
    ) -> Iterator[Batch]:
        """Batches of the rows that `row_of` makes of one example, or of none."""
        size = self.run.options.batch_size
        to_device = ToDevice(self.run.layout, size)
        for start in range(0, len(examples), size):
            rows = [row_of(examples[start + n : start + n + 1]) for n in to_device.rows]
            yield to_device({name: np.stack([row[name] for row in rows]) for name in rows[0]})

    def _prompt(self, examples: Sequence[Example]) -> Row:
        """What the model has read before it writes an answer, as `Decodable.prefill` reads it."""
        rows = self.run.feature_converter
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
        converter = unpacked(self.run.feature_converter)
        features = {name: FeatureSpec(length) for name, length in self.lengths.items()}
        return converter.convert(examples, features=features, ids=self.ids)


@jax.jit
def _scores(model: Any, batch: Batch) -> jax.Array:
    """The sum of log p of each row's targets, float32 [B]."""
    log_p_BLV = jax.nn.log_softmax(model.logits(batch).astype(jnp.float32))
    targets_BL = batch["decoder_target_tokens"]
    log_p_BL = jnp.take_along_axis(log_p_BLV, targets_BL[..., None], axis=-1)[..., 0]
    return jnp.sum(log_p_BL * batch["decoder_loss_weights"], axis=-1)
