"""Special tokens by name: what each published family calls them, and those of ours."""

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
"""Fields of `TokenIds`, and the names a vocabulary may have for each; the first found counts."""

NAMED = ("[R]", "[S]", "[X]", "<eod>", "<eop>")
"""Special tokens without a field of their own: UL2's modes, XLNet's ends."""

TRAINED = ("<pad>", "</s>", "<unk>", "[CLS]", "[SEP]", "[MASK]", "[R]", "[S]", "[X]", "<eod>")
"""The first ids of every vocabulary trained here: one cache serves every objective."""

_NAMES = frozenset(NAMED).union(*ROLES.values())


def is_special(token: str) -> bool:
    """Whether a vocabulary that holds this very token means it as a special one."""
    return token in _NAMES


def by_role(ids: Mapping[str, int]) -> dict[str, Any]:
    """A field of `TokenIds` to the id of its token, None where there is no such token.

    Args:
      ids: special tokens of a vocabulary.
    """
    found = {
        role: next((ids[name] for name in names if name in ids), None)
        for role, names in ROLES.items()
    }
    if found["mask"] is not None and found["cls"] is None and found["sep"] is None:
        # RoBERTa and BART begin and end an encoder's text with these.
        found["cls"], found["sep"] = found["bos"], found["eos"]
    return found


def named(ids: Mapping[str, int], roles: Mapping[str, Any]) -> dict[str, int]:
    """The special tokens that have none of the roles, by their text."""
    return {name: i for name, i in ids.items() if i not in roles.values()}
