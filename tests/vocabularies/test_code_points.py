import pickle
import unicodedata

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from t5x_like.core.protocols import data as protocols
from t5x_like.vocabularies import code_points, loading
from t5x_like.vocabularies.code_points import CodePointVocabulary
from t5x_like.vocabularies.text import unicode_rules

VOCABULARY = CodePointVocabulary()
SPECIAL = "\0\ue000\ue001\ue002\ue003\ue004"


def test_ids_are_those_of_canine():
    assert VOCABULARY.encode("aé東😀") == [0x61, 0xE9, 0x6771, 0x1F600]
    assert VOCABULARY.token_ids == protocols.TokenIds(
        0x110000,
        pad=0,
        cls=0xE000,
        sep=0xE001,
        eos=0xE001,
        bos=0xE002,
        mask=0xE003,
        unk=0xFFFD,
    )
    assert isinstance(VOCABULARY, protocols.Vocabulary)
    assert isinstance(VOCABULARY, protocols.Locates)


def test_they_are_those_of_transformers_and_names_too():
    tokenizers = pytest.importorskip("transformers.models.canine.tokenization_canine")
    theirs = tokenizers.CanineTokenizer()
    text = "Grüße, 東京 😀\n"
    assert theirs.convert_tokens_to_ids(theirs.tokenize(text)) == VOCABULARY.encode(text)
    for i, name in tokenizers.SPECIAL_CODEPOINTS.items():
        assert VOCABULARY.piece(i) == name


def test_words_start_at_white_space_and_where_a_script_has_none():
    ids = VOCABULARY.token_ids
    text = "one two\nthree\u2003four. 東a"
    starts = [text[at] for at, i in enumerate(VOCABULARY.encode(text)) if ids.word_starts[i]]
    assert starts == [*" \n\u2003", " ", "東"]
    assert not ids.word_starts[[*map(ord, SPECIAL)]].any()
    assert ids.full_stops[ord(".")]
    assert ids.full_stops[ord("。")]


def test_no_character_beyond_those_that_are_looked_at_begins_a_word():
    """Unicode may give more characters names: then this says so."""
    later = map(chr, range(code_points._WITH_WORDS, 0x110000))
    named = [c for c in later if unicodedata.name(c, "")]
    assert named
    assert not any(
        c.isspace() or unicode_rules.is_unspaced(c) or unicode_rules.ends_sentence(c) for c in named
    )


@hypothesis.given(text=st.text())
def test_text_survives(text):
    plain = text.translate(dict.fromkeys(map(ord, SPECIAL), "\ufffd"))
    assert VOCABULARY.decode([*VOCABULARY.encode(text), 0xE001, 99]) == plain
    ids, found = VOCABULARY.locate(text)
    assert ids == VOCABULARY.encode(text)
    assert found.shape == (len(text), 2)


@hypothesis.given(ids=st.lists(st.integers(-5, 0x110010)))
def test_any_ids_decode_to_valid_text(ids):
    VOCABULARY.decode([*ids, 0xD800, 0xE004]).encode()


def test_a_special_token_in_a_text_is_unknown():
    assert VOCABULARY.encode("a\ue003\ud800b") == [97, 0xFFFD, 0xFFFD, 98]
    assert VOCABULARY.decode([0xE000, 97, 0xE003, 0xFFFD]) == "a\ufffd"


def test_characters_as_people_read_them():
    shown = [VOCABULARY.piece(i) for i in (0, 0xE000, 0xE001, *VOCABULARY.encode("aé \n"), 0xD800)]
    assert shown[:-1] == ["[PAD]", "[CLS]", "[SEP]", "a", "é", "▁", "<0x0A>"]
    assert shown[-1].encode()
    with pytest.raises(IndexError, match="no id 1114112"):
        VOCABULARY.piece(0x110000)


def test_it_has_a_name_and_can_be_saved(tmp_path):
    assert loading.load("code_points") == VOCABULARY
    VOCABULARY.save(tmp_path)
    again = loading.load(tmp_path)
    assert again == VOCABULARY == pickle.loads(pickle.dumps(VOCABULARY))
    assert again.fingerprint == VOCABULARY.fingerprint
    assert len({again, VOCABULARY}) == 1
    with pytest.raises(ValueError, match="no sentinels"):
        loading.load("code_points", extra_ids=100)
    with pytest.raises(ValueError, match="<extra_id_0>"):
        VOCABULARY.encode_with_sentinels("<extra_id_0>")
    assert np.array(VOCABULARY.encode_batch(["ab"])).tolist() == [[97, 98]]
