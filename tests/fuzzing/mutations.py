"""Damage: bytes that are flipped, cut, moved, doubled; JSON with other values; names misspelt."""

from __future__ import annotations

import copy
import json
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hypothesis import strategies as st

Files = Mapping[str, bytes]
Draw = Callable[[st.SearchStrategy], Any]

_NUMBERS = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 2**63 - 1, 2**64 - 1)
_VALUES = (
    *(None, True, False, 0, 1, -1, 2, 1.5, 1e-400, 1e400, float("nan"), 255, 65_536, 2**31 - 1),
    *(2**31, 2**53, 10**12, 2**63, 10**30, -(10**12), "", "x", "1", "../x", "/etc/passwd", "\0"),
    *("\ud800", "é" * 50, "x" * 100_000, [], [1], [[]], {}, {"x": 1}, [None, "x", {}]),
)
_DEEP = 20_000


def of_bytes(draw: Draw, content: bytes, *, others: Sequence[bytes] = ()) -> bytes:
    """One to three changes of `content`; parts of `others` may come into it."""
    kinds = (
        "flip",
        "flip",
        "cut",
        "drop",
        "double",
        "number",
        "insert",
        *["splice"] * bool(others),
    )
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, max(len(content) - 1, 0)))
        size = min(draw(st.sampled_from([1, 2, 4, 8, 60, 1000, 1 << 20])), len(content) - at)
        match draw(st.sampled_from(kinds)):
            case "flip" if content:
                changed = content[at] ^ (1 << draw(st.integers(0, 7)))
                content = content[:at] + bytes([changed]) + content[at + 1 :]
            case "cut":
                content = content[:at]
            case "drop":
                content = content[:at] + content[at + size :]
            case "double":
                content = content[: at + size] + content[at:]
            case "number":
                number = draw(st.sampled_from(_NUMBERS))
                width = draw(st.sampled_from([1, 2, 4, 8]))
                packed = struct.pack(draw(st.sampled_from("<>")) + "Q", number)
                packed = packed[:width] if packed[0] else packed[-width:]
                content = content[:at] + packed + content[at + width :]
            case "insert":
                content = content[:at] + draw(st.binary(max_size=20)) + content[at:]
            case "splice":
                other = draw(st.sampled_from(list(others)))
                start = draw(st.integers(0, max(len(other) - 1, 0)))
                content = content[:at] + other[start : start + size] + content[at + size :]
    return content


def of_text(draw: Draw, content: bytes) -> bytes:
    """One to three changes of lines and words, or of bytes."""
    if draw(st.integers(0, 3)) == 0:
        return of_bytes(draw, content)
    lines = content.decode(errors="surrogateescape").split("\n")
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(lines) - 1))
        match draw(st.sampled_from(["drop", "double", "swap", "word", "word", "character"])):
            case "drop" if len(lines) > 1:
                del lines[at]
            case "double":
                lines.insert(draw(st.integers(0, len(lines))), lines[at])
            case "swap":
                other = draw(st.integers(0, len(lines) - 1))
                lines[at], lines[other] = lines[other], lines[at]
            case "word" if lines[at].split():
                word = draw(st.sampled_from(lines[at].split()))
                value = draw(st.sampled_from(_VALUES))
                new = draw(st.sampled_from([repr(value), str(value), word[1:], word + "x", "@x()"]))
                lines[at] = lines[at].replace(word, new, 1)
            case "character" if lines[at]:
                place = draw(st.integers(0, len(lines[at]) - 1))
                new = draw(
                    st.sampled_from(["", "'", '"', "[", ")", "%", "@", "=", "/", ".", "\\", "é"])
                )
                lines[at] = lines[at][:place] + new + lines[at][place + 1 :]
    return "\n".join(lines).encode(errors="surrogatepass")


def of_value(draw: Draw, value: Any) -> Any:
    """A JSON value with one to three other values, other names, or without some."""
    root = [copy.deepcopy(value)]
    for _ in range(draw(st.integers(1, 3))):
        places = list(_places(root))
        node, name = draw(st.sampled_from(places))
        match draw(st.sampled_from(["other", "other", "other", "drop", "rename", "move", "add"])):
            case "other":
                node[name] = copy.deepcopy(draw(st.sampled_from(_VALUES)))
            case "drop" if node is not root:
                del node[name]
            case "rename" if isinstance(node, dict):
                node[draw(st.sampled_from(["", "x", f"{name}s", *node]))] = node.pop(name)
            case "move":
                other, its_name = draw(st.sampled_from(places))
                node[name] = copy.deepcopy(other[its_name])
            case "add" if isinstance(node, list) and node is not root:
                node.append(copy.deepcopy(node[name]))
    return root[0]


def _places(node: Any) -> Any:
    """The containers and names of all values in nested JSON."""
    for name in [*node] if isinstance(node, dict) else range(len(node)):
        yield node, name
        if isinstance(node[name], dict | list):
            yield from _places(node[name])


def of_json(draw: Draw, content: bytes) -> bytes:
    """JSON with other values; now and then nested deeply, or damaged like any file."""
    match draw(st.integers(0, 9)):
        case 0:
            return of_bytes(draw, content)
        case 1:
            opening, closing = draw(st.sampled_from([("[", "]"), ('{"x":', "}")]))
            deep = opening * _DEEP + "1" + closing * _DEEP * draw(st.integers(0, 1))
            at = content.find(b":") + 1
            return deep.encode() if draw(st.booleans()) else content[:at] + deep.encode() + b"}"
    changed = of_value(draw, json.loads(content))
    return json.dumps(changed).encode()


def one_of(
    draw: Draw, files: Files, change: Callable[[Draw, bytes], bytes], names: Sequence[str]
) -> Files:
    """The files, one of `names` changed or, now and then, missing."""
    name = draw(st.sampled_from(sorted(names)))
    if draw(st.integers(0, 20)) == 0:
        return {other: content for other, content in files.items() if other != name}
    return {**files, name: change(draw, files[name])}
