"""Facts about a trained vocabulary of every kind, and about bytes."""

import pickle

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from t5x_like.core.protocols import data as protocols
from t5x_like.vocabularies import byte, loading, passthrough, special_tokens
from t5x_like.vocabularies.learning import vocabulary_recipe

KNOWN = st.text(st.sampled_from("the quickbrown walking.\n"), max_size=40)
LOOKALIKES = " ".join([*special_tokens.TRAINED, "[PAD]", "[UNK]", "<s>", "<mask>", "##s", "▁the"])
LOSSLESS = ["byte_bpe", "characters"]
# Trained sizes are small: only the words of the training text are whole.
settings = hypothesis.settings(
    max_examples=50, suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture]
)


@pytest.fixture(params=vocabulary_recipe.KINDS)
def vocabulary(request: pytest.FixtureRequest, trained) -> protocols.Vocabulary:
    return trained[request.param]


def test_special_tokens_of_every_objective(vocabulary):
    assert isinstance(vocabulary, protocols.Vocabulary)
    ids = vocabulary.token_ids
    assert (ids.pad, ids.eos, ids.unk, ids.cls, ids.sep, ids.mask) == (0, 1, 2, 3, 4, 5)
    assert ids.bos is None
    assert ids.named == {"[R]": 6, "[S]": 7, "[X]": 8, "<eod>": 9}
    assert ids.vocab_size == vocabulary.vocab_size
    assert ids.sentinel(0) == vocabulary.encode_with_sentinels("<extra_id_0>")[0]
    assert vocabulary.num_sentinels == 100


@settings
@hypothesis.given(text=st.text(max_size=60))
def test_no_text_becomes_a_special_token(vocabulary, text):
    control = set(vocabulary.token_ids.special) - {vocabulary.token_ids.unk}
    for written in (text, f"{text}[MASK]{text}</s><eod>", LOOKALIKES, LOOKALIKES.lower()):
        ids = vocabulary.encode(written)
        assert not control & set(ids)
        assert all(0 <= i < vocabulary.vocab_size - 100 for i in ids)


@settings
@hypothesis.given(texts=st.lists(st.text(max_size=20), max_size=5))
def test_a_batch_is_its_texts(vocabulary, texts):
    assert [*map(list, vocabulary.encode_batch(texts))] == [
        vocabulary.encode(text) for text in texts
    ]


@settings
@hypothesis.given(ids=st.lists(st.integers(-5, 600)))
def test_any_ids_decode(vocabulary, ids):
    known = [i for i in ids if 0 <= i < vocabulary.vocab_size and i != 1]
    text = vocabulary.decode(known)
    assert vocabulary.decode([*known, 1, *ids]) == text
    vocabulary.decode(ids).encode()
    assert "[CLS]" not in text


@pytest.mark.parametrize("kind", LOSSLESS)
@settings
@hypothesis.given(text=KNOWN)
def test_known_text_survives(trained, kind, text):
    assert trained[kind].decode(trained[kind].encode(text)) == text


@settings
@hypothesis.given(text=st.text())
def test_byte_level_bpe_keeps_any_text(trained, text):
    assert trained["byte_bpe"].decode(trained["byte_bpe"].encode(text)) == text


def test_words_survive(vocabulary):
    text = "the quick brown fox was walking and talking."
    ids = vocabulary.encode(text)
    assert vocabulary.decode(ids) == text
    starts, stops = vocabulary.token_ids.word_starts[ids], vocabulary.token_ids.full_stops[ids]
    assert stops.tolist() == [False] * (len(ids) - 1) + [True]
    # The first word needs no space before it.
    assert 7 <= np.count_nonzero(starts[1:]) <= 8


def test_marks_are_of_pieces_alone(vocabulary):
    ids = vocabulary.token_ids
    for mark in (ids.word_starts, ids.full_stops):
        assert (mark.dtype, mark.shape) == (bool, (vocabulary.vocab_size,))
        assert not mark[:10].any()
        assert not mark[-100:].any()


def test_pieces_are_shown(vocabulary):
    size = vocabulary.vocab_size
    shown = [vocabulary.piece(i) for i in range(size)]
    assert len(set(shown)) == size
    assert shown[3:10] == [*special_tokens.TRAINED[3:]]
    assert shown[-2:] == ["<extra_id_1>", "<extra_id_0>"]
    text = "".join(vocabulary.piece(i) for i in vocabulary.encode("the lazy dog"))
    assert text.replace("▁", " ").strip() == "the lazy dog"


def test_ids_that_are_not_there_have_no_piece(vocabulary):
    for other in (vocabulary, byte.ByteVocabulary(), passthrough.PassThroughVocabulary(9)):
        size = other.vocab_size
        for i in (-1, size, 99_999):
            with pytest.raises(IndexError, match=f"no id {i}: .* {size} ids"):
                other.piece(i)


@pytest.mark.parametrize(
    "text", ["the <extra_id_0> fox", "<extra_id_3> <extra_id_0> fox", "the fox <extra_id_99>"]
)
def test_sentinels_survive(vocabulary, text):
    ids = vocabulary.encode_with_sentinels(text)
    assert vocabulary.decode(ids) == text
    assert sum(i >= vocabulary.vocab_size - 100 for i in ids) == text.count("<")
    with pytest.raises(ValueError, match="<extra_id_100>"):
        vocabulary.encode_with_sentinels("<extra_id_100>")


def test_pickles_saves_and_is_itself(vocabulary, trained, tmp_path):
    vocabulary.encode("made what it makes lazily")
    vocabulary.save(tmp_path)
    for copy in (pickle.loads(pickle.dumps(vocabulary)), loading.load(tmp_path)):
        assert copy == vocabulary
        assert hash(copy) == hash(vocabulary)
        assert copy.fingerprint == vocabulary.fingerprint
        assert copy.encode("a walking dog") == vocabulary.encode("a walking dog")
        assert copy.token_ids == vocabulary.token_ids
    assert len({v.fingerprint for v in trained.values()}) == len(trained)
    assert sum(v == vocabulary for v in trained.values()) == 1
    assert len(repr(vocabulary)) < 100
