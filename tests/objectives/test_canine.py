"""CANINE's objective: whole words of characters, all masked, predicted in a random order."""

from __future__ import annotations

import numpy as np

from t5x_like.objectives.canine import CanineC
from t5x_like.objectives.mlm import NextSentence
from t5x_like.vocabularies.code_points import CodePointVocabulary
from tests.objectives.masked_examples import generator

VOCABULARY = CodePointVocabulary()
IDS = VOCABULARY.token_ids
SEEDS = range(20)
TEXT = "Über sieben Brücken musst du gehn, sieben dunkle Jahre überstehn, siebenmal wirst du "
PAIR = {
    "first": np.array(VOCABULARY.encode(TEXT * 3), np.int32),
    "second": np.array(VOCABULARY.encode(TEXT * 2), np.int32),
    "is_random": np.array(1),
}


def test_all_characters_of_some_words_are_masked() -> None:
    for seed in SEEDS:
        features = CanineC()(PAIR, generator(seed), IDS)
        inputs, at = features["inputs"], features["masked_positions"]
        plain = inputs.copy()
        plain[at] = features["masked_targets"]
        assert (inputs[at] == IDS.mask).all()
        assert (inputs == IDS.mask).sum() == len({*at.tolist()}) == len(at)
        texts = [[*PAIR["first"]], [*PAIR["second"]]]
        assert plain.tolist() == [IDS.cls, *texts[0], IDS.sep, *texts[1], IDS.sep]
        # A word begins at white space, or where a text does, and is masked as a whole.
        masked = inputs == IDS.mask
        begins = (plain == ord(" ")) | np.isin(np.roll(plain, 1), [IDS.cls, IDS.sep])
        begins |= np.isin(plain, [IDS.cls, IDS.sep])
        of_words = [{*part.tolist()} for part in np.split(masked, np.flatnonzero(begins)[1:])]
        assert all(len(one) == 1 for one in of_words)
        assert 0.1 < len(at) / len(inputs) <= 0.151
        assert features["next_sentence_label"] == 1


def test_positions_come_in_a_random_order() -> None:
    """The same ones as without it; each target and weight stays with its position."""
    orders = set()
    for seed in SEEDS:
        features = CanineC()(PAIR, generator(seed), IDS)
        ascending = np.argsort(features["masked_positions"])
        orders.add(tuple(ascending[:4]))
        plain = _AllMasked(whole_words=True)(PAIR, generator(seed), IDS)
        for name in ("masked_positions", "masked_targets", "masked_loss_weights"):
            np.testing.assert_array_equal(features[name][ascending], plain[name])
    assert len(orders) > len(SEEDS) // 2


class _AllMasked(NextSentence):
    shares = CanineC.shares
