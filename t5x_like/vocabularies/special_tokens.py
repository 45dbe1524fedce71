"""Special tokens by name: those of each published family, and ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

ROLES: dict[str, tuple[str, ...]] = {
    "pad": ("<pad>", "[PAD]"),
    "eos": ("</s>", "<|endoftext|>"),
    "unk": ("<unk>", "[UNK]"),
    "bos": ("<s>", "<|endoftext|>"),
    "cls": ("[CLS]", "<cls>"),
    "sep": ("[SEP]", "<sep>"),
    "mask": ("[MASK]", "<mask>"),
}
"""Fields of `TokenIds`, and the possible names of each token; the first that is found counts."""

NAMED = ("[R]", "[S]", "[X]", "<eod>", "<eop>")
"""Special tokens without their own field: UL2's modes, XLNet's ends."""

TRAINED = ("<pad>", "</s>", "<unk>", "[CLS]", "[SEP]", "[MASK]", "[R]", "[S]", "[X]", "<eod>")
"""The first ids of every vocabulary trained here: one cache serves every objective."""

_NAMES = frozenset(NAMED).union(*ROLES.values())


def is_special(token: str) -> bool:
    """Whether a vocabulary that holds exactly this token uses it as a special one."""
    return token in _NAMES


def by_role(ids: Mapping[str, int], own: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Maps fields of `TokenIds` to their tokens' ids; None where there is no such token.

    Args:
      ids: a vocabulary's special tokens.
      own: the tokens of roles for which the vocabulary has names of its own.
    """
    id_of = {
        role: next((ids[name] for name in names if name in ids), None)
        for role, names in ROLES.items()
    } | {role: ids[name] for role, name in (own or {}).items()}
    if id_of["mask"] is not None and id_of["cls"] is None and id_of["sep"] is None:
        # RoBERTa and BART begin and end an encoder's text with these.
        id_of["cls"], id_of["sep"] = id_of["bos"], id_of["eos"]
    return id_of


def additional_ids(ids: Mapping[str, int], roles: Mapping[str, Any]) -> dict[str, int]:
    """The special tokens without any of the roles, by their text."""
    return {name: i for name, i in ids.items() if i not in roles.values()}
