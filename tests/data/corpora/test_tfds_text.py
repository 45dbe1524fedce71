import sys

import pytest

from t5x_like.core.protocols.data import PAIRS, PLAIN_TEXT
from t5x_like.data import extras
from t5x_like.data.corpora import registry
from t5x_like.data.corpora.corpus import CorpusError, ReadReport
from t5x_like.data.corpora.tfds_text import TfdsText, tfds


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch):
    registry.names()
    monkeypatch.setattr(registry, "_REGISTERED", dict(registry._REGISTERED))


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    import tensorflow as tf
    import tensorflow_datasets

    directory = tmp_path_factory.mktemp("tfds")

    def store(name, splits, features):
        kinds = {
            str: (tensorflow_datasets.features.Text(), tf.string),
            int: (tf.int64, tf.int64),
        }
        tensorflow_datasets.dataset_builders.store_as_tfds_dataset(
            name=name,
            version="1.0.0",
            data_dir=directory,
            features=tensorflow_datasets.features.FeaturesDict(
                {feature: kinds[kind][0] for feature, kind in features.items()}
            ),
            split_datasets={
                split: tf.data.Dataset.from_generator(
                    lambda rows=rows: iter(rows),
                    output_signature={
                        feature: tf.TensorSpec([], kinds[kind][1])
                        for feature, kind in features.items()
                    },
                )
                for split, rows in splits.items()
            },
            disable_shuffling=True,
        )

    texts = [{"text": f"text {i}", "n": i} for i in range(30)]
    texts[3]["text"] = b"\xff"
    store("my_docs", {"train": texts}, {"text": str, "n": int})
    pairs = [{"inputs": f"in {i}", "targets": f"out {i}"} for i in range(6)]
    store(
        "my_pairs",
        {"train": pairs[:4], "validation": pairs[4:]},
        {"inputs": str, "targets": str},
    )
    return directory


@pytest.mark.slow
def test_texts_in_order_with_some_held_out(data_dir):
    corpus = tfds("docs", "my_docs", data_dir=data_dir, validation=0.2)
    assert registry.get("docs") is corpus
    assert corpus.columns == PLAIN_TEXT
    report = ReadReport()
    train = [document["targets"] for document in corpus.documents("train", report=report)]
    validation = [document["targets"] for document in corpus.documents("validation")]
    expected = [f"text {i}" for i in range(30) if i != 3]
    assert sorted(train + validation, key=expected.index) == expected
    assert train == sorted(train, key=expected.index)
    assert validation
    assert str(report) == "skipped 1 of 30 documents: invalid UTF-8 (1 of 195 bytes)"


@pytest.mark.slow
def test_pairs_and_validation_splits_are_recognised(data_dir):
    corpus = TfdsText("my_pairs", data_dir=data_dir)
    assert corpus.name == "my_pairs"
    assert corpus.columns == PAIRS
    assert list(corpus.documents("validation")) == [
        {"inputs": "in 4", "targets": "out 4"},
        {"inputs": "in 5", "targets": "out 5"},
    ]
    assert len(list(corpus.documents("train"))) == 4
    one = TfdsText("my_pairs", field="targets", data_dir=data_dir)
    assert next(one.documents("train")) == {"targets": "out 0"}
    assert one.fingerprint() != corpus.fingerprint()
    assert corpus.fingerprint() == TfdsText("my_pairs", data_dir=data_dir).fingerprint()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "field", "message"),
    [
        ("my_docs", "txt", "no feature 'txt'; nearest: text"),
        ("my_docs", "n", "feature 'n' of my_docs is not text"),
        ("wiki40/en", None, "no data set 'wiki40/en'; nearest: wiki40b"),
    ],
)
def test_unknown_names_get_the_nearest(data_dir, name, field, message):
    with pytest.raises(CorpusError, match=message):
        next(TfdsText(name, field=field, data_dir=data_dir).documents("train"))


def test_without_tfds_the_extra_is_named_when_it_is_read(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
    corpus = tfds("wiki", "wiki40b/en")
    with pytest.raises(extras.MissingExtraError, match=r"t5x_like\[data\]"):
        next(corpus.documents("train"))
