"""Gap sentences: the right ones are taken, nothing is lost, and targets fit their length."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from t5x_like.core.protocols.data import TokenIds
from t5x_like.objectives.gap_sentences import GapSentences, overlaps

IDS = TokenIds(1000, sentinels=100, full_stops=np.arange(1000) == 9)
GAP = 999
TEXTS = st.lists(st.lists(st.integers(10, 40), min_size=1, max_size=9), min_size=1, max_size=12)


def joined(sentences):
    return [*itertools.chain(*sentences)]


def sample_of(sentences, **more):
    starts = np.cumsum([len(one) for one in sentences])[:-1]
    return {
        "targets": np.array(joined(sentences), np.int32),
        "segments": starts.astype(np.int32),
        **more,
    }


def made(sentences, share=0.2, **more):
    return GapSentences(share)(sample_of(sentences, **more), np.random.default_rng(0), IDS)


@given(TEXTS)
def test_overlaps_are_those_of_sets(sentences):
    bounds = np.cumsum([0, *map(len, sentences)])
    got = overlaps(np.array(joined(sentences)), bounds)
    for n, sentence in enumerate(sentences):
        mine, others = {*sentence}, {*joined(sentences[:n] + sentences[n + 1 :])}
        shared = len(mine & others)
        precision, recall = shared / len(mine), shared / len(others) if others else 0
        both = precision + recall
        assert got[n] == pytest.approx(2 * precision * recall / both if both else 0)


@given(TEXTS, st.integers(1, 40), st.sampled_from([0.2, 0.5, 1.0]))
def test_inputs_and_targets_are_the_text(sentences, room, share):
    rows = made(sentences, share, room=np.int32(room))
    inputs, targets = rows["inputs"].tolist(), rows["targets"].tolist()
    assert len(targets) <= room
    gaps = inputs.count(GAP)
    assert gaps <= (max(1, round(share * len(sentences))) if len(sentences) > 1 else 0)
    # Filled with sentences of the text, the gaps give the text again.
    starts = np.cumsum([0, *map(len, sentences)])[:-1].tolist()
    sentence_at = dict(zip(starts, sentences, strict=True))
    filled: list[int] = []
    for token in inputs:
        sentence = sentence_at[len(filled)] if token == GAP else [token]
        filled += sentence
        if token == GAP:
            assert targets[: len(sentence)] == sentence
            del targets[: len(sentence)]
    assert filled == joined(sentences)
    assert not targets


def test_the_sentence_that_says_most_of_the_rest_is_taken():
    sentences = [[10, 11, 12], [20, 21, 22], [10, 20, 30, 11], [30, 31, 32], [40, 41, 42]]
    rows = made(sentences)
    assert rows["targets"].tolist() == sentences[2]
    assert rows["inputs"].tolist() == [10, 11, 12, 20, 21, 22, GAP, 30, 31, 32, 40, 41, 42]
    # Where it does not fit, the next one is taken.
    assert made(sentences, room=np.int32(3))["targets"].tolist() == sentences[0]


def test_a_text_without_segments_is_divided_at_full_stops():
    tokens = np.array([10, 11, 9, 10, 12, 9, 13, 14, 9], np.int32)
    rows = GapSentences()({"targets": tokens}, np.random.default_rng(0), IDS)
    assert rows["inputs"].tolist() == [GAP, 10, 12, 9, 13, 14, 9]
    assert rows["targets"].tolist() == [10, 11, 9]


def test_lengths_that_leave_no_room_are_refused():
    assert GapSentences().lengths(4096) == {"inputs": 4096, "targets": 910}
    assert GapSentences().geometry({"inputs": 64, "targets": 15}).constants == (("room", 14),)
    with pytest.raises(ValueError, match=r"\['targets'\] missing"):
        GapSentences().geometry({"inputs": 64})
    with pytest.raises(ValueError, match="at least 2 tokens"):
        GapSentences().geometry({"inputs": 64, "targets": 1})
