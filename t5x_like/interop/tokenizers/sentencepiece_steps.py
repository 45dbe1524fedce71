"""The steps of a `tokenizer.json` that treat text as a SentencePiece model does.

The ids are SentencePiece's except for two kinds of text. Text that a unigram model can cut in
several ways of equal score, such as a long row of dashes, may be cut in another of these ways:
SentencePiece adds up scores in single precision, the `tokenizers` library in double. A letter with
several accents, which Unicode has no single letter for, may be composed differently.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

from t5x_like.interop.tokenizers.sentencepiece_model import Algorithm, Model, Type
from t5x_like.vocabularies.text.pieces import SPACE

_ALBERTS = (
    {"type": "Replace", "pattern": {"String": "``"}, "content": '"'},
    {"type": "Replace", "pattern": {"String": "''"}, "content": '"'},
    {"type": "NFKD"},
    {"type": "StripAccents"},
    {"type": "Lowercase"},
)


def describe(model: Model, names: Sequence[str], *, clean: bool) -> dict[str, Any]:
    """`normalizer`, `pre_tokenizer`, `decoder` and `model` of a `tokenizer.json`.

    Args:
      model: the `.model` file.
      names: all ids' names, the model's pieces first; the others are sentinels.
      clean: whether text is cleaned up first, as for ALBERT.

    Raises:
      ValueError: the `tokenizers` library cannot do what the model does.
    """
    types = {piece.type for piece in model.pieces}
    describe_model = {Algorithm.UNIGRAM: _unigram, Algorithm.BPE: _bpe}.get(model.algorithm)
    if (
        describe_model is None
        or model.space_after
        or Type.UNUSED in types
        or (describe_model is _bpe and Type.USER_DEFINED in types)
    ):
        raise ValueError(
            "a tokenizer.json cannot express what this SentencePiece model does: it is "
            f"{model.algorithm.name.lower()}, with pieces of the types "
            f"{', '.join(sorted(kind.name.lower() for kind in types))}"
            f"{' and the space after a word' * model.space_after}"
        )
    space = {
        "type": "Metaspace",
        "replacement": SPACE,
        "prepend_scheme": _where_space_is_put(model, clean),
        "split": False,
    }
    bytes_first = [{"type": "ByteFallback"}] * model.byte_fallback
    return {
        "normalizer": {"type": "Sequence", "normalizers": _normalizers(model, clean)},
        "pre_tokenizer": space,
        "decoder": {"type": "Sequence", "decoders": [*bytes_first, space]},
        "model": {**describe_model(model, names), "byte_fallback": model.byte_fallback},
    }


def _where_space_is_put(model: Model, clean: bool) -> str:
    """Before the whole text, so that text after a sentinel without a space continues a word.

    Cleaned text has a space after special tokens, too: where quotes at its start were replaced,
    the library no longer sees the start. ALBERT's models have no sentinels.
    """
    if not model.space_first:
        return "never"
    return "always" if clean else "first"


def _normalizers(model: Model, clean: bool) -> list[dict[str, Any]]:
    steps: list[dict[str, Any]] = list(_ALBERTS) if clean else []
    if model.characters:
        table = base64.b64encode(model.characters).decode()
        steps.append({"type": "Precompiled", "precompiled_charsmap": table})
    if model.fewer_spaces:
        # The one space that is left at a text's start is the one that is put there.
        for pattern, content in ((r" +\z", ""), (" {2,}", " ")):
            steps.append({"type": "Replace", "pattern": {"Regex": pattern}, "content": content})
    return steps


def _unigram(model: Model, names: Sequence[str]) -> dict[str, Any]:
    best = max((piece.score for piece in model.pieces if piece.type == Type.NORMAL), default=0.0)
    vocab: list[list[Any]] = [[name, 0.0] for name in names]
    for entry, piece in zip(vocab, model.pieces, strict=False):
        if piece.type == Type.USER_DEFINED:
            # SentencePiece's rule: no cut into other pieces is better.
            entry[1] = len(piece.text.encode()) * best - 0.1
        else:
            entry[1] = piece.score
    return {"type": "Unigram", "unk_id": _unknown(model), "vocab": vocab}


def _bpe(model: Model, names: Sequence[str]) -> dict[str, Any]:
    scores = {piece.text: piece.score for piece in model.pieces if piece.type == Type.NORMAL}
    merges = [
        [text[:cut], text[cut:]]
        for text in sorted(scores, key=lambda text: -scores[text])
        for cut in range(1, len(text))
        if text[:cut] in scores and text[cut:] in scores
    ]
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": names[_unknown(model)],
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": True,
        "ignore_merges": False,
        "vocab": {name: i for i, name in enumerate(names)},
        "merges": merges,
    }


def _unknown(model: Model) -> int:
    return next(i for i, piece in enumerate(model.pieces) if piece.type == Type.UNKNOWN)
