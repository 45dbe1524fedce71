"""Adds tokens to a vocabulary, as `add_tokens` of Hugging Face's tokenizers does."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

from t5x_like.core.buckets import storage
from t5x_like.core.protocols.data import Vocabulary
from t5x_like.interop.tokenizers import kinds
from t5x_like.vocabularies.subwords import SubwordVocabulary


def read(file: str) -> list[str]:
    """The tokens of a text file, one a line; spaces around them and empty lines do not count.

    Raises:
      OSError: it cannot be read.
      ValueError: it holds no token, one twice, or is not text in UTF-8.
    """
    try:
        text = storage.path(file).read_bytes().decode()
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{file}, the file of tokens to add, does not exist") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{file}, the file of tokens to add, is not text in UTF-8") from error
    tokens = [line.strip() for line in text.splitlines() if line.strip()]
    if not tokens:
        raise ValueError(f"{file} holds no token to add: write one a line")
    if twice := [token for n, token in enumerate(tokens) if token in tokens[:n]]:
        raise ValueError(f"{file} has {twice[0]!r} twice")
    return tokens


def with_tokens(base: Vocabulary, tokens: Sequence[str]) -> Vocabulary:
    """The vocabulary with tokens that text finds before all others, as new ids after the old ones.

    Those that it writes with one id already are left out. The old ids keep their meanings.

    Args:
      base: a vocabulary of text.
      tokens: the new tokens.

    Raises:
      ValueError: it has no text, or the tokenizer that results would change old ids.
    """
    unknown = base.token_ids.unk
    new = [token for token in tokens if len(ids := base.encode(token)) != 1 or ids[0] == unknown]
    if not new:
        return base
    with tempfile.TemporaryDirectory() as folder:
        base.save(Path(folder))
        fields = kinds.describe(base, Path(folder))
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "special"), False)
    fields["added_tokens"] += [
        {"id": base.vocab_size + n, "content": token, "normalized": True, **flags}
        for n, token in enumerate(new)
    ]
    roles = base.to_json().get("roles")
    extended = SubwordVocabulary(json.dumps(fields, ensure_ascii=False), roles=roles)
    moved = [i for i in range(base.vocab_size) if extended.piece(i) != base.piece(i)]
    if moved or extended.vocab_size != base.vocab_size + len(new):
        why = f"id {moved[0]} would have another meaning" if moved else "ids would be left out"
        raise ValueError(f"tokens cannot be added to {base!r}: {why}")
    return extended
