"""Tags of words that mark entities: BIO, IOB1, BIOES and BILOU, and all of them as BIO."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

OUTSIDE = "O"
"""The tag of words that belong to no entity."""
_PARTS = {"B": "B", "I": "I", "E": "I", "L": "I", "S": "B", "U": "B"}


def mark_entities(names: Iterable[str]) -> bool:
    """Whether names of tags mark parts of entities, as B-LOC does, and not parts of speech."""
    known = {*names}
    prefixes = {name.partition("-")[0] for name in known - {OUTSIDE} if "-" in name[:-1]}
    all_marked = all(name == OUTSIDE or name[1:2] == "-" for name in known)
    return all_marked and bool(prefixes & {"B", "I"}) and prefixes <= {*_PARTS}


def as_bio(tags: Sequence[str]) -> list[str]:
    """The tags of a sentence as BIO: each entity begins with B and goes on with I.

    In IOB1 an entity begins with I, unless it follows another of its type. BIOES and BILOU also
    mark its last word (E, L) and entities of a single word (S, U).
    """
    converted = []
    before = OUTSIDE
    for tag in tags:
        part, _, of_type = tag.partition("-")
        if tag == OUTSIDE:
            converted.append(tag)
            before = OUTSIDE
            continue
        begins = _PARTS[part] == "B" or before != of_type
        converted.append(f"{'B' if begins else 'I'}-{of_type}")
        before = OUTSIDE if part in ("E", "L", "S", "U") else of_type
    return converted
