"""BERT's vocab.txt: reading it, and its rules for text."""

from pathlib import Path

import pytest

from t5x_like.vocabularies import loading
from t5x_like.vocabularies.tokenizer_files import wordpiece

WORDS = "the un ##want ##ed runn ##ing run , . ' ! ! a ##b 東".split()
SPECIAL = "[PAD] [unused0] [UNK] [CLS] [SEP] [MASK]".split()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join([*SPECIAL, *WORDS]) + "\n", encoding="utf-8")
    return path


def test_special_tokens_by_name(file):
    vocabulary = loading.load(file)
    ids = vocabulary.token_ids
    assert (ids.pad, ids.unk, ids.cls, ids.sep, ids.mask) == (0, 2, 3, 4, 5)
    assert (ids.eos, ids.bos, ids.named) == (None, None, {})
    assert vocabulary.vocab_size == len(SPECIAL) + len(WORDS)
    assert loading.load(file.parent) == vocabulary
    assert loading.load(file, extra_ids=10).token_ids.sentinel(9) == vocabulary.vocab_size


def test_longest_match_first(file):
    vocabulary = loading.load(file)
    pieces = [vocabulary.piece(i) for i in vocabulary.encode("The Unwanted running, 東東 xyz!")]
    assert pieces == "▁the ▁un want ed ▁runn ing ▁, ▁東 ▁東 [UNK] ▁!".split()
    assert (
        vocabulary.decode(vocabulary.encode("unwanted running, run.")) == "unwanted running, run."
    )
    starts = vocabulary.token_ids.word_starts
    assert [vocabulary.piece(i)[0] == "▁" for i in vocabulary.encode("unwanted ab")] == [
        starts[i] for i in vocabulary.encode("unwanted ab")
    ]


def test_case_follows_from_the_tokens(file):
    assert loading.load(file).encode("THÉ") == loading.load(file).encode("the")
    cased = wordpiece.read(file, lowercase=False)
    assert cased.encode("THE") == [cased.token_ids.unk]
    file.write_text(file.read_text(encoding="utf-8") + "The\n", encoding="utf-8")
    found = loading.load(file)
    assert found.encode("the") != found.encode("The") != [found.token_ids.unk]
    assert found != wordpiece.read(file, lowercase=True)


def test_a_special_token_in_text_is_text(file):
    vocabulary = loading.load(file)
    ids = vocabulary.encode("[MASK] the [SEP]")
    assert set(ids) & set(vocabulary.token_ids.special) == {vocabulary.token_ids.unk}


def test_what_is_decoded(file):
    vocabulary = loading.load(file, extra_ids=2)
    ids = vocabulary.token_ids
    the = vocabulary.encode("the")
    assert vocabulary.decode([ids.cls, *the, ids.unk, ids.sep, ids.pad, 999, -1]) == "the [UNK]"
    assert vocabulary.decode([*the, ids.sentinel(1), *the]) == "the <extra_id_1> the"


def test_a_file_that_is_none_is_named(tmp_path):
    (tmp_path / "vocab.txt").write_text("some\nwords\n")
    with pytest.raises(ValueError, match=r"vocab\.txt is not a WordPiece vocabulary: .*\[UNK\]"):
        loading.load(tmp_path)
    (tmp_path / "vocab.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match=r"vocab\.txt is not text"):
        loading.load(tmp_path / "vocab.txt")
