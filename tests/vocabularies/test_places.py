"""Vocabularies know where in a text their tokens are."""

from __future__ import annotations

import itertools
import random

from t5x_like.core.protocols.data import Locates
from t5x_like.vocabularies.byte import ByteVocabulary
from t5x_like.vocabularies.characters import CharacterVocabulary
from t5x_like.vocabularies.text import lower_case

TEXT = (
    "  The café,  in “Zürich”:\n``\uff21b'' isn't ½ open\t(1904\u20131910). \U0001f600 日本語 end "
)


def test_tokens_are_at_their_places(trained) -> None:
    vocabularies = {
        **trained,
        "bytes": ByteVocabulary(),
        "characters": CharacterVocabulary("".join(sorted({*TEXT}))),
    }
    for (kind, vocabulary), text in itertools.product(vocabularies.items(), [TEXT, "", " "]):
        assert isinstance(vocabulary, Locates), kind
        ids, places = vocabulary.locate(text)
        assert [*ids] == [*vocabulary.encode(text)]
        assert places.shape == (len(ids), 2)
        covered = set()
        for begin, end in places.tolist():
            assert 0 <= begin <= end <= len(text)
            assert text[begin:end] == text[begin:end].strip()
            covered.update(range(begin, end))
        visible = {n for n, character in enumerate(text) if character.isalnum()}
        assert visible <= covered
        # The tokens go through the text.
        starts = places[places[:, 0] < places[:, 1], 0].tolist()
        assert starts == sorted(starts)


def test_a_text_for_an_albert_keeps_the_places_of_its_characters() -> None:
    draw = random.Random(0)
    for _ in range(300):
        text = "".join(draw.choices([*TEXT, "``", "''", "'", "`", "é"], k=12))
        cleaned, begins, ends = lower_case.alberts_with_places(text)
        assert cleaned == lower_case.alberts(text)
        for character, begin, end in zip(cleaned, begins, ends, strict=True):
            assert character in lower_case.alberts(text[begin:end])
