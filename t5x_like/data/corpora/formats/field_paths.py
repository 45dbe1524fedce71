"""Fields of rows that are a part of a list: `choices[0]` is the first text of `choices`."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from typing import Any

_PART = re.compile(r"(.+)\[(\d+)\]")


def base(field: str, present: Collection[str]) -> str:
    """The field itself where a row has it, else the list that it is a part of."""
    match = None if field in present else _PART.fullmatch(field)
    return match[1] if match else field


def cell(row: Mapping[str, Any], field: str) -> Any:
    """The cell of a field, or the part of a list; None where the list is shorter.

    A list is written as JSON where a cell is a text, as in a table.

    Raises:
      ValueError: there is no list.
    """
    if field in row:
        return row[field]
    match = _PART.fullmatch(field)
    assert match is not None
    whole = row[match[1]]
    parts = json.loads(whole) if isinstance(whole, str) else whole
    if not isinstance(parts, list):
        raise ValueError(f"{whole!r:.60} is not a list")
    place = int(match[2])
    return parts[place] if place < len(parts) else None
