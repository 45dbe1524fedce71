"""The parameters that weight decay applies to, as masks that optimizers read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import optax
from flax import nnx

from t5x_like.core.parameters import is_decayed, map_variables
from t5x_like.training.optimization.parameter_paths import Facts, by_path, path_name

NAMES = ("scale", "bias", "recurrent_bias", "output_bias")
"""Names of parameters without decay in a plain tree, of which nothing but names is known."""

_DECAYED: Facts[bool] = Facts("decayed")


def decay_mask(params: Any, *, not_decayed: Sequence[str] | None = None) -> Any:
    """Whether weight decay applies to each parameter: a tree of bool, for `mask` of optax.

    By default the parameters of a model say it (`layers.basics.modules.param`): matrices and tables
    are decayed, vectors are not. BERT, ALBERT, ELECTRA and XLNet leave out parameters with
    LayerNorm or bias in their names, and GPT leaves out all vectors: in our models both are the
    vectors. All embeddings are therefore decayed, and so are the vectors that XLNet adds to its
    queries (r_w_bias, r_r_bias, r_s_bias; here tables with a row for each head: biases.content,
    .position and .segment), as in its authors' code. fairseq (RoBERTa, BART, SpanBERT) decays every
    parameter: ().

    Args:
      params: a nested dict of arrays. Outside of a program it is that of no model, and parameters
        with one of `NAMES` are not decayed.
      not_decayed: names (the last part of a path) of parameters without decay, in place of what
        the parameters say.
    """
    known = _DECAYED.known() if not_decayed is None else {}
    names = NAMES if not_decayed is None else not_decayed

    def one(path: tuple, _: Any) -> bool:
        named = getattr(path[-1], "key", None) in names
        return known.get(path_name(path), not named)

    return jax.tree_util.tree_map_with_path(one, params)


def with_decay_of(
    tx: optax.GradientTransformation, params: nnx.State
) -> optax.GradientTransformation:
    """`tx`, where `decay_mask` knows what these (abstract) parameters of a model say."""
    return _DECAYED.told(tx, by_path(map_variables(is_decayed, params)))
