"""Where words begin in the tokens of each kind of `tokenizer.json`."""

import json

import pytest

from t5x_like.vocabularies.subwords import SubwordVocabulary

WORDS = {"[UNK]": 0, "a": 1, "b": 2, "ab": 3}
WHITE = {"type": "Whitespace"}
METASPACE = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": True}


def vocabulary(model, **steps):
    return SubwordVocabulary(json.dumps({"version": "1.0", "model": model, **steps}))


def bpe(vocab, merges=(), **fields):
    return {"type": "BPE", "vocab": vocab, "merges": [*merges], "unk_token": "[UNK]", **fields}


@pytest.mark.parametrize(
    ("made", "text", "pieces", "starts"),
    [
        (
            vocabulary(
                {"type": "WordLevel", "vocab": WORDS, "unk_token": "[UNK]"}, pre_tokenizer=WHITE
            ),
            "ab a",
            ["▁ab", "▁a"],
            [True, True],
        ),
        (
            vocabulary(
                bpe(
                    {"[UNK]": 0, "▁": 1, "a": 2, "▁a": 3, "b": 4, "<0xC3>": 5, "<0xA9>": 6},
                    [["▁", "a"]],
                    byte_fallback=True,
                ),
                pre_tokenizer=METASPACE,
                decoder=METASPACE,
            ),
            "ab aé",
            ["▁a", "b", "▁a", "<0xC3>", "<0xA9>"],
            [True, False, True, False, False],
        ),
        (
            vocabulary(
                bpe(
                    {"[UNK]": 0, "a": 1, "##b": 2, "a##b": 3},
                    continuing_subword_prefix="##",
                ),
                pre_tokenizer=WHITE,
            ),
            "ab a",
            ["▁a", "b", "▁a"],
            [True, False, True],
        ),
    ],
    ids=["words", "spaces", "continuations"],
)
def test_tokens_that_tell(made, text, pieces, starts):
    ids = made.encode(text)
    assert [made.piece(i) for i in ids] == pieces
    assert [bool(made.token_ids.word_starts[i]) for i in ids] == starts


def test_tokens_that_do_not_tell():
    """The first GPT marks where words end, which says nothing about where a token begins."""
    made = vocabulary(bpe({"[UNK]": 0, "a": 1, "b</w>": 2}, end_of_word_suffix="</w>"))
    assert made.token_ids.word_starts is None
    assert made.piece(2) == "b"
