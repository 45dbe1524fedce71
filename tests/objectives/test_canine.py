"""CANINE's objectives: whole words, predicted by characters in a random order, or as subwords."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from t5x_like.objectives.canine import CanineC, CanineS
from t5x_like.objectives.mlm import NextSentence
from t5x_like.vocabularies.code_points import CodePointVocabulary
from t5x_like.vocabularies.learning.subword_training import train_wordpiece
from t5x_like.vocabularies.passthrough import PassThroughVocabulary
from t5x_like.vocabularies.subwords import SubwordVocabulary
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


@pytest.fixture(scope="module")
def subwords(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, SubwordVocabulary]:
    vocabulary = train_wordpiece(
        [TEXT] * 3, size=90, character_coverage=1.0, lowercase=False, extra_ids=0
    )
    folder = tmp_path_factory.mktemp("subwords")
    vocabulary.save(folder)
    return str(folder), vocabulary


def test_subwords_of_another_vocabulary_are_masked(subwords: tuple[str, SubwordVocabulary]) -> None:
    """All characters of each one have one fate; its id stands at its first character."""
    name, vocabulary = subwords
    objective = CanineS(vocabulary=name, max_predictions=20)
    assert objective.features({"inputs": 512})["masked_subwords"].length == 20
    spans = {}
    for begin, part in ((1, PAIR["first"]), (len(PAIR["first"]) + 2, PAIR["second"])):
        ids, places = vocabulary.locate("".join(map(chr, part)))
        spans |= {begin + s: (i, begin + e) for i, (s, e) in zip(ids, places, strict=True)}
    fates = dict.fromkeys(("masked", "random", "kept"), 0)
    for seed in SEEDS:
        features = objective(PAIR, generator(seed), IDS)
        noisy = features["inputs"].copy()
        starts = features["masked_positions"].tolist()
        assert starts == sorted({*starts})
        assert len(starts) == min(20, round(0.15 * len(spans)))
        whole = np.concatenate([[IDS.cls], PAIR["first"], [IDS.sep], PAIR["second"], [IDS.sep]])
        np.testing.assert_array_equal(features["masked_targets"], whole[starts])
        for start, subword in zip(starts, features["masked_subwords"], strict=True):
            i, end = spans[start]
            assert subword == i
            found, before = noisy[start:end], whole[start:end]
            kind = "masked" if (found == IDS.mask).all() else "random"
            kind = "kept" if (found == before).all() else kind
            fates[kind] += 1
            assert kind == "masked" or not (found == IDS.mask).any()
            noisy[start:end] = before
        np.testing.assert_array_equal(noisy, whole)
    total = sum(fates.values())
    assert abs(fates["masked"] / total - 0.8) < 0.1
    assert 0.02 < fates["random"] / total < 0.2


def test_a_vocabulary_without_places_is_refused(tmp_path: Path) -> None:
    PassThroughVocabulary(100).save(tmp_path)
    with pytest.raises(ValueError, match="where its subwords are in a text"):
        CanineS(vocabulary=str(tmp_path))(PAIR, generator(), IDS)
