"""SeqIO tasks with metrics of every kind, as a user would register them."""

from __future__ import annotations

import functools

import capital_metrics
import flax
import numpy as np
import seqio
import tensorflow as tf

CAPITALS = {
    "France": ["Paris"],
    "Italien": ["Rom", "Rome"],
    "Österreich": ["Wien", "Vienna"],
    "Japan": ["Tokio", "Tokyo"],
    "Peru": ["Lima"],
    "Kenya": ["Nairobi"],
    "Chile": ["Santiago de Chile", "Santiago"],
}
VOCABULARY = seqio.ByteVocabulary()
FEATURES = {name: seqio.Feature(VOCABULARY) for name in ("inputs", "targets")}
SPLITS = {"train": 6, "validation": 5, "test": 7}


def capitals(split, shuffle_files, seed=None):
    def examples():
        for n, (country, answers) in enumerate([*CAPITALS.items()][: SPLITS[split]]):
            yield {
                "question": f"Capital of {country}?",
                "answers": answers,
                "idx": n,
                "area": n / 7,
                "grid": np.arange(2 * (n % 3)).reshape(2, n % 3),
            }

    return tf.data.Dataset.from_generator(
        examples,
        output_signature={
            "question": tf.TensorSpec([], tf.string),
            "answers": tf.TensorSpec([None], tf.string),
            "idx": tf.TensorSpec([], tf.int64),
            "area": tf.TensorSpec([], tf.float32),
            "grid": tf.TensorSpec([2, None], tf.int32),
        },
    )


def ask(ds):
    return ds.map(lambda x: {**x, "inputs": x["question"], "targets": x["answers"][0]})


@flax.struct.dataclass
class Rows(seqio.metrics.Metric):
    """A metric object that needs no function."""

    model_output_type: seqio.metrics.ModelOutputType = seqio.metrics.ModelOutputType.PREDICTION
    rows: int = 0

    @classmethod
    def from_model_output(cls, inputs, model_output, features, *args, **kwargs):
        ends = np.any(model_output == features["targets"].vocabulary.eos_id, axis=1)
        return cls(rows=len(list(inputs)) * 1000 + int(ends.sum()))

    def compute(self):
        return {"rows": seqio.metrics.Scalar(self.rows)}


def add(name, *metric_fns, objects=(), postprocess_fn=capital_metrics.first_word):
    return seqio.TaskRegistry.add(
        name,
        source=seqio.FunctionDataSource(capitals, splits=[*SPLITS]),
        preprocessors=[
            ask,
            seqio.preprocessors.tokenize,
            seqio.CacheDatasetPlaceholder(),
            seqio.preprocessors.append_eos_after_trim,
        ],
        output_features=FEATURES,
        postprocess_fn=postprocess_fn,
        metric_fns=metric_fns,
        metric_objs=objects,
    )


NAMED = (
    capital_metrics.accuracy,
    functools.partial(capital_metrics.longest, at_least=3),
    capital_metrics.likelihood,
    capital_metrics.confidence,
)
FOLDED = functools.partial(capital_metrics.first_word, fold=True)

add("capitals", *NAMED, objects=[Rows()])
add("capitals_by_name", *NAMED, postprocess_fn=FOLDED)
add("capitals_fragile", capital_metrics.accuracy, capital_metrics.fragile, postprocess_fn=None)
add("capitals_unnamed", lambda targets, predictions: {"one": 1.0})
add("capitals_unmeasured")
seqio.MixtureRegistry.add("all_capitals", [("capitals", 1), ("capitals_by_name", 1)])
