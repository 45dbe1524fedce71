"""Small GPTs in directories like those of an import."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from flax import nnx

from t5x_like.models import gpt
from t5x_like.runs import saved_model
from t5x_like.vocabularies.learning.subword_training import train_byte_bpe


def write_untrained(directory: Path, text: str, **changes: Any) -> Path:
    """Writes a GPT-2 of one layer, as it is initialised, with a vocabulary of a text."""
    vocabulary = train_byte_bpe([text] * 3, size=330, extra_ids=0)
    sizes = {"d_model": 32, "d_ff": 128, "num_heads": 2, "num_layers": 1, "max_positions": 64}
    config = gpt.Config(vocab_size=vocabulary.vocab_size, **sizes, init_std=0.1, **changes)
    make = functools.partial(gpt.Gpt, config)
    params = nnx.to_pure_dict(nnx.state(make(rngs=nnx.Rngs(0)), nnx.Param))
    saved_model.write(str(directory), make, params, title="a", vocabulary=vocabulary, files=())
    return directory
