"""RoBERTa's input formats, token by token, and its masking."""

from __future__ import annotations

import math

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from t5x_like.objectives.parts.sentence_blocks import SentenceBlocks
from t5x_like.objectives.parts.sentence_pairs import SentencePairs, SingleSentencePairs
from t5x_like.objectives.roberta import PRESETS, PackedSentences, PairedSegments
from tests.objectives.masked_examples import (
    ROBERTA,
    SEEDS,
    VOCAB,
    fates,
    made,
    many,
    rebuilt,
    text,
    texts,
)
from tests.objectives.sentences import CORPORA, InMemory, planned, sigmas

BEGIN, END = 0, 2
FIELDS = {"masked_rate": st.sampled_from([0.15, 0.4, 1]), "whole_words": st.booleans()}


def block(tokens: np.ndarray, segments: tuple = (), documents: tuple = ()) -> dict:
    return {
        "targets": tokens,
        "segments": np.array(segments, np.int32),
        "documents": np.array(documents, np.int32),
    }


@st.composite
def blocks(draw: st.DrawFn) -> dict[str, np.ndarray]:
    tokens = draw(texts(60))
    starts = st.sets(st.integers(1, max(1, len(tokens) - 1)), max_size=12 * (len(tokens) > 1))
    segments = sorted(draw(starts))
    documents = [start for start in segments if draw(st.booleans())]
    return block(tokens, tuple(segments), tuple(documents))


def separated(sample: dict[str, np.ndarray]) -> list[int]:
    """The packed format, a token at a time."""
    read = [BEGIN]
    for i, token in enumerate(sample["targets"].tolist()):
        read += [END] * (i in sample["segments"]) + [END] * (i in sample["documents"])
        read.append(token)
    return [*read, END]


@hypothesis.given(st.builds(PackedSentences, **FIELDS), blocks(), SEEDS)
def test_packed_sentences(objective: PackedSentences, sample: dict, seed: int):
    length = 2 + len(sample["targets"]) + len(sample["segments"]) + len(sample["documents"])
    features = made(objective, sample, length=length, seed=seed, ids=ROBERTA)
    assert rebuilt(features).tolist() == separated(sample)
    assert not features["token_type_ids"].any()
    assert (np.diff(features["masked_positions"]) > 0).all()
    if not objective.whole_words:
        expected = objective.masked_rate * length
        assert len(features["masked_positions"]) in (math.floor(expected), math.ceil(expected))


@hypothesis.given(
    st.builds(PairedSegments, **FIELDS), texts(30), texts(30), st.integers(0, 1), SEEDS
)
def test_pairs(objective, first: np.ndarray, second: np.ndarray, label: int, seed: int):
    sample = {"first": first, "second": second, "is_random": np.int32(label)}
    features = made(objective, sample, length=64, seed=seed, ids=ROBERTA)
    assert rebuilt(features).tolist() == [BEGIN, *first, END, END, *second, END]
    assert not features["token_type_ids"].any()
    assert features["next_sentence_label"] == label


@pytest.mark.slow
@hypothesis.given(CORPORA, st.booleans(), st.integers(3, 80))
def test_blocks_and_their_separators_fit(documents: list, cross_documents: bool, length: int):
    objective = PackedSentences(cross_documents=cross_documents)
    corpus = InMemory(documents)
    tokens = text(corpus.total)
    plan = planned(objective.geometry({"inputs": length}), documents)
    read = 0
    for start, end in zip(plan["targets_start"], plan["targets_end"], strict=True):
        segments = corpus.segment_starts
        segments = segments[(start < segments) & (segments < end)]
        new = segments[np.isin(segments, corpus.starts)]
        sample = block(tokens[start:end], tuple(segments - start), tuple(new - start))
        made(objective, sample, length=length, ids=ROBERTA)
        assert cross_documents or not len(new)
        read += end - start
    assert read == corpus.total


def test_separators_between_sentences_and_documents():
    features = made(
        PackedSentences(),
        block(np.arange(30, 36, dtype=np.int32), (2, 3), (3,)),
        length=11,
        ids=ROBERTA,
    )
    assert rebuilt(features).tolist() == [0, 30, 31, 2, 32, 2, 2, 33, 34, 35, 2]


