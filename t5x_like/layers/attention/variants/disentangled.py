"""Disentangled attention: contents look at contents and at distances, and distances at contents.

DeBERTa (He et al., 2021), section 3.1.

Suffixes: B batch, L positions of a row, Q queries (L, or those that ask), R rows of the table of
distances, C = 2 L columns of distances, D d_model, H heads, K d_kv, J = H * K joined heads.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.typing import DTypeLike

from t5x_like.core.partitioning import constrain
from t5x_like.layers.attention.attention_kernels import Attended, Kernel, KeysValues
from t5x_like.layers.attention.kernel_choice import runs_on_tpu
from t5x_like.layers.attention.masks import Mask
from t5x_like.layers.attention.multi_head import Attention, Inits, attend, dropping
from t5x_like.layers.attention.relative_attention import of_positions, of_row
from t5x_like.layers.attention.relative_tpu import Relative, copies, relative_tpu, unsuited
from t5x_like.layers.attention.view import View
from t5x_like.layers.basics.dropout import Dropouts, Dropping, dropout, subkeys
from t5x_like.layers.basics.modules import Init, Linear

Rows = Callable[[np.ndarray], np.ndarray]
"""From distances (query position minus key position) to rows of the table, integers."""

_TERMS = 3
"""Content to content, content to position, position to content; their sum is scaled."""


@dataclasses.dataclass(frozen=True)
class EachDistance:
    """A row for each distance from -`span` to `span` - 1; larger ones share the last (DeBERTa)."""

    span: int

    def __call__(self, distances: np.ndarray) -> np.ndarray:
        return np.clip(distances + self.span, 0, 2 * self.span - 1)


@dataclasses.dataclass(frozen=True)
class LogBuckets:
    """Rows of logarithmic buckets, 2 `span` of them (DeBERTa v2).

    The nearest `span` // 2 distances of a direction have a row each. The others grow by a constant
    factor up to `max_distance` - 1.
    """

    span: int
    max_distance: int

    def __call__(self, distances: np.ndarray) -> np.ndarray:
        near = self.span // 2
        # In float32, as in the published code: where it rounds, buckets begin.
        far = np.maximum(np.abs(distances), near).astype(np.float32) / np.float32(near)
        growth = np.log(far) / np.log(np.float32((self.max_distance - 1) / near))
        bucket = near + np.ceil(growth * np.float32(near - 1)).astype(np.int64)
        bucket = np.where(np.abs(distances) <= near, distances, np.sign(distances) * bucket)
        return np.clip(bucket + self.span, 0, 2 * self.span - 1)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class DisentangledView(View):
    """A view with the vectors of distances, which all layers share; it has no bias.

    Attributes:
      distances: [R, D], the table, before dropout.
      asking: int32 [B, Q], the queries' places in the row; None: they are the whole row.
    """

    distances: jax.Array
    asking: jax.Array | None = None


class _Distances(NamedTuple):
    """Projected vectors of the distances of a row, [C, J] each; the first row is in no pair.

    Attributes:
      keys: what queries are multiplied with; row c is for a key L - c before the query.
      queries: what keys are multiplied with, scaled; row c is for a query c - L after the key.
    """

    keys: jax.Array
    queries: jax.Array


class DisentangledAttention(Attention):
    """Attention whose logits sum three products, over sqrt(3 K).

    With q, k of contents and q', k' of the distance i - j, the logit of query i and key j is
    q_i k_j + q_i k'_ij + q'_ij k_j (section 3.1; both terms of a distance read the same row, as in
    the published code). Products with distances are formed for the 2 L distances of a row, and
    shifted into place by reshaping: nothing is gathered. On TPUs a kernel does this.
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        *,
        rows: Rows,
        shared: bool,
        init: Init,
        kernel: Kernel,
        dtype: DTypeLike,
        rngs: nnx.Rngs,
    ) -> None:
        """Makes the projections.

        Args:
          d_model: the width of states and of vectors of distances.
          num_heads: H, which share the width evenly.
          rows: which row of the table a distance has.
          shared: whether distances have the matrices of contents (DeBERTa v2); otherwise they have
            two of their own, and keys have no bias (DeBERTa).
          init: the initialiser of all matrices.
          kernel: how attention is computed.
          dtype: the dtype of products.
          rngs: the source of random numbers.
        """
        d_kv = d_model // num_heads
        super().__init__(
            d_model,
            num_heads,
            d_kv=d_kv,
            inits=Inits.same(init),
            bias=True,
            scale=(_TERMS * d_kv) ** -0.5,
            kernel=kernel,
            dtype=dtype,
            rngs=rngs,
        )

        def dense(*, bias: bool) -> Linear:
            shape, axes = (d_model, num_heads * d_kv), ("embed", "joined_kv")
            return Linear(shape, axes, init=init, dtype=dtype, rngs=rngs, bias=bias)

        if not shared:
            self.key.bias = None
        self.position_key = None if shared else dense(bias=False)
        self.position_query = None if shared else dense(bias=True)
        self.rows = rows

    def mixed(
        self,
        x_BLD: jax.Array,
        memory: KeysValues,
        *,
        view: View,
        dropouts: Dropouts,
        key: jax.Array | None,
    ) -> Attended:
        assert isinstance(view, DisentangledView)
        keys = subkeys(key, 2)
        q_BQHK = self.queries(x_BLD)
        distances_RD = dropout(view.distances, keys[0], rate=dropouts.hidden)
        distances = self._distances(distances_RD, memory.keys.shape[1])
        kernel, drop = self.kernel, dropping(dropouts, keys[1])
        if runs_on_tpu(kernel) and not unsuited(q_BQHK.shape[1], memory, drop, both=True):
            kernel = functools.partial(_by_kernel, distances=distances, asking_BQ=view.asking)
        else:
            view = view.with_bias(self._bias(q_BQHK, memory.keys, distances, view.asking))
        return attend(q_BQHK, memory, view=view, dropouts=dropouts, key=keys[1], kernel=kernel)

    def _distances(self, distances_RD: jax.Array, length: int) -> _Distances:
        """Those of the distances in a row of this length."""
        of_keys = self.key if self.position_key is None else self.position_key
        of_queries = self.query if self.position_query is None else self.position_query
        rows_N = self.rows(np.arange(1 - length, length))  # ascending
        used = slice(rows_N[0], rows_N[-1] + 1)
        rows_N = rows_N - rows_N[0]

        def columns(projection: Linear, rows_N: np.ndarray) -> jax.Array:
            x_NJ = _at_rows(projection(distances_RD[used]), rows_N)
            return jnp.pad(x_NJ, ((1, 0), (0, 0)))

        # A query's distances fall with the key's position; those of a key rise with the query's.
        return _Distances(columns(of_keys, rows_N[::-1]), columns(of_queries, rows_N) * self.scale)

    def _bias(
        self,
        q_BQHK: jax.Array,
        keys_BLHK: jax.Array,
        distances: _Distances,
        asking_BQ: jax.Array | None,
    ) -> jax.Array:
        """The terms of distances in the logits, float32 [B, H, Q, L]; queries are scaled."""
        length = keys_BLHK.shape[1]
        keys_CHK, queries_CHK = (x.reshape(2 * length, self.num_heads, -1) for x in distances)
        to_position_BHQC = _products(q_BQHK, keys_CHK)
        from_position_BHLL = of_row(_products(keys_BLHK, queries_CHK), length).swapaxes(2, 3)
        if asking_BQ is None:
            bias_BHQL = of_row(to_position_BHQC, length) + from_position_BHLL
        else:
            bias_BHQL = of_positions(to_position_BHQC, asking_BQ, length)
            bias_BHQL += jnp.take_along_axis(from_position_BHLL, asking_BQ[:, None, :, None], 2)
        return constrain(bias_BHQL, "batch", "heads", "length", None)


