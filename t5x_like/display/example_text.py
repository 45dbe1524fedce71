"""Examples as text for a terminal, in colour or with marks."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence

from t5x_like.display.example_view import ExampleView, Token

_COLOURS = {
    "special": "2",
    "masked": "1;37;41",
    "replaced": "1;30;43",
    "kept": "1;4;32",
    "target": "1;36",
    "context": "2",
} | {f"sentinel{k}": f"1;{code}" for k, code in enumerate((31, 32, 33, 34, 35, 36))}
_MARKS = {"replaced": ("{", "}"), "kept": ("=", "="), "target": ("[", "]")}

LEGEND = "{replaced by a random token}  =kept as it is, and predicted=  [predicted]"
"""The meaning of the marks, which take the place of colour."""


def render(example: ExampleView, *, colour: bool, width: int = 100) -> str:
    """The text of an example: its lines under their names, then its numbers."""
    parts = []
    for name, tokens in example.lines.items():
        parts.append(f"  {name}")
        lines = _wrapped(tokens, colour=colour, width=width - 4)
        parts += [f"    {line}".rstrip() for line in lines]
    for name, value in example.numbers.items():
        head = f"  {name}: "
        parts.append(textwrap.fill(head + value, width, subsequent_indent=" " * len(head)))
    return "\n".join(parts)


def _wrapped(tokens: Sequence[Token], *, colour: bool, width: int) -> list[str]:
    lines, line, used = [], "", 0
    for token in tokens:
        text = re.sub(r"\s", " ", token.text)
        shown = text if colour else _marked(text, token.role)
        if used + len(shown) > width and used:
            lines.append(line)
            line, used = "", 0
        if not used:
            shown = shown.lstrip(" ")
        elif line.endswith(" ") and shown.startswith(" "):
            shown = shown[1:]
        used += len(shown)
        line += _coloured(shown, token.role) if colour else shown
    return [*lines, line]


def _marked(text: str, role: str) -> str:
    if role not in _MARKS:
        return text
    opening, closing = _MARKS[role]
    body = text.strip(" ")
    return text.replace(body, f"{opening}{body}{closing}", 1) if body else text


def _coloured(text: str, role: str) -> str:
    code = _COLOURS.get(role)
    body = text.strip(" ")
    if code is None or not body:
        return text
    return text.replace(body, f"\x1b[{code}m{body}\x1b[0m", 1)
