"""A small vocabulary with words, and texts of it, for tests of objectives that mask words."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from t5x_like.core.protocols.data import TokenIds
from tests.objectives.masked_examples import SEEDS, generator

SIZE = 281
FIRST = 11  # Text is of the ids from here on, the first 20 in 27 of them begin a word.


def vocabulary(*, words: bool = True, counts: np.ndarray | None = None) -> TokenIds:
    """Ten words have 13.5 pieces on average; without `words` no piece begins one."""
    word_starts = np.zeros(SIZE, np.bool_)
    if words:
        word_starts[FIRST:] = np.arange(SIZE - FIRST) % 27 < 20
    return TokenIds(
        vocab_size=SIZE,
        pad=0,
        eos=None,
        unk=1,
        cls=2,
        sep=3,
        mask=4,
        word_starts=word_starts,
        counts=np.ones(SIZE, np.int64) if counts is None else counts,
    )


IDS = vocabulary()
WITHOUT_WORDS = vocabulary(words=False)
VOCABULARIES = st.sampled_from([IDS, WITHOUT_WORDS])


def text(length: int, seed: int) -> np.ndarray:
    """Random pieces, none of them special: int32 [length]."""
    return generator(seed).integers(FIRST, SIZE, length).astype(np.int32)


@st.composite
def texts(draw: st.DrawFn, most: int = 200) -> np.ndarray:
    """Any text: empty, of one token, of special tokens alone, of pieces that begin no word."""
    length = draw(st.one_of(st.integers(0, 3), st.integers(0, most)))
    low, high = draw(st.sampled_from([(0, 5), (0, SIZE), (FIRST, SIZE), (FIRST + 20, FIRST + 27)]))
    return generator(draw(SEEDS)).integers(low, high, length).astype(np.int32)
