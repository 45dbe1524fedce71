"""Blanks of an objective's examples become texts, whatever the objective has hidden and how."""

import numpy as np
import pytest

from t5x_like.inference.blanked_texts import blanked
from t5x_like.vocabularies.byte import ByteVocabulary
from t5x_like.vocabularies.characters import CharacterVocabulary

LETTERS = CharacterVocabulary(" .abcdefgh")
BYTES = ByteVocabulary()
CLS, SEP, MASK = (LETTERS.token_ids.given(name) for name in ("cls", "sep", "mask"))


def masked(tokens, positions, **more):
    """An encoder's example in which `positions` are masked, but for the last, which is kept."""
    inputs = np.array(tokens)
    targets = inputs[positions]
    inputs[positions[:-1]] = MASK
    places = {"masked_positions": np.array(positions), "masked_targets": targets}
    return {"inputs": inputs, **places, **more}


def words(text):
    return LETTERS.encode(text)


def spans(text):
    return np.array([*BYTES.encode_with_sentinels(text), BYTES.token_ids.eos])


PAIR = [CLS, *words("abc"), SEP, *words("defg"), SEP]
SPANS = {"inputs": spans("a<extra_id_0>d e<extra_id_1>"),
         "targets": spans("<extra_id_0>b c<extra_id_1>é f<extra_id_2>")}  # fmt: skip
EXAMPLES = {
    "masks": (LETTERS, masked(PAIR, [2, 3]), "a [MASK] [MASK]", "abc"),
    "only in the second text": (LETTERS, masked(PAIR, [5, 7]), "[MASK]e [MASK]g", "defg"),
    "special tokens too": (LETTERS, masked(PAIR, [4, 8]), "def [MASK]", "defg"),
    "read backward": (
        LETTERS,
        masked([*words("cba"), SEP, SEP, CLS], [0, 1], backward=np.int32(1)),
        "a [MASK] [MASK]",
        "abc",
    ),
    "spans": (BYTES, SPANS, "a<extra_id_0>d e<extra_id_1>", "ab cd eé f"),
    "masks that a writer reads": (
        LETTERS,
        {"inputs": np.array([*words("ab"), MASK]), "targets": np.array(words("abc"))},
        "ab [MASK]",
        "abc",
    ),
    "text to text": (BYTES, {"inputs": spans("2+2"), "targets": spans("4")}, "2+2", "4"),
    "a text to continue": (BYTES, {"targets": spans("abcde")}, "abc", "de"),
    "several documents": (
        BYTES,
        {"targets": np.concatenate([spans("ab"), spans("cdefgh"), BYTES.encode("ij")])},
        "cde",
        "fgh",
    ),
    "spans of two documents": (
        BYTES,
        {
            "inputs": np.concatenate([spans("a"), spans("b<extra_id_0>")]),
            "targets": np.concatenate([spans("<extra_id_0>c"), spans("d<extra_id_1>")]),
        },
        "ab<extra_id_0>",
        "abcd",
    ),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_text_and_the_truth_of_an_example(name):
    vocabulary, features, text, truth = EXAMPLES[name]
    assert blanked(features, vocabulary) == (text, truth)


def test_of_a_long_row_a_part_with_a_blank_is_shown():
    row = [CLS, *words("ab" * 200), SEP]
    assert blanked(masked(row, [1, 300]), LETTERS) == ("[MASK]" + "ba" * 31 + "b", "ab" * 32)
    text, truth = blanked(masked(row, [300, 301]), LETTERS)
    assert text.count("[MASK]") == 2
    assert len(truth) == 64
    assert set(truth) == {"a", "b"}


@pytest.mark.parametrize("before", range(4))
def test_no_character_is_halved(before):
    text, truth = blanked({"targets": spans("a" * before + "日本" * 60)}, BYTES)
    assert set(text + truth) <= {"a", "日", "本"}
    features = {"inputs": spans("日" * 50 + "a" * before + "<extra_id_0>" + "日" * 50),
                "targets": spans("<extra_id_0>é<extra_id_1>")}  # fmt: skip
    text, truth = blanked(features, BYTES)
    assert text.replace("<extra_id_0>", "é") == truth
    assert set(truth) <= {"a", "日", "é"}
    assert 20 < len(truth) < 60


def test_a_span_within_characters_leaves_the_others():
    sun, book, word = map(BYTES.encode, "日本語")
    first, second = map(BYTES.token_ids.sentinel, (0, 1))
    features = {
        "inputs": np.array([*sun, *book[:1], first, *word[2:], *sun]),
        "targets": np.array([first, *book[1:], *word[:2], second]),
    }
    assert blanked(features, BYTES) == ("日<extra_id_0>日", "日本語日")


def test_where_nothing_is_hidden_there_is_no_text():
    assert blanked(masked(PAIR, [0]), LETTERS) is None
    labelled = {"inputs": np.array(PAIR), "label": np.int32(1)}
    with pytest.raises(ValueError, match="examples have inputs, label: nothing of a text is hidde"):
        blanked(labelled, LETTERS)
