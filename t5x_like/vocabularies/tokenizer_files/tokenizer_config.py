"""`tokenizer_config.json`, and what of it changes the ids of a text."""

from __future__ import annotations

import json
import reprlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from t5x_like.core import whole_files
from t5x_like.vocabularies import special_tokens

NAME = "tokenizer_config.json"
_MAP = "special_tokens_map.json"

_OF_BERT = {
    "do_lower_case": "lowercase",
    "strip_accents": "strip_accents",
    "tokenize_chinese_chars": "handle_chinese_chars",
}
"""Settings of BERT's tokenizers, and their names in a `BertNormalizer`."""
_LENT = ("bos", "eos", "unk")
_READ = frozenset(
    [
        *_OF_BERT,
        *(f"{role}_token" for role in special_tokens.ROLES),
        *("additional_special_tokens", "extra_special_tokens", "added_tokens_decoder"),
        *("extra_ids", "tokenizer_class"),
    ]
)
_OF_NO_ID = frozenset(
    "add_bos_token add_eos_token add_prefix_space auto_map backend "
    "chat_template clean_up_tokenization_spaces errors from_slow is_local keep_accents legacy "
    "legacy_behaviour local_files_only max_len max_length model_input_names "
    "model_max_length name_or_path pad_to_multiple_of "
    "pad_token_type_id padding_side processor_class remove_space sp_model_kwargs "
    "special_tokens_map_file src_lang stride tgt_lang tokenizer_file transformers_version "
    "trim_offsets truncation_side truncation_strategy unk_id use_fast vocab_file vocab_size".split()
)
"""Settings that say what is put around a text, or repeat what the other files say."""


def read(directory: Path) -> dict[str, Any]:
    """The settings; empty where the directory has no such file.

    Raises:
      ValueError: the file is damaged.
    """
    path = directory / NAME
    return whole_files.read_json(path) if path.is_file() else {}


def unread(directory: Path) -> list[str]:
    """The settings, with their values, that no reader of ours knows and that say something."""
    settings = read(directory).items()
    return [
        f"{name}: {reprlib.repr(value)}"
        for name, value in sorted(settings)
        if name not in _READ | _OF_NO_ID and value not in (None, False, [], {}, "")
    ]


def roles(directory: Path) -> dict[str, str]:
    """The tokens of roles: fields of `TokenIds`, and the texts of tokens.

    The beginning, the end and the unknown token are left out where their token is published in
    another role, such as ALBERT's [CLS] as a beginning.

    Raises:
      ValueError: a file is damaged.
    """
    named: dict[str, Any] = {}
    for name in (_MAP, NAME):
        if (directory / name).is_file():
            named |= whole_files.read_json(directory / name)
    token_of = {}
    for role, names in special_tokens.ROLES.items():
        token = named.get(f"{role}_token")
        token = token.get("content") if isinstance(token, Mapping) else token
        lent = role in _LENT and isinstance(token, str) and special_tokens.is_special(token)
        if isinstance(token, str) and (token in names or not lent):
            token_of[role] = token
    return token_of


def of_bert(directory: Path) -> dict[str, bool | None]:
    """The fields of a `BertNormalizer` that the settings name.

    Raises:
      ValueError: one of them is neither true, false nor null; or words are not divided at all.
    """
    settings, path = read(directory), directory / NAME
    if settings.get("do_basic_tokenize") is False:
        raise ValueError(
            f"{path} has do_basic_tokenize false: text would not be divided into words"
        )
    fields = {}
    for name, field in _OF_BERT.items():
        value = settings.get(name)
        if value not in (None, True, False):
            raise ValueError(f"{path} has {name} {reprlib.repr(value)}")
        if value is not None:
            fields[field] = value
    return fields


def check(directory: Path, text: str) -> None:
    """Checks that the settings say nothing else than the `tokenizer.json` with this text.

    Raises:
      ValueError: they do; names both.
    """
    fields = of_bert(directory)
    normalizer = _berts(json.loads(text).get("normalizer"))
    if normalizer is None:
        return
    for name, field in _OF_BERT.items():
        if field in fields and normalizer.get(field) not in (None, fields[field]):
            raise ValueError(
                f"{directory / NAME} has {name} {str(fields[field]).lower()}, the tokenizer.json "
                f"beside it {field} {str(normalizer[field]).lower()}: make both say the same"
            )


def _berts(normalizer: Any) -> Mapping[str, Any] | None:
    match normalizer:
        case {"type": "BertNormalizer"}:
            return dict(normalizer)
        case {"type": "Sequence", "normalizers": [*steps]}:
            return next(
                (part for part in map(_berts, steps) if part),
                None,
            )
        case _:
            return None
