import hypothesis
import hypothesis.strategies as st
import pytest

from t5x_like.vocabularies.characters import CharacterVocabulary

VOCABULARY = CharacterVocabulary(" \nabé.東")


def test_special_tokens_come_first():
    assert VOCABULARY.vocab_size == 10 + 7 + 100
    assert VOCABULARY.encode("ba 東x") == [13, 12, 10, 16, 2]
    assert CharacterVocabulary("ab", extra_ids=0).vocab_size == 12


@hypothesis.given(st.text(st.sampled_from(VOCABULARY.characters)))
def test_known_text_survives_with_sentinels(text):
    written = f"{text}<extra_id_99>{text}<extra_id_0>"
    ids = VOCABULARY.encode_with_sentinels(written)
    assert len(ids) == 2 * len(text) + 2
    assert VOCABULARY.decode([*ids, 1, 12]) == written


def test_unknown_and_foreign_ids():
    assert VOCABULARY.decode([12, 2, 0, 3, 9, -1, 500, 13]) == "a\ufffdb"
    with pytest.raises(ValueError, match="none"):
        CharacterVocabulary("a", extra_ids=0).encode_with_sentinels("<extra_id_0>")


def test_words_and_sentences():
    ids = VOCABULARY.token_ids
    marked = {
        name: [VOCABULARY.piece(i) for i in range(117) if getattr(ids, name)[i]]
        for name in ("word_starts", "full_stops")
    }
    assert marked == {"word_starts": ["▁", "<0x0A>", "東"], "full_stops": ["."]}
