"""Makes a vocabulary of those pieces of another that a text uses, which it divides as before."""

from __future__ import annotations

import importlib
import itertools
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from t5x_like.core.protocols.data import Vocabulary
from t5x_like.vocabularies import files
from t5x_like.vocabularies.sentencepiece import SentencePieceVocabulary
from t5x_like.vocabularies.subwords import SubwordVocabulary

_TOGETHER = 1000
"""Sentences that are encoded at once."""
_PREFIX = "##"


def check(base: Vocabulary) -> None:
    """Raises ValueError unless pieces of the vocabulary can be left out."""
    if not isinstance(base, SentencePieceVocabulary | SubwordVocabulary):
        raise ValueError(f"only a vocabulary of pieces can be trimmed, not {base!r}")


def trim(base: Vocabulary, sentences: Sequence[str]) -> Vocabulary:
    """The vocabulary without the pieces that no sentence needs, in the same order.

    Special tokens, tokens that somebody has added, sentinels, bytes and the single characters of
    what is kept stay, so that other text of these characters can be written too.

    Args:
      base: a vocabulary of SentencePiece or of a `tokenizer.json`.
      sentences: the text.

    Raises:
      ValueError: the vocabulary is of another kind, or would divide the sentences otherwise.
    """
    check(base)
    used = {i for ids in _encoded(base, sentences) for i in ids}
    with tempfile.TemporaryDirectory() as folder:
        base.save(Path(folder))
        fields = base.to_json()
        if isinstance(base, SentencePieceVocabulary):
            file = Path(folder) / files.MODEL
            file.write_bytes(_model(file.read_bytes(), used))
            trimmed: Vocabulary = SentencePieceVocabulary(file, extra_ids=fields["extra_ids"])
        else:
            text = (Path(folder) / files.TOKENIZER).read_text(encoding="utf-8")
            roles = fields.get("roles")
            trimmed = SubwordVocabulary(_tokenizer(text, used), fields["extra_ids"], roles=roles)
    for ours, theirs in zip(_encoded(trimmed, sentences), _encoded(base, sentences), strict=True):
        if [trimmed.piece(i) for i in ours] != [base.piece(i) for i in theirs]:
            raise ValueError(f"{base!r} cannot be trimmed: it would divide the text otherwise")
    return trimmed


def _encoded(vocabulary: Vocabulary, sentences: Sequence[str]) -> Iterator[list[int]]:
    for first in range(0, len(sentences), _TOGETHER):
        for ids in vocabulary.encode_batch(sentences[first : first + _TOGETHER]):
            yield [*map(int, ids)]


def _model(content: bytes, used: set[int]) -> bytes:
    """A SentencePiece model of the pieces used, and of those that they need."""
    messages = _messages()
    model = messages.ModelProto()
    model.ParseFromString(content)
    normal = messages.ModelProto.SentencePiece.NORMAL
    kept = {model.pieces[i].piece for i in used if i < len(model.pieces)}
    if model.trainer_spec.model_type == messages.TrainerSpec.BPE:
        # The pair of the best score is joined first.
        ranks = {each.piece: -each.score for each in model.pieces if each.type == normal}
        kept |= {part for piece in kept for part in _joined(piece, lambda a, b: ranks.get(a + b))}
    kept |= {*"".join(kept)}
    chosen = [each for each in model.pieces if each.type != normal or each.piece in kept]
    del model.pieces[:]
    model.pieces.extend(chosen)
    model.trainer_spec.vocab_size = len(chosen)
    return bytes(model.SerializeToString())


def _messages() -> Any:
    """SentencePiece's own messages, for which the protobuf that Apache Beam asks for is too old.

    Raises:
      ValueError: it is.
    """
    try:
        return importlib.import_module("sentencepiece.sentencepiece_model_pb2")
    except Exception as error:  # protobuf's own class, which older releases lack
        raise ValueError(
            f"a SentencePiece model cannot be trimmed with the protobuf installed here: {error}"
        ) from error


def _tokenizer(text: str, used: set[int]) -> str:
    """A `tokenizer.json` of the tokens used, and of those that they need."""
    fields = json.loads(text)
    model = fields["model"]
    unigram = isinstance(model["vocab"], list)
    ids = {token: n for n, (token, _) in enumerate(model["vocab"])} if unigram else model["vocab"]
    added = {token["content"]: token["id"] for token in fields.get("added_tokens") or ()}
    tokens = {i: token for token, i in ids.items()}
    kept = {tokens[i] for i in used if i in tokens}
    if model.get("merges"):
        merges = [tuple(m.split(" ") if isinstance(m, str) else m) for m in model["merges"]]
        ranks = {pair: n for n, pair in enumerate(merges)}
        kept |= {part for token in kept for part in _joined(token, lambda a, b: ranks.get((a, b)))}
        kept |= {token for token in ids if len(token) == 1}  # bytes
        model["merges"] = [m for m in merges if {*m, "".join(m)} <= kept]
    singles = {*"".join(kept)}
    kept |= singles | {f"{_PREFIX}{character}" for character in singles}
    if model.get("unk_token"):
        kept.add(model["unk_token"])
    old = {**ids, **added}
    order = sorted((i, token) for token, i in old.items() if token in kept or token in added)
    if unigram and model.get("unk_id") is not None:
        order = sorted({*order, (model["unk_id"], tokens[model["unk_id"]])})
    new = {token: n for n, (_, token) in enumerate(order)}
    if unigram:
        model["unk_id"] = new.get(tokens.get(model.get("unk_id"), ""))
        model["vocab"] = [each for each in model["vocab"] if each[0] in new]
    else:
        model["vocab"] = {token: new[token] for token in ids if token in new}
    for token in fields.get("added_tokens") or ():
        token["id"] = new[token["content"]]
    fields["post_processor"] = _renumbered(fields.get("post_processor"), old, new)
    fields |= {"padding": None, "truncation": None}
    return json.dumps(fields, ensure_ascii=False, sort_keys=True)


def _joined(piece: str, rank: Callable[[str, str], Any]) -> Iterator[str]:
    """All pieces on the way from characters to a piece of BPE; `rank` of a pair, None for none."""
    parts = [*piece]
    while len(parts) > 1:
        pairs = [(rank(a, b), n) for n, (a, b) in enumerate(itertools.pairwise(parts))]
        best = min((pair for pair in pairs if pair[0] is not None), default=None)
        if best is None:
            return
        _, n = best
        parts[n : n + 2] = [parts[n] + parts[n + 1]]
        yield parts[n]


def _renumbered(step: Any, old: Mapping[str, int], new: Mapping[str, int]) -> Any:
    """A post-processor whose special tokens have their new ids."""
    match step:
        case {"type": "TemplateProcessing", "special_tokens": special}:
            changed = {
                name: {**token, "ids": [new[each] for each in token["tokens"]]}
                for name, token in special.items()
            }
            return {**step, "special_tokens": changed}
        case {"type": "BertProcessing" | "RobertaProcessing", "sep": sep, "cls": cls}:
            return {**step, "sep": [sep[0], new[sep[0]]], "cls": [cls[0], new[cls[0]]]}
        case {"type": "Sequence", "processors": steps}:
            return {**step, "processors": [_renumbered(each, old, new) for each in steps]}
        case _:
            return step
