"""Words among which names are entities, with their tags, in files of labels."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from small_reviews import NAMES

WORDS = ["sings", "and", "walks", "there", "singing", "walker"]
TEXT = " ".join([*NAMES, *WORDS])


def tagged(words: Sequence[str]) -> dict[str, Any]:
    """A text whose names are people."""
    return {"words": [*words], "tags": ["B-PER" if word in NAMES else "O" for word in words]}


def write_lines(path: Path, lines: Sequence[Mapping[str, Any]]) -> str:
    """Writes a .jsonl file; returns its name."""
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)
