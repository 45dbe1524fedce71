"""The parameters that are matrices between states of a model, as Muon needs to know them."""

from __future__ import annotations

from typing import Any

import jax
import optax
from flax import nnx

from t5x_like.core.parameters import is_hidden, map_variables
from t5x_like.training.optimization.parameter_paths import Facts, by_path, path_name

_HIDDEN: Facts[bool] = Facts("hidden")


def hidden_matrices(params: Any) -> Any:
    """Whether each parameter is a matrix [in, out] of a layer or of a head's transform.

    The parameters of a model say it (`core.parameters.is_hidden`): matrices of layers, projections
    between layers, poolers and the transforms of heads are. Embeddings, tables of positions and
    relative biases, the scores of tokens and of labels, norms and biases are not. A model keeps
    query, key, value, gate and up apart, and an optimizer sees one layer at a time, so that each is
    one matrix.

    Args:
      params: a nested dict of arrays. Outside of a program it is that of no model, and whatever has
        two dimensions is a matrix.
    """
    known = _HIDDEN.known()

    def one(path: tuple, leaf: Any) -> bool:
        return known.get(path_name(path), len(leaf.shape) == 2)

    return jax.tree_util.tree_map_with_path(one, params)


def with_matrices_of(
    tx: optax.GradientTransformation, params: nnx.State
) -> optax.GradientTransformation:
    """`tx`, where `hidden_matrices` knows what these (abstract) parameters of a model say."""
    return _HIDDEN.told(tx, by_path(map_variables(is_hidden, params)))