def _by_kernel(
    q_BQHK: jax.Array,
    memory: KeysValues,
    *,
    mask: Mask | None,
    bias: jax.Array | None,
    drop: Dropping | None,
    distances: _Distances,
    asking_BQ: jax.Array | None,
) -> Attended:
    """Attention by our kernel for TPUs, which forms the terms of distances by itself."""
    assert bias is None, "a layer has no other"
    batch_size, queries, heads, _ = q_BQHK.shape
    joined = distances.keys.shape[-1]
    keys, of_queries = (copies(x[None], batch_size=batch_size) for x in distances)
    relative = Relative(
        keys,
        backward=None,
        vectors=jnp.zeros((4, joined)),
        mask=None if mask is None else mask.dense(queries, memory.keys.shape[1]),
        differs=None,
        positions=asking_BQ,
        queries=of_queries,
    )
    q_BQJ = q_BQHK.reshape(batch_size, queries, joined)
    values_BQJ = relative_tpu(q_BQJ, memory, relative, queries=queries, factor=1.0, drop=drop)
    return Attended(values_BQJ.reshape(batch_size, queries, heads, -1), None)


def _at_rows(x_RJ: jax.Array, rows_N: np.ndarray) -> jax.Array:
    """Rows [N, J] by number, where all are different without a product."""
    steps = np.diff(rows_N)
    if (steps == 1).all():
        return x_RJ
    if (steps == -1).all():
        return x_RJ[::-1]
    # A product, as the gradient of a lookup is a scatter.
    return jax.nn.one_hot(rows_N, len(x_RJ), dtype=x_RJ.dtype) @ x_RJ


def _products(x_BLHK: jax.Array, of_distances_CHK: jax.Array) -> jax.Array:
    """Float32 [B, H, L, C]."""
    return jnp.einsum(
        "blhk,chk->bhlc", x_BLHK, of_distances_CHK, preferred_element_type=jnp.float32
    )
