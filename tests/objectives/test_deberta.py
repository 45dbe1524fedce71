"""DeBERTa's masking: n-grams of words, and where in a row they are."""

from __future__ import annotations

import numpy as np
import pytest

from t5x_like.core.protocols.data import TokenIds
from t5x_like.objectives import deberta

V = 1000
IDS = TokenIds(V, pad=0, eos=None, unk=1, cls=2, sep=3, mask=4, word_starts=np.arange(V) % 3 != 0)


def examples(objective: deberta.NGrams, rows: int = 300, length: int = 512) -> list:
    rng = np.random.default_rng(0)
    texts = rng.integers(5, V, (rows, length - 2)).astype(np.int32)
    return [objective({"targets": text}, rng, IDS) for text in texts]


def test_ngrams_occur_as_often_as_they_should() -> None:
    """1, 2 and 3 units with 6, 3 and 2 of 11 chances; a sixth of all units."""
    rng = np.random.default_rng(0)
    runs: list[int] = []
    share = []
    for _ in range(200):
        marked = deberta.marked_units(2000, rate=0.15, max_ngram=3, rng=rng)
        share.append(len(marked) / 2000)
        edges = np.flatnonzero(np.diff(np.concatenate([[-2], marked, [9999]])) > 1)
        runs += np.diff(edges).tolist()
    counts = np.bincount(runs, minlength=4)[1:4] / len(runs)
    np.testing.assert_allclose(counts, np.array([6, 3, 2]) / 11, atol=0.05)  # some touch
    assert np.mean(share) == pytest.approx(1 / 6, abs=0.005)


def test_the_end_of_a_row_is_rarely_predicted() -> None:
    places = [example["masked_positions"] for example in examples(deberta.NGrams())]
    by_tenth = np.histogram(np.concatenate(places), bins=10, range=(0, 512))[0] / (300 * 51.2)
    np.testing.assert_allclose(by_tenth[:8], 1 / 6, atol=0.02)
    assert by_tenth[9] < 0.06


def test_words_are_predicted_as_wholes() -> None:
    for example in examples(deberta.NGrams(), rows=20):
        original = example["inputs"].copy()
        original[example["masked_positions"]] = example["masked_targets"]
        predicted = np.zeros(len(original), bool)
        predicted[example["masked_positions"]] = True
        assert not predicted[[0, -1]].any()
        continues = ~IDS.word_starts[original]  # type: ignore[index]
        continues[[0, 1, -1]] = False
        assert (predicted[1:] == predicted[:-1])[continues[1:]].all()
        assert len(example["masked_positions"]) <= 77


def test_a_generator_sees_masks_alone() -> None:
    found = examples(deberta.ReplacedTokens(), rows=50)
    for example in found:
        assert (example["inputs"][example["masked_positions"]] == IDS.mask).all()
        assert example["text_weights"].sum() == len(example["inputs"]) - 2
    share = np.mean([len(example["masked_positions"]) / 512 for example in found])
    assert share == pytest.approx(0.15, abs=0.005)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_ngram": 0}, "max_ngram"),
        ({"mask": 0.8, "random": 0.3}, "at most 1 together"),
        ({"masked_rate": 0.0}, "masked_rate"),
    ],
)
def test_settings_that_are_none_say_so(settings: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        deberta.NGrams(**settings)
