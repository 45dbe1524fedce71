"""Tasks of SeqIO's registry, and the vocabulary in which they are read."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import seqio
import tensorflow as tf

from t5x_like.data.seqio import adapter, registered_tasks
from t5x_like.vocabularies.byte import ByteVocabulary
from t5x_like.vocabularies.passthrough import PassThroughVocabulary

BYTES = seqio.Feature(seqio.ByteVocabulary(extra_ids=0))
MORE_BYTES = seqio.Feature(seqio.ByteVocabulary(extra_ids=100))
IDS = seqio.Feature(seqio.PassThroughVocabulary(1000))
FEWER_IDS = seqio.Feature(seqio.PassThroughVocabulary(50))
WEIGHTS = seqio.ContinuousFeature(dtype=tf.float32)


@pytest.fixture(autouse=True)
def _empty_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seqio.TaskRegistry, "_REGISTRY", {})


def source(features: Mapping[str, seqio.Feature]) -> registered_tasks.SeqioText:
    seqio.TaskRegistry.add(
        "task",
        source=seqio.FunctionDataSource(lambda split, shuffle_files: None, splits=["train"]),
        preprocessors=[seqio.CacheDatasetPlaceholder()],
        output_features=features,
    )
    (found,) = registered_tasks.find_tasks("task") or ()
    return found.text


@pytest.mark.parametrize(
    "features",
    [
        {"inputs": BYTES, "targets": MORE_BYTES},
        {"inputs": IDS, "targets": BYTES},
        {"inputs": IDS, "targets": FEWER_IDS},
        {"inputs": BYTES, "masked_targets": MORE_BYTES, "masked_positions": IDS},
    ],
)
def test_tokens_in_two_vocabularies_are_refused(features: dict[str, seqio.Feature]) -> None:
    with pytest.raises(ValueError, match=r"'task': inputs and .*targets are in different vocab"):
        _ = source(features).vocabulary


@pytest.mark.parametrize(
    ("features", "vocabulary"),
    [
        (
            {"inputs": BYTES, "targets": BYTES, "positions": IDS, "weights": WEIGHTS},
            ByteVocabulary(),
        ),
        ({"targets": BYTES}, ByteVocabulary()),
        ({"inputs": IDS, "targets": IDS, "labels": FEWER_IDS}, PassThroughVocabulary(1000)),
        ({"inputs": WEIGHTS, "targets": BYTES}, ByteVocabulary()),
    ],
)
def test_numbers_that_pass_through_are_no_tokens(
    features: dict[str, seqio.Feature], vocabulary: object
) -> None:
    assert source(features).vocabulary == vocabulary


def test_every_objective_of_ours_is_in_one_vocabulary(make_corpus: type) -> None:
    for task in adapter.register_all(make_corpus(["text"], ["text"]), ByteVocabulary(100)):
        (found,) = registered_tasks.find_tasks(task.name) or ()
        assert found.text.vocabulary == ByteVocabulary(100)
