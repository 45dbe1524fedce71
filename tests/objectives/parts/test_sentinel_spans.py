"""Replacing masked runs by sentinels, on the example of the T5 paper and at the edges."""

from __future__ import annotations

import numpy as np
import pytest

from t5x_like.core.protocols.data import TokenIds
from t5x_like.objectives.parts.sentinel_spans import replace_runs

IDS = TokenIds(vocab_size=100)
WORDS = ["Thank", "you", "for", "inviting", "me", "to", "your", "party", "last", "week", "."]
NOISY = {"for", "inviting", "me", "your", "party", "last"}


def written(tokens: np.ndarray) -> str:
    names = {IDS.sentinel(0): "<X>", IDS.sentinel(1): "<Y>", IDS.sentinel(2): "<Z>"}
    return " ".join(names.get(int(token)) or WORDS[token - 10] for token in tokens)


def test_the_papers_example():
    tokens = np.arange(10, 10 + len(WORDS), dtype=np.int32)
    noise = np.array([word in NOISY for word in WORDS])
    assert written(replace_runs(tokens, noise, ids=IDS)) == "Thank you <X> to <Y> week ."
    # The clean end of this text is a run as well: a closing sentinel.
    assert (
        written(replace_runs(tokens, ~noise, ids=IDS))
        == "<X> for inviting me <Y> your party last <Z>"
    )


@pytest.mark.parametrize("mask", [[], [False], [True], [True, True], [False, True], [True, False]])
def test_short_inputs_and_runs_at_both_ends(mask: list[bool]):
    tokens = np.arange(3, 3 + len(mask), dtype=np.int32)
    replaced = replace_runs(tokens, np.array(mask, bool), ids=IDS)
    kept = [int(t) for t, m in zip(tokens, mask, strict=True) if not m]
    assert [t for t in replaced.tolist() if t != 99] == kept
    assert replaced.tolist().count(99) == any(mask)
    assert replaced.dtype == np.int32
    assert tokens.tolist() == list(range(3, 3 + len(mask)))


def test_sentinels_stop_above_the_special_ids():
    mask = np.array([True, False] * 3)
    tokens = np.full(6, 3, np.int32)
    assert replace_runs(tokens, mask, ids=TokenIds(vocab_size=6)).tolist() == [5, 3, 4, 3, 3, 3]
    with pytest.raises(ValueError, match=r"3 spans .* vocabulary of 5 ids has 2 above"):
        replace_runs(tokens, mask, ids=TokenIds(vocab_size=5))


def test_known_starts_give_the_same():
    tokens = np.arange(10, 18, dtype=np.int32)
    mask = np.array([True, True, False, True, False, False, True, True])
    assert (
        replace_runs(tokens, mask, ids=IDS, starts=np.array([0, 3, 6])).tolist()
        == replace_runs(tokens, mask, ids=IDS).tolist()
        == [99, 12, 98, 14, 15, 97]
    )
    assert mask.sum() == 5


def test_more_runs_than_sentinels_take_the_pieces_below():
    ids = TokenIds(vocab_size=32100)
    mask = np.arange(256) % 2 == 0
    replaced = replace_runs(np.full(256, 7, np.int32), mask, ids=ids)
    assert replaced[::2].tolist() == list(range(32099, 32099 - 128, -1))
    assert replaced[-2] == 31972


def test_no_special_id_becomes_a_sentinel():
    roberta = TokenIds(160, pad=1, eos=2, unk=3, bos=0, cls=0, sep=2, mask=59, sentinels=100)
    mask = np.arange(202) % 2 == 0
    tokens = np.full(202, 7, np.int32)
    lowest = replace_runs(tokens[:200], mask[:200], ids=roberta)[-2]
    assert lowest == 60
    with pytest.raises(ValueError, match=r"101 spans .* has 100 above"):
        replace_runs(tokens, mask, ids=roberta)
