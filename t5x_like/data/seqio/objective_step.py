"""An objective as a SeqIO preprocessor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from t5x_like.core.protocols.data import FeatureSpec, Objective, TokenIds
from t5x_like.data.extras import require
from t5x_like.data.samples.memory_split import MemorySplit
from t5x_like.data.samples.randomness import example_rng, noise_source
from t5x_like.data.samples.samples import constant_features, make_samples
from t5x_like.data.samples.token_stream import separator
from t5x_like.objectives.parts.geometry import ConcatenateAndSplit, PerRecord

if TYPE_CHECKING:
    import seqio
    import tensorflow as tf
else:
    seqio = require("seqio", "data", purpose="a SeqIO task")
    tf = require("tensorflow", "data", purpose="a SeqIO task")

Features = Mapping[str, FeatureSpec]


class ObjectiveStep:
    """An objective as a SeqIO preprocessor, which cuts samples and makes an example of each.

    Example n of an unshuffled, unsharded first epoch equals example n of the Grain path with the
    same seed. Elsewhere only the distribution of an example is the same, because samples are
    numbered in the order of SeqIO's documents, which are repeated before they are concatenated.
    SeqIO numbers each shard from 0 and does not give the shard's number, so the n-th examples of
    all shards have the same noise. The Grain path numbers the whole split.

    Documents that are cut by arithmetic stream. Other samples (sentence pairs, blocks, carried
    rows) need a plan, which is made with all tokens of the split in memory.

    Args:
      objective: the objective, whose features must be output features of the task.
      ids: the ids of the task's vocabulary, or of a cache where the objective needs `counts`.
      task: the name of the task, from which (with the seed) the noise is derived.
      seed: the seed of the noise.
      rows: the rows of a global batch, for an objective whose rows are carried from batch to batch.

    Raises:
      ValueError: the vocabulary lacks an id that the objective needs.
    """

    def __init__(
        self,
        objective: Objective,
        *,
        ids: TokenIds,
        task: str,
        seed: int = 0,
        rows: int | None = None,
    ) -> None:
        if missing := ids.missing(objective.needs):
            raise ValueError(
                f"{objective} needs {', '.join(missing)}, which this vocabulary lacks"
                + ("; pass the token_ids of a cache" if "counts" in missing else "")
            )
        self.objective = objective
        self.ids = ids
        self.seed = seed
        self.rows = rows
        self.source = noise_source(task, objective)

    def __call__(
        self,
        ds: tf.data.Dataset,
        sequence_length: Mapping[str, int] | None,
        output_features: Mapping[str, seqio.Feature],
    ) -> tf.data.Dataset:
        """The features of tokenised documents, in samples that `sequence_length` decides.

        Raises:
          ValueError: `sequence_length` is None or does not fit the objective, or an output feature
            is not one of the objective's.
        """
        if sequence_length is None:
            raise ValueError(
                f"{self.objective} cuts samples by sequence length: pass sequence_length, such as "
                f"{self.objective.lengths(512)}, to get_dataset"
            )
        specs = self.objective.features(sequence_length)
        if missing := output_features.keys() - specs.keys():
            raise ValueError(f"{self.objective} makes no feature {', '.join(sorted(missing))}")
        geometry = self.objective.geometry(sequence_length)
        if isinstance(geometry, ConcatenateAndSplit) and geometry == ConcatenateAndSplit(
            geometry.length
        ):
            tokens = ds.map(lambda document: document["targets"]).rebatch(geometry.length)
            return self._stream(tokens.map(lambda sample: {"targets": sample}), specs)
        if isinstance(geometry, PerRecord):
            return self._stream(ds, specs, geometry)
        return self._plan(ds, geometry, specs)

    def _features(self, n: int, sample: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return self.objective(sample, example_rng(self.seed, self.source, n), self.ids)

    def _stream(
        self, samples: tf.data.Dataset, specs: Features, records: PerRecord | None = None
    ) -> tf.data.Dataset:
        """Examples of samples, or of records as `records` cuts them."""
        names = list(samples.element_spec)

        def corrupt(n: np.int64, *values: np.ndarray) -> tuple[np.ndarray, ...]:
            sample = dict(zip(names, values, strict=True))
            if records is not None:
                sample = {**records.cut(sample), **constant_features(records)}
            features = self._features(int(n), sample)
            return tuple(np.asarray(features[name], spec.dtype) for name, spec in specs.items())

        def convert(n: tf.Tensor, sample: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
            values = tf.numpy_function(
                corrupt,
                [n, *(sample[name] for name in names)],
                [tf.as_dtype(spec.dtype) for spec in specs.values()],
                stateful=False,
            )
            return {
                name: tf.ensure_shape(value, signature.shape)
                for (name, signature), value in zip(_signature(specs).items(), values, strict=True)
            }

        return samples.enumerate().map(convert, num_parallel_calls=tf.data.AUTOTUNE)

    def _plan(self, ds: tf.data.Dataset, geometry: object, specs: Features) -> tf.data.Dataset:
        if ds.cardinality() == tf.data.INFINITE_CARDINALITY:
            raise ValueError(
                f"{self.objective} plans its samples, so the text must end: pass num_epochs to "
                "get_dataset and repeat the data set that it returns"
            )

        def examples() -> Iterator[dict[str, np.ndarray]]:
            documents = ((d["targets"], _segments(d)) for d in ds.as_numpy_iterator())
            samples = make_samples(
                geometry,
                MemorySplit(documents),
                separator=separator(self.ids),
                rows=self.rows,
                ids=self.ids,
            )
            size = len(samples)
            for n in range(size):
                (sample,) = samples[n]
                features = self._features(n, sample)
                yield {name: np.asarray(features[name], spec.dtype) for name, spec in specs.items()}

        return tf.data.Dataset.from_generator(examples, output_signature=_signature(specs))


def _signature(specs: Features) -> dict[str, tf.TensorSpec]:
    return {
        name: tf.TensorSpec(
            spec.item if spec.length is None else [None, *spec.item], tf.as_dtype(spec.dtype)
        )
        for name, spec in specs.items()
    }


def _segments(document: Mapping[str, np.ndarray]) -> np.ndarray:
    return document.get("segments", np.zeros(0, np.int32))
