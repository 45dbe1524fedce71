"""Vocabularies converted to SeqIO and from SeqIO give the same ids and the same text."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import sentencepiece as spm
import seqio
import tensorflow as tf

from t5x_like.data.seqio.vocabularies import SeqioVocabulary, from_seqio
from t5x_like.vocabularies.byte import ByteVocabulary
from t5x_like.vocabularies.learning.vocabulary_recipe import Recipe, train
from t5x_like.vocabularies.loading import load
from t5x_like.vocabularies.passthrough import PassThroughVocabulary
from t5x_like.vocabularies.sentencepiece import SentencePieceVocabulary

TEXTS = ["", "a", "the quick brown fox", "Zwölf Boxkämpfer\n jagen  Viktor", "line\nline"]


@pytest.fixture(params=["byte", "byte with extra ids", "sentencepiece"])
def pair(request: pytest.FixtureRequest, model_file: Path):
    """Our vocabulary, and SeqIO's own with the same ids."""
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


def test_plain_strings_encode_and_empty_rows_decode(pair):
    adapter = SeqioVocabulary(pair[0])
    assert adapter.encode_tf("the fox").numpy().tolist() == adapter.encode("the fox")
    assert adapter.decode_tf(tf.zeros([3, 0], tf.int32)).numpy().tolist() == [b""] * 3
    assert adapter.decode_tf(tf.zeros([0, 4], tf.int32)).numpy().tolist() == []


def test_works_inside_a_graph(pair):
    adapter = SeqioVocabulary(pair[0])
    ds = tf.data.Dataset.from_tensor_slices(TEXTS).map(adapter.encode_tf)
    assert ds.element_spec == tf.TensorSpec([None], tf.int32)
    assert [ids.tolist() for ids in ds.as_numpy_iterator()] == [adapter.encode(t) for t in TEXTS]


@pytest.mark.parametrize("kind", ["wordpiece", "byte_bpe", "characters"])
def test_other_kinds_adapt(kind: str, tmp_path: Path):
    words = [f"the quick brown fox number {i} jumps over" for i in range(50)]
    ours = load(train(words, tmp_path / kind, Recipe(kind=kind, size=320), progress=False))
    adapter = SeqioVocabulary(ours)
    assert (adapter.vocab_size, adapter.extra_ids) == (ours.vocab_size, 100)
    assert (adapter.pad_id, adapter.eos_id, adapter.unk_id, adapter.bos_id) == (0, 1, 2, None)
    for text in TEXTS:
        ids = ours.encode(text)
        assert adapter.encode(text) == ids
        assert adapter.encode_tf(tf.constant(text)).numpy().tolist() == ids
        assert adapter.decode([*ids, 1, *ids]) == ours.decode(ids)
    sentinel = ours.vocab_size - 1
    decoded = adapter.decode_tf(tf.constant([*ours.encode("the fox"), sentinel], tf.int32))
    assert decoded.numpy().decode() == ours.decode([*ours.encode("the fox"), sentinel])
    assert copy.deepcopy(adapter) == adapter


def test_without_an_end_everything_is_decoded(tmp_path: Path):
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\nthe\nfox\n")
    adapter = SeqioVocabulary(load(tmp_path))
    assert (adapter.eos_id, adapter.unk_id) == (None, 1)
    assert adapter.decode([2, 3, 1, 2, 0]) == "the fox [UNK] the"


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


def test_a_model_of_alberts_has_no_counterpart(tmp_path: Path):
    # SeqIO does not clean its text.
    file = tmp_path / "spiece.model"
    with file.open("wb") as model:
        spm.SentencePieceTrainer.train(
            sentence_iterator=iter(["some words for a model"] * 9),
            model_writer=model,
            vocab_size=24,
            pad_id=0,
            unk_id=1,
            bos_id=-1,
            eos_id=-1,
            control_symbols=["[CLS]", "[SEP]", "[MASK]"],
            hard_vocab_limit=False,
            minloglevel=2,
        )
    assert isinstance(from_seqio(seqio.SentencePieceVocabulary(str(file))), PassThroughVocabulary)


def test_equality_is_that_of_the_ids(model_file: Path):
    assert SeqioVocabulary(ByteVocabulary()) == SeqioVocabulary(ByteVocabulary())
    assert hash(SeqioVocabulary(ByteVocabulary())) == hash(SeqioVocabulary(ByteVocabulary()))
    assert SeqioVocabulary(ByteVocabulary()) != SeqioVocabulary(ByteVocabulary(5))
    assert SeqioVocabulary(ByteVocabulary()) != ByteVocabulary()
    adapter = SeqioVocabulary(SentencePieceVocabulary(model_file))
    assert copy.deepcopy(adapter) == adapter  # as gin does, through __getstate__
