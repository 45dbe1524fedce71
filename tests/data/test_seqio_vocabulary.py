"""Vocabularies across the border to SeqIO: same ids, same text, both ways."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import seqio
import tensorflow as tf

from t5x_like.data.seqio_vocabulary import SeqioVocabulary, from_seqio
from t5x_like.vocabularies.byte import ByteVocabulary
from t5x_like.vocabularies.passthrough import PassThroughVocabulary
from t5x_like.vocabularies.sentencepiece import SentencePieceVocabulary
from t5x_like.vocabularies.training import train_sentencepiece

TEXTS = ["", "a", "the quick brown fox", "Zwölf Boxkämpfer\n jagen  Viktor", "line\nline"]


@pytest.fixture(scope="module")
def model_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    documents = [
        {"targets": f"the quick brown fox number {i} jumps over {i * i}"} for i in range(200)
    ]
    path = tmp_path_factory.mktemp("spm") / "tiny.model"
    return train_sentencepiece(
        (document["targets"] for document in documents), path, vocab_size=60, progress=False
    )


@pytest.fixture(params=["byte", "byte with extra ids", "sentencepiece"])
def pair(request: pytest.FixtureRequest, model_file: Path):
    """Ours, and SeqIO's own with the same ids."""
    return {
        "byte": lambda: (ByteVocabulary(), seqio.ByteVocabulary()),
        "byte with extra ids": lambda: (ByteVocabulary(10), seqio.ByteVocabulary(10)),
        "sentencepiece": lambda: (
            SentencePieceVocabulary(model_file, extra_ids=20),
            seqio.SentencePieceVocabulary(str(model_file), extra_ids=20),
        ),
    }[request.param]()


def test_the_adapter_agrees_with_seqios_own(pair):
    ours, theirs = pair
    adapter = SeqioVocabulary(ours)
    for name in ("vocab_size", "extra_ids", "pad_id", "eos_id", "unk_id"):
        assert getattr(adapter, name) == getattr(theirs, name), name
    for text in TEXTS:
        ids = list(theirs.encode(text))
        assert adapter.encode(text) == ids
        assert adapter.encode_tf(tf.constant(text)).numpy().tolist() == ids
        plain = [i for i in ids if i != theirs.unk_id]
        decoded = theirs.decode(plain)
        assert adapter.decode([*plain, 1, *plain]) == decoded
        assert adapter.decode_tf(tf.constant(plain, tf.int32)).numpy().decode() == decoded
    rows = tf.constant([[*adapter.encode("fox"), 1, 0][:4]] * 2, tf.int32)
    assert adapter.decode_tf(rows).shape == [2]


def test_works_inside_a_graph(pair):
    adapter = SeqioVocabulary(pair[0])
    ds = tf.data.Dataset.from_tensor_slices(TEXTS).map(adapter.encode_tf)
    assert ds.element_spec == tf.TensorSpec([None], tf.int32)
    assert [ids.tolist() for ids in ds.as_numpy_iterator()] == [adapter.encode(t) for t in TEXTS]


def test_from_seqio_finds_the_counterpart(pair):
    ours, theirs = pair
    found = from_seqio(theirs)
    assert found.fingerprint == ours.fingerprint
    assert [found.encode(text) for text in TEXTS] == [list(theirs.encode(text)) for text in TEXTS]
    assert from_seqio(SeqioVocabulary(ours)) is ours


def test_without_a_counterpart_ids_pass_through(model_file: Path):
    upwards = seqio.SentencePieceVocabulary(str(model_file), extra_ids=20, reverse_extra_ids=False)
    for theirs in (upwards, seqio.PassThroughVocabulary(80, eos_id=3)):
        found = from_seqio(theirs)
        assert isinstance(found, PassThroughVocabulary)
        assert found.vocab_size == theirs.vocab_size
        assert found.token_ids.eos == theirs.eos_id


def test_equality_is_that_of_the_ids(model_file: Path):
    assert SeqioVocabulary(ByteVocabulary()) == SeqioVocabulary(ByteVocabulary())
    assert hash(SeqioVocabulary(ByteVocabulary())) == hash(SeqioVocabulary(ByteVocabulary()))
    assert SeqioVocabulary(ByteVocabulary()) != SeqioVocabulary(ByteVocabulary(5))
    assert SeqioVocabulary(ByteVocabulary()) != ByteVocabulary()
    adapter = SeqioVocabulary(SentencePieceVocabulary(model_file))
    assert copy.deepcopy(adapter) == adapter  # as gin does, through __getstate__
