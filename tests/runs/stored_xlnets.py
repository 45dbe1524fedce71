"""Small XLNets in directories like those of an import."""

from __future__ import annotations

import functools
from pathlib import Path

from flax import nnx

from t5x_like.models import xlnet
from t5x_like.runs import saved_model
from t5x_like.vocabularies.learning.subword_training import train_wordpiece


def write_untrained(directory: Path, text: str, *, vocab_size: int) -> Path:
    """Writes an XLNet of one layer, as it is initialised, with a vocabulary of a text."""
    vocabulary = train_wordpiece(
        [text] * 3, size=vocab_size, extra_ids=0, character_coverage=1.0, lowercase=True
    )
    sizes = {"d_model": 32, "d_ff": 64, "num_heads": 2, "num_layers": 1, "init_std": 0.1}
    still = {"dropout_rate": 0.0, "attention_dropout_rate": 0.0}
    config = xlnet.Config(vocab_size=vocabulary.vocab_size, **sizes, **still)
    make = functools.partial(xlnet.XLNet, config)
    params = nnx.to_pure_dict(nnx.state(make(rngs=nnx.Rngs(0)), nnx.Param))
    saved_model.write(str(directory), make, params, title="a", vocabulary=vocabulary, files=())
    return directory
