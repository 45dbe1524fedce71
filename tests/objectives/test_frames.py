"""Special tokens around texts, and how two texts are cut."""

from __future__ import annotations

import numpy as np
import pytest

from t5x_like.core.protocols.data import TokenIds
from t5x_like.objectives.parts.geometry import PerRecord, pair_sizes
from t5x_like.objectives.supervised import frames
from t5x_like.objectives.supervised.classes import Classes
from t5x_like.objectives.supervised.tags import Tags

IDS = TokenIds(99, pad=0, eos=None, unk=None, cls=1, sep=2)
XLNET = "A:0 sep:0 B:1 sep:1 cls:2"
TEXTS = {"A": np.array([11, 12]), "B": np.array([21])}


@pytest.mark.parametrize(
    ("template", "inputs", "types"),
    [
        (frames.PAIR, [1, 11, 12, 2, 21, 2], [0, 0, 0, 0, 1, 1]),
        (XLNET, [11, 12, 2, 21, 2, 1], [0, 0, 0, 1, 1, 2]),
        ("cls:0 A:0 eos:0", [1, 11, 12], [0, 0, 0]),  # no eos in this vocabulary
    ],
)
def test_tokens_and_their_types(template: str, inputs: list[int], types: list[int]) -> None:
    row = frames.framed(template, TEXTS, IDS)
    assert [part.tolist() for part in row] == [inputs, types]


def test_the_longer_text_loses_tokens_first() -> None:
    for first in range(1, 9):
        for second in range(1, 9):
            sizes = [first, second]
            while sum(sizes) > 6:
                sizes[0 if sizes[0] > sizes[1] else 1] -= 1
            assert pair_sizes(first, second, 6) == tuple(sizes)


def test_a_pair_fills_its_row() -> None:
    objective = Classes(pair=True, pair_template=XLNET)
    sample = {"inputs": np.arange(10, 20), "inputs2": np.arange(30, 33), "label": np.array(1)}
    shape = objective.geometry({"inputs": 10})
    assert isinstance(shape, PerRecord)
    row = objective(shape.cut(sample), np.random.default_rng(0), IDS)
    assert row["inputs"].tolist() == [10, 11, 12, 13, 2, 30, 31, 32, 2, 1]
    assert row["labels"] == 1
    with pytest.raises(ValueError, match="set the inputs length to 5 or more"):
        objective.geometry({"inputs": 4})


def test_tags_stand_where_their_tokens_stand() -> None:
    objective = Tags(template="A:0 sep:0 cls:2")
    sample = {"words": np.array([11, 12, 13]), "tags": np.array([5, -1, 6])}
    row = objective(sample, np.random.default_rng(0), IDS)
    assert row["labels"].tolist() == [5, -1, 6, -1, -1]
