"""BERT's masking: budgets, 80/10/10, whole words, static and dynamic, sentence pairs."""

from __future__ import annotations

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from t5x_like.objectives.mlm import (
    PRESETS,
    AllMasked,
    MaskedLM,
    NextSentence,
    SentenceOrder,
    SpecialsToo,
)
from t5x_like.objectives.parts.geometry import ConcatenateAndSplit, Duplicated
from t5x_like.objectives.parts.sentence_pairs import SentencePairs
from tests.objectives.masked_examples import (
    BERT,
    SEEDS,
    VOCAB,
    fates,
    made,
    many,
    rebuilt,
    text,
    texts,
)
from tests.objectives.sentences import sigmas

LENGTH = 64
FIELDS = {
    "masked_rate": st.sampled_from([0.15, 0.4, 1]),
    "max_predictions": st.none() | st.integers(1, 20),
    "whole_words": st.booleans(),
}
PAIRED = st.builds(NextSentence, **FIELDS) | st.builds(SentenceOrder, **FIELDS)


def pair(first: int, second: int, is_random: int = 0) -> dict[str, np.ndarray]:
    return {"first": text(first), "second": text(second, 1), "is_random": np.int32(is_random)}


def words_of(inputs: np.ndarray) -> list[list[int]]:
    """The positions of each word of text, special tokens apart."""
    words, begins = [], True
    for position, token in enumerate(inputs.tolist()):
        if token in BERT.special:
            if token not in (BERT.cls, BERT.sep):
                words.append([position])
            begins = True
        else:
            if begins or BERT.word_starts[token]:
                words.append([])
            words[-1].append(position)
            begins = False
    return words


@hypothesis.given(st.builds(MaskedLM, **FIELDS), texts(LENGTH - 2), SEEDS)
def test_examples_of_running_text(objective: MaskedLM, tokens: np.ndarray, seed: int):
    features = made(objective, {"targets": tokens}, length=LENGTH, seed=seed)
    assert rebuilt(features).tolist() == [BERT.cls, *tokens, BERT.sep]
    assert not features["token_type_ids"].any()
    assert not np.isin(features["masked_targets"], [BERT.cls, BERT.sep]).any()
    assert (np.diff(features["masked_positions"]) > 0).all()
    budget = max(1, round((len(tokens) + 2) * objective.masked_rate))
    budget = min(budget, objective.max_predictions or budget)
    candidates = int((~np.isin(tokens, [BERT.cls, BERT.sep])).sum())
    predicted = set(features["masked_positions"].tolist())
    if objective.whole_words:
        room = budget - len(predicted)
        for word in words_of(rebuilt(features)):
            assert predicted.issuperset(word) or (predicted.isdisjoint(word) and len(word) > room)
    else:
        assert len(predicted) == min(budget, candidates)


@hypothesis.given(PAIRED, texts(30), texts(31), st.integers(0, 1), SEEDS)
def test_examples_of_pairs(objective, first: np.ndarray, second: np.ndarray, label: int, seed: int):
    sample = {"first": first, "second": second, "is_random": np.int32(label)}
    features = made(objective, sample, length=LENGTH, seed=seed)
    read = [first, second]
    if isinstance(objective, NextSentence):
        assert features["next_sentence_label"] == label
    elif features["sentence_order_label"] and not label:
        read.reverse()
    expected = [BERT.cls, *read[0], BERT.sep]
    ends = len(expected)
    expected += [*read[1], BERT.sep] if len(read[1]) else []
    assert rebuilt(features).tolist() == expected
    assert features["token_type_ids"].tolist() == [int(i >= ends) for i in range(len(expected))]


@pytest.mark.parametrize(("tokens", "predictions"), [(128, 19), (512, 77), (10, 2), (30, 4)])
def test_budgets_count_special_tokens(tokens: int, predictions: int):
    sample = {"targets": text(tokens - 2)}
    features = made(MaskedLM(), sample, length=tokens)
    assert len(features["masked_positions"]) == predictions
    assert MaskedLM().features({"inputs": tokens})["masked_positions"].length == predictions
    pairs = NextSentence()(pair(tokens - 8, 5), np.random.default_rng(0), BERT)
    assert len(pairs["masked_positions"]) == predictions


def test_a_limit_of_predictions():
    objective = MaskedLM(max_predictions=20)
    assert objective.features({"inputs": 512})["masked_targets"].length == 20
    features = made(objective, {"targets": text(510)}, length=512)
    assert len(features["masked_positions"]) == 20
    assert len(made(objective, {"targets": text(28)}, length=512)["masked_positions"]) == 4


@pytest.mark.parametrize("whole_words", [False, True])
def test_every_position_of_the_text_is_as_likely(whole_words: bool):
    draws = 4000
    # Words of one piece: 31 begins one.
    sample = {"targets": np.full(126, 31, np.int32)}
    examples = many(MaskedLM(whole_words=whole_words), sample, draws)
    hits = np.bincount(np.concatenate([one["masked_positions"] for one in examples]), minlength=128)
    assert hits[0] == hits[-1] == 0
    assert all(sigmas(n, draws, 19 / 126) < 5 for n in hits[1:-1])


