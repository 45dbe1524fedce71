import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from t5x_like.vocabularies.text import byte_level, pieces


def test_marks_follow_from_the_text():
    texts = [None, " a", "a", "\n", ".", " .", "..", "", "'", "\u2019", "$", "--", ".a", "'s"]
    plain = pieces.marks(texts, vocab_size=16)
    assert np.flatnonzero(plain["word_starts"]).tolist() == [1, 3, 5]
    assert np.flatnonzero(plain["full_stops"]).tolist() == [4, 5, 6]
    both = pieces.marks(texts, vocab_size=16, punctuation=True)
    assert np.flatnonzero(both["word_starts"]).tolist() == [1, 3, 4, 5, 6, 10, 11]
    assert both["full_stops"].tolist() == plain["full_stops"].tolist()
    assert both["word_starts"].shape == (16,)


def test_every_piece_of_a_script_without_spaces_is_a_word():
    chinese, thai, hindi, arabic = "他来", "\u0e04\u0e33", "\u0939\u093f", "\u0643\u062a"
    vowel_signs = ["\u0e34", "\u0e31\u0e19"]  # continue the Thai letter before them
    byte = [b"\xe4", b"\xe0\xb8", b"\xe0", b"\xb8\x84", b"\xe0\xa4"]
    texts = [chinese, "の", "カ", thai, "\u1780", "\u0e81", "\u1000", hindi, arabic, "한", "a他"]
    texts += vowel_signs + [data.decode(errors="surrogateescape") for data in byte]
    starts = pieces.marks(texts, vocab_size=len(texts))["word_starts"]
    assert np.flatnonzero(starts).tolist() == [0, 1, 2, 3, 4, 5, 6, 13, 14]


def test_sentences_end_as_unicode_says():
    ends = [".", "!", "?", "\u3002", "\uff01", "\uff1f", "\u0964", "\u061f", "\u1362", "?!", " ."]
    others = [",", "\u3001", "a.", ":", "\u2026", "", ")", '."']
    stops = pieces.marks([*ends, *others], vocab_size=20)["full_stops"]
    assert np.flatnonzero(stops).tolist() == list(range(len(ends)))


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
    # GPT-2's: printable Latin-1 characters stand for themselves, the rest follows from 256 on.
    known = {"Ġ": b" ", "Ċ": b"\n", "!": b"!", "ÿ": b"\xff", "Ń": b"\xad", "Ā": b"\0"}
    assert {token: byte_level.to_bytes(token) for token in known} == known
    assert byte_level.to_bytes("ĠÃ©") == " é".encode()
    assert byte_level.to_bytes("東") == "東".encode()