@pytest.mark.parametrize("tokens", [20, 23, 128])
def test_the_number_of_predictions_is_rounded_at_random(tokens: int):
    draws = 3000
    sample = block(text(tokens - 2))
    numbers = [
        len(one["masked_positions"]) for one in many(PackedSentences(), sample, draws, ROBERTA)
    ]
    low, fraction = divmod(0.15 * tokens, 1)
    assert set(numbers) <= {int(low), int(low) + 1}
    if fraction:
        assert sigmas(sum(n > low for n in numbers), draws, fraction) < 5
    else:
        assert set(numbers) == {int(low)}
    assert abs(np.mean(numbers) - 0.15 * tokens) <= 5 * np.sqrt(fraction * (1 - fraction) / draws)


def test_any_position_may_be_predicted_those_of_special_tokens_too():
    draws = 4000
    sample = block(text(28), (9,), (9,))
    examples = many(PackedSentences(), sample, draws, ROBERTA)
    hits = np.bincount(np.concatenate([one["masked_positions"] for one in examples]))
    assert len(hits) == 32
    assert all(sigmas(n, draws, 0.15) < 5 for n in hits)


def test_eighty_ten_ten_without_special_replacements():
    sample = block(np.full(510, 30, np.int32))
    examples = many(PackedSentences(), sample, 1000, ROBERTA)
    counts = fates(examples, ROBERTA.mask)
    total = sum(counts.values())
    # Of the 60 ids, all but the first four may come at random.
    assert sigmas(counts["masked"], total, 0.8 + 0.1 / 56) < 5
    assert sigmas(counts["same"], total, 0.1 + 0.1 / 56 * 510 / 512) < 5
    seen = np.concatenate([one["inputs"][1:-1] for one in examples])
    others = np.bincount(seen, minlength=VOCAB)
    chosen = sum(int((one["masked_targets"] == 30).sum()) for one in examples)
    assert not others[:4].any()
    assert all(sigmas(others[i], chosen, 0.1 / 56) < 5 for i in range(4, VOCAB - 1) if i != 30)


def test_whole_words_share_a_fate():
    # 20 words of three pieces (multiples of 3 continue), between two special tokens.
    sample = block(np.tile(np.array([31, 30, 33], np.int32), 20))
    words = kept = masked = 0
    draws = 4000
    for one in many(PackedSentences(whole_words=True), sample, draws, ROBERTA):
        positions = one["masked_positions"]
        positions = positions[(positions > 0) & (positions < 61)].reshape(-1, 3)
        assert (positions == positions[:, :1] + np.arange(3)).all()
        assert (positions[:, 0] % 3 == 1).all()
        seen = one["inputs"][positions]
        words += len(seen)
        masked += int((seen == ROBERTA.mask).all(axis=1).sum())
        kept += int((seen == [31, 30, 33]).all(axis=1).sum())
        assert not (seen < 4).any()
    # 0.15 of the 22 words, special tokens among them, are chosen.
    assert abs(words / draws - 20 * 0.15) < 5 * np.sqrt(20 * 0.15 / draws)
    assert sigmas(masked, words, 0.8 + 0.1 / 56**3) < 5
    assert sigmas(kept, words, 0.1 + 0.1 / 56**3) < 5


def test_a_word_too_long_for_the_predictions_is_passed_over():
    objective = PackedSentences(whole_words=True, masked_rate=0.4)
    sample = block(np.r_[31, np.full(61, 30)].astype(np.int32))
    assert objective.features({"inputs": 64})["masked_positions"].length == 52
    for one in many(objective, sample, 50, ROBERTA):
        assert set(one["masked_positions"].tolist()) <= {0, 63}


def test_presets():
    lengths = {"inputs": 512}
    assert {name: objective.geometry(lengths) for name, objective in PRESETS.items()} == {
        "segment_pair": SentencePairs(508, short_probability=0.0),
        "sentence_pair": SingleSentencePairs(508),
        "full_sentences": SentenceBlocks(511, True, per_segment=1, per_document=1),
        "doc_sentences": SentenceBlocks(511, False, per_segment=1, per_document=1),
    }
    assert not any(objective.static for objective in PRESETS.values())
    for objective in PRESETS.values():
        assert objective.needs == ("cls", "sep", "mask")
        assert objective.features(lengths)["masked_positions"].length == 77
        with pytest.raises(ValueError, match="no room for text"):
            objective.geometry({"inputs": 2})
    assert PairedSegments(whole_words=True).needs == ("cls", "sep", "mask", "word_starts")
    with pytest.raises(ValueError, match="PackedSentences: masked_rate"):
        PackedSentences(masked_rate=0)
