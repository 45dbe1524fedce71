"""The pieces of words that carry tags, and the window that gives the tag of each word."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from t5x_like.core.protocols.data import TokenIds
from t5x_like.objectives.parts.geometry import RecordWindows
from t5x_like.objectives.supervised.tags import Tags
from t5x_like.objectives.supervised.windows import Windows, words_of

IDS = TokenIds(99, pad=0, eos=None, unk=None, cls=1, sep=2)
NAMES = ["B-LOC", "B-PER", "I-PER", "O"]
TAGS = np.array(
    [-1, 1, -1, -1, 3, 2, -1, 0, -1], np.int32
)  # the first token belongs to a word before
ENTITIES = Tags(as_bio=True)


@pytest.mark.parametrize(
    ("pieces", "labels", "asked"),
    [
        ("first", [-1, 1, -1, -1, 3, 2, -1, 0, -1], [1, 4, 5, 7]),
        ("last", [-1, -1, -1, 1, 3, -1, 2, -1, 0], [3, 4, 6, 8]),
        # B-LOC has no I-LOC in these names.
        ("all", [-1, 1, 2, 2, 3, 2, 2, 0, 0], [1, 4, 5, 7]),
    ],
)
def test_tags_are_at_the_pieces_that_are_asked(
    pieces: str, labels: list[int], asked: list[int]
) -> None:
    objective = ENTITIES.with_pieces(pieces, NAMES)
    sample = {"words": np.arange(10, 19), "tags": TAGS}
    row = objective(sample, np.random.default_rng(0), IDS)
    assert row["labels"].tolist() == [-1, *labels, -1]
    at = objective.asked(TAGS >= 0, IDS)
    assert at.tolist() == [1 + place for place in asked]
    assert row["labels"][at].tolist() == [1, 3, 2, 0]
    empty = objective({**sample, "tags": np.full(9, -1, np.int32)}, np.random.default_rng(0), IDS)
    assert (empty["labels"] == -1).all()


def test_pieces_of_parts_of_speech_have_the_tag_of_the_word() -> None:
    row = Tags().with_pieces("all", ["B-FLAT", "I-FLAT"])(
        {"words": np.arange(3), "tags": np.array([0, -1, 1])}, np.random.default_rng(0), IDS
    )
    assert row["labels"].tolist() == [-1, 0, 0, 1, -1]
    with pytest.raises(ValueError, match="pieces must be one of first, last, all, mean, not 'mid'"):
        Tags(pieces="mid")


def window_of_word(bounds: list[tuple[int, int]], first: int, end: int) -> int | None:
    best, best_context = None, -10_000
    for number, (begin, stop) in enumerate(bounds):
        context = min(first - begin, stop - end)
        if begin <= first < stop and context > best_context:
            best, best_context = number, context
    return best


def test_each_word_is_that_of_the_window_with_most_context() -> None:
    rng = np.random.default_rng(1)
    for _ in range(200):
        starts = rng.random(int(rng.integers(1, 60))) < 0.5
        starts[0] = True
        room, stride = (int(n) for n in rng.integers(2, 20, 2))
        bounds = Windows(room, stride=stride).bounds(0, len(starts))
        assert bounds[-1][1] == len(starts)
        first = [int(at) for at in np.flatnonzero(starts)]
        ends = [*first[1:], len(starts)]
        want = [window_of_word(bounds, *word) for word in zip(first, ends, strict=True)]
        of_windows = words_of(bounds, starts)
        got = {int(n): w for w, (words, _) in enumerate(of_windows) for n in words}
        assert [got.get(n) for n in range(len(first))] == want
        assert None not in want
        for (words, places), (begin, end) in zip(of_windows, bounds, strict=True):
            here = begin + np.flatnonzero(starts[begin:end])
            assert here[places].tolist() == [first[word] for word in words]


def test_a_text_that_fits_is_one_window_and_words_of_none_are_left_out() -> None:
    starts = np.array([True, False, True, True])
    ((words, places),) = words_of([(0, 4)], starts)
    assert words.tolist() == places.tolist() == [0, 1, 2]
    ((words, _),) = words_of([(0, 2)], starts)  # the rest was cut
    assert words.tolist() == [0]
    ((words, _),) = words_of([(0, 0)], starts[:0])
    assert len(words) == 0


def test_rows_of_windows_are_as_long_as_what_they_read() -> None:
    shape = dataclasses.replace(ENTITIES, stride=3).geometry({"inputs": 7})
    assert isinstance(shape, RecordWindows)
    sizes = np.array([0, 1, 5, 6, 8, 9, 20])
    offsets = {name: np.concatenate([[0], np.cumsum(sizes)]) for name in ("words", "tags")}
    tokens = shape.row_tokens(offsets)
    assert tokens is not None
    bounds = [bound for size in sizes for bound in shape.windows.bounds(0, int(size))]
    assert tokens.tolist() == [end - begin + 2 for begin, end in bounds]
