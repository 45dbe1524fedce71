import pytest

from t5x_like.vocabularies.passthrough import PassThroughVocabulary


def test_ids_are_their_own_text():
    vocabulary = PassThroughVocabulary(50, eos=1)
    assert vocabulary.encode("7 49 0") == [7, 49, 0]
    assert vocabulary.encode_batch(["3"]) == [[3]]
    assert vocabulary.encode_with_sentinels("3") == [3]
    assert vocabulary.decode([7, 49, 1, 3]) == "7 49"
    assert PassThroughVocabulary(50).decode([7, 1]) == "7 1"
    assert vocabulary.piece(7) == "7"


@pytest.mark.parametrize("text", ["50", "-1", "a word"])
def test_what_is_no_id_is_refused(text):
    with pytest.raises(ValueError, match="below 50"):
        PassThroughVocabulary(50).encode(text)


def test_special_ids_and_identity():
    vocabulary = PassThroughVocabulary(50, eos=3)
    assert (vocabulary.vocab_size, vocabulary.token_ids.eos) == (50, 3)
    assert vocabulary.token_ids.unk is None
    assert vocabulary == PassThroughVocabulary(50, eos=3)
    assert vocabulary != PassThroughVocabulary(50)
    assert vocabulary.fingerprint != PassThroughVocabulary(51, eos=3).fingerprint
