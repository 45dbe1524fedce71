"""The `tokenizer.json` files of the `tokenizers` library: writes one, or changes one."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

from t5x_like.vocabularies import special_tokens

_WORDS = "WhitespaceSplit"


def describe(
    model: Mapping[str, Any], vocab: Mapping[str, int], **steps: Mapping[str, Any] | None
) -> str:
    """The text of a `tokenizer.json`.

    Args:
      model: its fields without the vocabulary.
      vocab: tokens and their ids; tokens with a special token's name are marked as special.
      **steps: `normalizer`, `pre_tokenizer` and `decoder`.
    """
    added: list[dict[str, Any]] = [
        {"id": i, "content": token, "special": True, "normalized": False}
        | dict.fromkeys(("single_word", "lstrip", "rstrip"), False)
        for token, i in vocab.items()
        if special_tokens.is_special(token)
    ]
    fields = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": sorted(added, key=lambda token: token["id"]),
        "post_processor": None,
        **steps,
        "model": {**model, "vocab": dict(vocab)},
    }
    return json.dumps(fields, ensure_ascii=False, sort_keys=True)


def with_words(text: str, added: Mapping[str, int]) -> str:
    """The text of a WordPiece `tokenizer.json` with more tokens, {token: id}."""
    fields = json.loads(text)
    fields["model"]["vocab"] |= added
    return json.dumps(fields, ensure_ascii=False, sort_keys=True)


def with_text(text: str, ordinary: Collection[str]) -> str:
    """The same tokenizer, for which these special tokens are ordinary ones, found in text."""
    fields = json.loads(text)
    for token in fields.get("added_tokens") or ():
        if token["content"] in ordinary:
            token["special"] = False
    return json.dumps(fields, ensure_ascii=False)


def continuing(text: str) -> str | None:
    """The same tokenizer, for text that continues a line: it puts nothing before it.

    None where this one puts nothing before a text.
    """
    fields = json.loads(text)
    changed = {name: _without_prefix(fields.get(name)) for name in ("normalizer", "pre_tokenizer")}
    if all(changed[name] == fields.get(name) for name in changed):
        return None
    if _WORDS in json.dumps(fields.get("pre_tokenizer")):
        # Each word, not the text alone, had the space put before it.
        one_space = {"type": "Replace", "pattern": {"Regex": r"\s+"}, "content": " "}
        ends = {"type": "Strip", "strip_left": True, "strip_right": True}
        before = [changed["normalizer"]] if changed["normalizer"] else []
        steps = [*before, one_space, ends]
        changed["normalizer"] = {"type": "Sequence", "normalizers": steps}
    return json.dumps(fields | changed, ensure_ascii=False)


def _without_prefix(step: Any) -> Any:
    """A normalizer or pre-tokenizer that puts no space before a text; None where nothing is left.

    Words are then divided at the marked spaces, not before.
    """
    match step:
        case {"type": "Metaspace"}:
            rest = {name: value for name, value in step.items() if name != "add_prefix_space"}
            return {**rest, "prepend_scheme": "never"}
        case {"type": "ByteLevel"}:
            return {**step, "add_prefix_space": False}
        case {"type": "Prepend"}:
            return None
        case {"type": "Sequence"}:
            name = "normalizers" if "normalizers" in step else "pretokenizers"
            steps = [part for part in map(_without_prefix, step[name]) if part]
            marked = any(part["type"] == "Metaspace" for part in steps)
            parts = [part for part in steps if not (marked and part["type"] == _WORDS)]
            return {**step, name: parts}
        case _:
            return step