@pytest.mark.parametrize("whole_words", [False, True])
def test_eighty_ten_ten(whole_words: bool):
    examples = many(MaskedLM(whole_words=whole_words), {"targets": text(126)}, 2000)
    counts = fates(examples, BERT.mask)
    total = sum(counts.values())
    assert sigmas(counts["masked"], total, 0.8 + 0.1 / VOCAB) < 5
    assert sigmas(total - counts["same"], total, 0.8 + 0.1 * (1 - 1 / VOCAB)) < 5


def test_all_become_masks_where_an_objective_says_so():
    for one in many(AllMasked(masked_rate=0.2), {"targets": text(126)}, 100):
        at = one["masked_positions"]
        assert len(at) == round(128 * 0.2)
        assert (one["inputs"][at] == BERT.mask).all()
        assert (rebuilt(one)[1:-1] == text(126)).all()


def test_the_pieces_of_a_word_are_replaced_independently():
    # Words of two pieces: 30 continues, as its id is a multiple of 3.
    sample = {"targets": np.tile(np.array([31, 30], np.int32), 50)}
    both = total = 0
    for one in many(MaskedLM(whole_words=True, masked_rate=0.3), sample, 1000):
        masked = (one["inputs"][one["masked_positions"]] == BERT.mask).reshape(-1, 2)
        both += int(masked.all(axis=1).sum())
        total += len(masked)
    # 30 pieces of the 30.6 allowed: 15 words each.
    assert total == 15_000
    assert sigmas(both, total, (0.8 + 0.1 / VOCAB) ** 2) < 5


def test_words_beyond_the_budget_are_passed_over():
    long_word = np.r_[31, np.full(29, 30)]
    sample = {"targets": np.r_[np.full(20, 31), long_word, np.full(20, 31)].astype(np.int32)}
    for one in many(MaskedLM(whole_words=True), sample, 200):
        positions = one["masked_positions"]
        assert len(positions) == round(72 * 0.15)
        # The word's first piece is one word with the rest; only words of one piece are left.
        assert not ((positions >= 21) & (positions < 51)).any()


def test_swapped_pairs_are_half_of_them():
    draws = 4000
    labels = [one["sentence_order_label"] for one in many(SentenceOrder(), pair(9, 7), draws)]
    assert sigmas(sum(labels), draws, 0.5) < 5
    randoms = many(SentenceOrder(), pair(9, 7, is_random=1), 50)
    assert all(one["sentence_order_label"] == 1 for one in randoms)
    assert all(rebuilt(one)[1:10].tolist() == text(9).tolist() for one in randoms)


def test_noise_comes_from_the_generator():
    sample = {"targets": text(510)}
    one, other = (made(MaskedLM(), sample, length=512, seed=seed) for seed in (1, 2))
    assert one["masked_positions"].tolist() != other["masked_positions"].tolist()


def test_special_tokens_are_predicted_where_an_objective_says_so():
    """As often as others: of 30 % of 64 tokens, 19, each is one in 3.4 examples."""
    rows = [
        made(SpecialsToo(masked_rate=0.3), {"targets": text(62)}, length=64, seed=seed)
        for seed in range(200)
    ]
    assert {len(row["masked_positions"]) for row in rows} == {19}
    for place, token in ((0, BERT.cls), (63, BERT.sep)):
        chosen = [row for row in rows if place in row["masked_positions"]]
        assert 40 <= len(chosen) <= 80
        assert all(token in row["masked_targets"] for row in chosen)
    with pytest.raises(ValueError, match="part of no word"):
        SpecialsToo(whole_words=True)


def test_presets():
    assert {name: objective.static for name, objective in PRESETS.items()} == {
        "mlm": False,
        "mlm_static": True,
        "mlm_whole_word": False,
        "mlm_specials": False,
        "mlm_all_masked": False,
        "mlm_nsp": True,
        "mlm_sop": False,
    }
    lengths = MaskedLM().lengths(512)
    assert lengths == {"inputs": 512}
    assert {name: objective.geometry(lengths) for name, objective in PRESETS.items()} == {
        "mlm": ConcatenateAndSplit(510),
        "mlm_static": Duplicated(ConcatenateAndSplit(510), 10),
        "mlm_whole_word": ConcatenateAndSplit(510),
        "mlm_specials": ConcatenateAndSplit(510),
        "mlm_all_masked": ConcatenateAndSplit(510),
        "mlm_nsp": SentencePairs(509, passes=10),
        "mlm_sop": SentencePairs(509, random_probability=0),
    }
    assert PRESETS["mlm_whole_word"].needs == ("cls", "sep", "mask", "word_starts")
    assert PRESETS["mlm_nsp"].needs == ("cls", "sep", "mask")
    assert MaskedLM(masked_rate=1) == MaskedLM(1.0)
    assert repr(MaskedLM(masked_rate=1)) == repr(MaskedLM(1.0))


def test_geometries_need_room():
    for objective in PRESETS.values():
        with pytest.raises(ValueError, match="no room for text"):
            objective.geometry({"inputs": 2})
    with pytest.raises(ValueError, match="at least once"):
        Duplicated(ConcatenateAndSplit(5), 0)


@pytest.mark.parametrize(
    "fields", [{"masked_rate": 0}, {"masked_rate": 1.5}, {"max_predictions": 0}, {"dupe_factor": 0}]
)
def test_fields_out_of_range(fields: dict[str, float]):
    with pytest.raises(ValueError, match=f"NextSentence: {next(iter(fields))} is "):
        NextSentence(**fields)
