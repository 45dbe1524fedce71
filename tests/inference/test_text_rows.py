import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from t5x_like.inference import text_rows
from t5x_like.inference.text_rows import Framing
from t5x_like.vocabularies.characters import CharacterVocabulary

VOCABULARY = CharacterVocabulary(" .abcdefgh")
IDS = VOCABULARY.token_ids
BERT = Framing(VOCABULARY, "cls:0 A:0 sep:0", "cls:0 A:0 sep:0 B:1 sep:1", max_length=9)


def test_a_text_is_framed_with_what_the_vocabulary_has():
    assert Framing(VOCABULARY, "cls:0 A:0 sep:0").row([7, 8]).tokens == [IDS.cls, 7, 8, IDS.sep]
    assert Framing(VOCABULARY, "begin:0 A:0 eos:0").row([7]).tokens[-2:] == [7, IDS.eos]


def test_two_texts_have_types_and_the_second_one_a_place():
    tokens, truncated, types, second = BERT.row([7], [8, 9])
    assert tokens == [IDS.cls, 7, IDS.sep, 8, 9, IDS.sep]
    assert (truncated, types, second) == (False, [0, 0, 0, 1, 1, 1], 3)


def test_a_long_text_loses_its_end_and_keeps_the_special_tokens():
    assert BERT.row(range(20, 40)) == ([IDS.cls, *range(20, 27), IDS.sep], True, [0] * 9, 0)
    assert BERT.row([7, 7], [8] * 20).tokens[-4:] == [8, 8, 8, IDS.sep]
    with pytest.raises(ValueError, match="no room for a token of the second text"):
        BERT.row([7] * 6, [8])


@given(st.lists(st.integers(0, 200), min_size=1, max_size=40), st.integers(1, 9), st.booleans())
def test_batches_hold_each_row_once_beside_rows_of_like_length(lengths, size, left):
    rows = [[n + 1] * length for n, length in enumerate(lengths)]
    found = {}
    for batch in text_rows.batches(rows, pad=0, size=size, left=left):
        assert len(batch.tokens) == size
        longest = max(batch.counts.sum(axis=1))
        assert batch.tokens.shape[1] == text_rows.bucket(longest) <= max(16, longest * 1.5)
        for place, n in enumerate(batch.numbers):
            found[n] = batch.tokens[place][batch.counts[place] > 0].tolist()
            edge = batch.counts[place][:: -1 if left else 1]
            assert np.all(np.diff(edge) <= 0)  # padding is on one side
        assert not batch.tokens[len(batch.numbers) :].any()
    assert [found[n] for n in range(len(rows))] == rows


def test_a_text_that_is_continued_loses_its_beginning():
    row = Framing(VOCABULARY, "A:0", max_length=4, keeps_end=True).row(range(20, 30))
    assert (row.tokens, row.truncated) == ([26, 27, 28, 29], True)


def test_a_written_mask_is_the_mask_where_the_model_reads_one():
    text = "ab [MASK] c<mask>"
    a, b, space, c = VOCABULARY.encode("ab c")
    read = Framing(VOCABULARY, "A:0", masks=True).text(text).tokens
    assert read == [a, b, IDS.mask, space, c, IDS.mask]
    assert IDS.mask not in Framing(VOCABULARY, "A:0").text(text).tokens


def test_types_go_with_their_tokens_to_models_that_read_them():
    framing = Framing(VOCABULARY, "A:0 sep:0 cls:2", "A:0 sep:0 B:1 sep:1 cls:2", token_types=True)
    (batch,) = framing.batches([framing.text("ab"), framing.text("a", "bc")], size=2)
    types = batch.of_encoder["encoder_token_type_ids"]
    assert batch.numbers == [1, 0]
    assert types[0, :6].tolist() == [0, 0, 1, 1, 1, 2]
    assert types[1, :4].tolist() == [0, 0, 0, 2]
    (batch,) = BERT.batches([BERT.text("ab")], size=1)
    assert batch.of_encoder.keys() == {"encoder_input_tokens", "encoder_attention_mask"}
