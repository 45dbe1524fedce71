import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from t5x_like.core.protocols import data as protocols
from t5x_like.vocabularies.byte import ByteVocabulary

VOCABULARIES = [ByteVocabulary(), ByteVocabulary(extra_ids=100)]


def test_ids_are_those_of_byt5():
    vocabulary = ByteVocabulary()
    assert vocabulary.encode("aé") == [100, 198, 172]
    assert vocabulary.vocab_size == 259
    assert vocabulary.token_ids == protocols.TokenIds(259, pad=0, eos=1, unk=2, sentinels=100)
    assert vocabulary.token_ids.sentinel(0) == 258
    assert ByteVocabulary(extra_ids=125).vocab_size == 384
    assert isinstance(vocabulary, protocols.Vocabulary)


def test_words_start_at_white_space():
    vocabulary = ByteVocabulary(extra_ids=5)
    starts = vocabulary.token_ids.word_starts
    assert starts.shape == (264,)
    text = "one two\nthree\tfour."
    assert [text[i] for i, b in enumerate(vocabulary.encode(text)) if starts[b]] == [*" \n\t"]
    assert not starts[:3].any()
    # Of bytes that are no ASCII character, those that begin a Chinese or Japanese character.
    assert (np.flatnonzero(starts[128:]) + 128 - 3).tolist() == list(range(0xE3, 0xEA))
    assert np.flatnonzero(vocabulary.token_ids.full_stops).tolist() == vocabulary.encode("!.?")


def test_bytes_as_people_read_them():
    shown = [ByteVocabulary().piece(i) for i in [0, 1, 2, *ByteVocabulary().encode("a é\n")]]
    assert shown == ["<pad>", "</s>", "<unk>", "a", "▁", "<0xC3>", "<0xA9>", "<0x0A>"]
    # No text has the bytes from 0xF5 on.
    assert ByteVocabulary().piece(258) == "<extra_id_0>"
    assert ByteVocabulary().piece(247) == "<0xF4>"
    assert ByteVocabulary(extra_ids=1).piece(259) == "<extra_id_0>"
    assert ByteVocabulary(extra_ids=1).piece(258) == "<0xFF>"


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
@hypothesis.given(text=st.text())
def test_text_survives(vocabulary, text):
    assert vocabulary.decode([*vocabulary.encode(text), 1, 99]) == text
    assert vocabulary.encode_batch([text, "b"]) == [vocabulary.encode(text), [101]]


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
@hypothesis.given(ids=st.lists(st.integers(-5, 500)))
def test_any_ids_decode_to_valid_text(vocabulary, ids):
    vocabulary.decode(ids).encode()


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_sentinels_survive(vocabulary):
    text = "Grüße, <extra_id_0> und<extra_id_7> 東京"
    ids = vocabulary.encode_with_sentinels(text)
    assert vocabulary.token_ids.sentinel(7) in ids
    assert vocabulary.decode(ids) == text
    with pytest.raises(ValueError, match="<extra_id_100>"):
        vocabulary.encode_with_sentinels("<extra_id_100>")


def test_bytes_that_are_no_text_are_dropped_where_sentinels_have_their_own_ids():
    assert ByteVocabulary(extra_ids=1).decode([258, 100, 259]) == "a<extra_id_0>"
    assert ByteVocabulary().decode([258, 100, 131]) == "<extra_id_0>a"


def test_fingerprint_tells_sentinels_apart():
    assert VOCABULARIES[0] == ByteVocabulary()
    assert VOCABULARIES[0].fingerprint == ByteVocabulary().fingerprint
    assert VOCABULARIES[0].fingerprint != VOCABULARIES[1].fingerprint
    assert len({*VOCABULARIES, ByteVocabulary()}) == 2
