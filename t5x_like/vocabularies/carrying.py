"""The ids of one vocabulary that stand for an id of another, whose rows a table carries over."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from t5x_like.core.protocols.data import GoesOn, TokenIds, Vocabulary
from t5x_like.vocabularies.special_tokens import ROLES
from t5x_like.vocabularies.subwords import SubwordVocabulary
from t5x_like.vocabularies.text import pieces

_BYTE = re.compile(r"<0x[0-9A-F]{2}>")


def carried(new: Vocabulary, old: Vocabulary, ids: Iterable[int]) -> dict[int, list[int]]:
    """The old ids whose meaning together is that of a new id.

    A special token stands for that of the same role or name, a sentinel for that of the same
    number, a piece for the same piece, or else for the pieces that the old vocabulary writes its
    text with.

    Args:
      new: the vocabulary of ids.
      old: the other one.
      ids: the new ids that are asked for.

    Returns:
      {new id: old ids}; ids without any are left out: special tokens that the old vocabulary lacks,
      and texts of which it knows nothing.
    """
    of_role = _special(new.token_ids, old.token_ids)
    not_text = {*_roles(new.token_ids).values(), *_sentinels(new.token_ids)}
    named = {*new.token_ids.named.values()}
    special = {*old.token_ids.special, *_sentinels(old.token_ids)}
    same = {old.piece(i): i for i in reversed(range(old.vocab_size)) if i not in special}
    cut = isinstance(old, SubwordVocabulary) and old.is_wordpiece
    origins: dict[int, list[int]] = {}
    texts: dict[int, str] = {}
    for i in ids:
        piece = new.piece(i)
        if i in of_role:
            origins[i] = [of_role[i]]
        elif i in not_text:
            continue
        elif piece in same:
            origins[i] = [same[piece]]
        elif i in named:
            texts[i] = f" {piece}"
        elif cut and piece[:1] != pieces.SPACE:
            origins[i] = _longest_matches(piece, same)
        elif not _BYTE.search(piece):
            texts[i] = piece.replace(pieces.SPACE, " ")
    for i, written in zip(texts, _written(old, [*texts.values()]), strict=True):
        origins[i] = [part for part in written if part not in special]
    return {i: origins[i] for i in sorted(origins) if origins[i]}


def _special(new: TokenIds, old: TokenIds) -> dict[int, int]:
    """{special id: the old one of the same role, name or number}."""
    named = {i: old.named[name] for name, i in new.named.items() if name in old.named}
    numbered = dict(zip(_sentinels(new), _sentinels(old), strict=False))
    of_old = _roles(old)
    roles = {i: of_old[role] for role, i in _roles(new).items() if role in of_old}
    return numbered | named | roles


def _roles(ids: TokenIds) -> dict[str, int]:
    """{role: its special id}."""
    return {role: i for role in ROLES if (i := getattr(ids, role)) is not None}


def _sentinels(ids: TokenIds) -> list[int]:
    return [ids.sentinel(k) for k in range(ids.sentinels or 0)]


def _longest_matches(piece: str, same: Mapping[str, int]) -> list[int]:
    """The ids of a part of a word, as WordPiece writes it; none where it cannot."""
    ids: list[int] = []
    while piece:
        ends = (end for end in range(len(piece), 0, -1) if piece[:end] in same)
        end = next(ends, 0)
        if not end:
            return []
        ids.append(same[piece[:end]])
        piece = piece[end:]
    return ids


def _written(old: Vocabulary, texts: Sequence[str]) -> list[list[int]]:
    """The old ids of each text, which begins a word if it begins with a space."""
    following = old.encode_following if isinstance(old, GoesOn) else old.encode_batch
    begin = iter(old.encode_batch([text for text in texts if text[:1] == " "]))
    go_on = iter(following([text for text in texts if text[:1] != " "]))
    return [[*map(int, next(begin if text[:1] == " " else go_on))] for text in texts]
