import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from t5x_like.vocabularies import byte_level, pieces


def test_marks_follow_from_the_text():
    texts = [None, " a", "a", "\n", ".", " .", "..", "", "'", "\u2019", "$", "--", ".a", "'s"]
    plain = pieces.marks(texts, vocab_size=16)
    assert np.flatnonzero(plain["word_starts"]).tolist() == [1, 3, 5]
    assert np.flatnonzero(plain["full_stops"]).tolist() == [4, 5]
    both = pieces.marks(texts, vocab_size=16, punctuation=True)
    assert np.flatnonzero(both["word_starts"]).tolist() == [1, 3, 4, 5, 6, 10, 11]
    assert both["full_stops"].tolist() == plain["full_stops"].tolist()
    assert both["word_starts"].shape == (16,)


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (b" the", "▁the"),
        ("é東😀".encode(), "é東😀"),
        (b"\n", "<0x0A>"),
        (b"\xe6\x9d", "<0xE6><0x9D>"),
        (b"a\xff b", "a<0xFF>▁b"),
        ("\u200b".encode(), "<0xE2><0x80><0x8B>"),
        (b"", ""),
    ],
)
def test_bytes_are_shown_to_people(data, shown):
    assert pieces.readable(data) == shown


@hypothesis.given(st.binary())
def test_any_bytes_can_be_shown(data):
    assert pieces.readable(data).isprintable()


def test_byte_level_characters_are_a_bijection():
    # GPT-2's: printable Latin-1 stands for itself, the rest follows from 256 on.
    known = {"Ġ": b" ", "Ċ": b"\n", "!": b"!", "ÿ": b"\xff", "Ń": b"\xad", "Ā": b"\0"}
    assert {token: byte_level.to_bytes(token) for token in known} == known
    assert byte_level.to_bytes("ĠÃ©") == " é".encode()
    assert byte_level.to_bytes("東") == "東".encode()
