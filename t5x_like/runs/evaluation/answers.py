"""The answers of a run's model to the examples of a task: predictions and scores."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from t5x_like.core.protocols import Decodable, FeatureSpec, TokenIds, lacking
from t5x_like.inference import decoding
from t5x_like.runs.batches import ToDevice
from t5x_like.training import multihost

if TYPE_CHECKING:
    from t5x_like.core.protocols import Batch
    from t5x_like.runs.run import Run

Example = Mapping[str, Any]
SETTINGS = {"decoding": "greedy"}
"""What decides predictions besides the parameters."""


def kinds(run: Run) -> set[str]:
    """The fields of `Answers` that a run's model gives."""
    model, rows = run.abstract_model, run.feature_converter
    found = set()
    if not lacking(model, Decodable) and "inputs" in rows.task_features:
        found.add("predictions")
    if hasattr(model, "logits") and rows.kind != "encoder":
        found |= {"scores", "prediction_scores"}
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
        start = getattr(self.ids, getattr(self.run.feature_converter, "decoder_start", "pad"))
        found: list[np.ndarray] = []
        for batch in self.batches(examples):
            with self.run.layout.active():
                tokens = decoding.greedy(
                    self.model,
                    batch["encoder_input_tokens"],
                    max_length=self.lengths["targets"],
                    vocab_size=self.ids.vocab_size,
                    start=self.ids.pad if start is None else start,
                    pad=self.ids.pad,
                    eos=-1 if self.ids.eos is None else self.ids.eos,
                )
            found += [*multihost.whole(tokens)]
        return found[: len(examples)]

    def score(self, examples: Sequence[Example]) -> list[float]:
        """The sums of log p of the targets, by their loss weights."""
        found: list[float] = []
        for batch in self.batches(examples):
            with self.run.layout.active():
                found += multihost.whole(_scores(self.model, batch)).tolist()
        return found[: len(examples)]

    def batches(self, examples: Sequence[Example]) -> Iterator[Batch]:
        """Rows of one example each, on the mesh; rows of padding fill the last batch."""
        size = self.run.options.batch_size
        to_device = ToDevice(self.run.layout, size)
        for start in range(0, len(examples), size):
            rows = [self._row(examples[start + n : start + n + 1]) for n in to_device.rows]
            yield to_device({name: np.stack([row[name] for row in rows]) for name in rows[0]})

    def _row(self, examples: Sequence[Example]) -> dict[str, np.ndarray]:
        converter: Any = self.run.feature_converter
        if converter.pack:
            converter = dataclasses.replace(converter, pack=False)
        features = {name: FeatureSpec(length) for name, length in self.lengths.items()}
        return converter.convert(examples, features=features, ids=self.ids)


@jax.jit
def _scores(model: Any, batch: Batch) -> jax.Array:
    """The sum of log p of each row's targets, float32 [B]."""
    log_p_BLV = jax.nn.log_softmax(model.logits(batch).astype(jnp.float32))
    targets_BL = batch["decoder_target_tokens"]
    log_p_BL = jnp.take_along_axis(log_p_BLV, targets_BL[..., None], axis=-1)[..., 0]
    return jnp.sum(log_p_BL * batch["decoder_loss_weights"], axis=-1)
