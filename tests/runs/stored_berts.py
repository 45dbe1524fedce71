"""Small BERTs in directories like those of an import, and batches for them."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from t5x_like.core.global_batches import process_rows, to_global
from t5x_like.core.partitioning import Layout
from t5x_like.core.protocols.data import Vocabulary
from t5x_like.models import bert, distilbert
from t5x_like.runs import saved_model
from t5x_like.training import step
from t5x_like.training.optimization import optimizers
from t5x_like.vocabularies.learning.subword_training import train_wordpiece

ROWS, LENGTH, VOCAB = 8, 12, 50
SIZES = {
    "vocab_size": VOCAB,
    "d_model": 16,
    "d_ff": 32,
    "num_heads": 4,
    "max_positions": LENGTH,
    "dropout_rate": 0.0,
    "attention_dropout_rate": 0.0,
    "init_std": 0.3,
}


def write(directory: Path, *, vocabulary: Vocabulary | None = None, **changes: Any) -> Any:
    """Writes a BERT of four layers; returns a copy of its parameters."""
    make = functools.partial(bert.Bert, bert.Config(**(SIZES | {"num_layers": 4} | changes)))
    model = nnx.eval_shape(lambda: make(rngs=nnx.Rngs(0)))
    rng = np.random.default_rng(3)
    params = jax.tree.map(
        lambda leaf: rng.normal(0.3, 0.3, leaf.shape).astype(np.float32),
        nnx.to_pure_dict(nnx.state(model, nnx.Param)),
    )
    copy = jax.tree.map(np.copy, params)
    saved_model.write(str(directory), make, params, title="a", vocabulary=vocabulary, files=())
    return copy


def write_untrained(
    directory: Path, text: str, *, vocab_size: int, dropout_rate: float = 0.0
) -> Path:
    """Writes a BERT of one layer, as it is initialised, with a vocabulary of a text."""
    vocabulary = train_wordpiece(
        [text] * 3, size=vocab_size, extra_ids=0, character_coverage=1.0, lowercase=True
    )
    config = bert.Config(
        vocab_size=vocabulary.vocab_size,
        d_model=32,
        d_ff=64,
        num_heads=2,
        num_layers=1,
        max_positions=64,
        dropout_rate=dropout_rate,
        init_std=0.1,
    )
    make = functools.partial(bert.Bert, config)
    params = nnx.to_pure_dict(nnx.state(make(rngs=nnx.Rngs(0)), nnx.Param))
    saved_model.write(str(directory), make, params, title="a", vocabulary=vocabulary, files=())
    return directory


def student(layout: Layout, **changes: Any) -> step.Program:
    """A DistilBERT of two layers."""
    config = distilbert.Config(**(SIZES | {"num_layers": 2} | changes))
    return step.build(
        lambda rngs: distilbert.DistilBert(config, rngs=rngs),
        optimizers.adamw(3e-3),
        layout,
        step.StepOptions(batch_size=ROWS),
    )


def sevens(abstract_params: Any) -> Any:
    """Parameters in place of initialised ones; all are 7."""
    return jax.tree.map(
        lambda leaf: jax.device_put(np.full(leaf.shape, 7, leaf.dtype), leaf.sharding),
        abstract_params,
    )


def batch(layout: Layout) -> dict[str, jax.Array]:
    """Rows of 5 to 12 tokens, two of them masked."""
    rng = np.random.default_rng(0)
    tokens = rng.integers(1, VOCAB, (ROWS, LENGTH)).astype(np.int32)
    mask = (np.arange(LENGTH) < np.arange(5, 5 + ROWS)[:, None]).astype(np.int32)
    local = {
        "encoder_input_tokens": tokens * mask,
        "encoder_attention_mask": mask,
        "masked_positions": np.tile(np.array([1, 3], np.int32), (ROWS, 1)),
        "masked_targets": rng.integers(1, VOCAB, (ROWS, 2)).astype(np.int32),
        "masked_loss_weights": np.ones((ROWS, 2), np.float32),
    }
    rows = process_rows(layout, ROWS)
    mine = {name: x[rows] for name, x in local.items()}
    return to_global(layout, mine, rows=rows, batch_size=ROWS)


def sums(layout: Layout, trees: Sequence[Any]) -> list[float]:
    """The sum of all absolute values of each tree, over all processes."""
    total = jax.jit(
        lambda tree: sum(jnp.abs(x).sum() for x in jax.tree.leaves(tree)),
        out_shardings=layout.replicated,
    )
    return [float(total(tree)) for tree in trees]
