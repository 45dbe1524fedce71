"""The `tokenizer.json` files of the `tokenizers` library: writes one, or tells its kind."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from t5x_like.vocabularies import special_tokens


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


def continuing_prefix(text: str, origin: str | Path) -> str | None:
    """WordPiece's mark of a token that continues a word; None for byte-level BPE.

    Raises:
      ValueError: the text is not a `tokenizer.json`, or is of another kind; names `origin`.
    """
    try:
        fields = json.loads(text)
        model = fields["model"]
        # Older files do not name their model's kind.
        kind = model.get("type") or ("BPE" if "merges" in model else None)
        prefix = str(model["continuing_subword_prefix"]) if kind == "WordPiece" else None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(
            f"{origin} is not a tokenizer.json; for vocab.json give the directory with merges.txt "
            "that it lies in"
        ) from error
    if prefix is not None:
        return prefix
    if kind == "BPE" and '"ByteLevel"' in json.dumps(
        [fields.get("pre_tokenizer"), fields.get("decoder")]
    ):
        return None
    raise ValueError(
        f"{origin} holds neither WordPiece nor byte-level BPE, the kinds of tokenizer.json that "
        "are read: if it was made from a SentencePiece model, give the .model file"
    )
