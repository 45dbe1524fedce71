"""Tags of entities are the same entities in every scheme."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from t5x_like.core.tag_schemes import as_bio, mark_entities

Entities = list[tuple[str, int]]
"""Types and lengths in words; "O" is a word that belongs to none."""
SENTENCES = st.lists(st.tuples(st.sampled_from(["O", "PER", "A-B"]), st.integers(1, 4)), max_size=9)


def written(sentence: Entities, scheme: str) -> list[str]:
    tags: list[str] = []
    before = "O"
    for of_type, length in sentence:
        if of_type == "O":
            tags += ["O"] * length
        elif scheme == "IOB1":
            begins = "B" if before == of_type else "I"
            tags += [f"{part}-{of_type}" for part in [begins, *["I"] * (length - 1)]]
        else:
            first, inside, last, single = {"BIO": "BIIB", "BIOES": "BIES", "BILOU": "BILU"}[scheme]
            parts = [single] if length == 1 else [first, *[inside] * (length - 2), last]
            tags += [f"{part}-{of_type}" for part in parts]
        before = of_type
    return tags


@pytest.mark.parametrize("scheme", ["BIO", "IOB1", "BIOES", "BILOU"])
@given(sentence=SENTENCES)
def test_every_scheme_is_read_as_bio(scheme: str, sentence: Entities) -> None:
    assert as_bio(written(sentence, scheme)) == written(sentence, "BIO")


def test_parts_of_speech_are_no_entities() -> None:
    assert mark_entities(["O", "B-PER", "I-PER"])
    assert mark_entities(["I-PER", "B-LOC", "O"])
    assert not mark_entities(["NOUN", "VERB", "O"])
    assert not mark_entities(["S-CONJ", "NOUN"])
    assert not mark_entities(["O", "X-Y"])
