"""Multi-head attention with an additive bias and a mask, over keys and values given or cached.

Suffixes: B batch, L queries, M keys, D d_model, H heads, K d_kv, J = H * K joined heads.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike

from t5x_like.layers.basic import Linear, dropout
from t5x_like.partitioning import constrain

_MASKED = -1e10  # finite: a row that sees no key at all gets a uniform softmax, not NaN


class KeysValues(NamedTuple):
    """What queries look at: two arrays [B, M, H, K]."""

    keys: jax.Array
    values: jax.Array


def attend(
    q_BLHK: jax.Array,
    memory: KeysValues,
    *,
    mask: jax.Array | None = None,
    bias: jax.Array | None = None,
    rate: float = 0.0,
    key: jax.Array | None = None,
) -> jax.Array:
    """softmax(q k + bias) v -> [B, L, H, K] in the dtype of v; q comes scaled.

    `mask`, bool, and `bias`, float, broadcast to [B, H, L, M]. Logits and softmax are float32.
    Dropout of the probabilities (`rate`, `key`) uses one mask for all queries of a row and head.
    """
    logits_BHLM = jnp.einsum(
        "blhk,bmhk->bhlm", q_BLHK, memory.keys, preferred_element_type=jnp.float32
    )
    if bias is not None:
        logits_BHLM += bias
    if mask is not None:
        logits_BHLM = jnp.where(mask, logits_BHLM, _MASKED)
    p_BHLM = jax.nn.softmax(logits_BHLM, axis=-1).astype(memory.values.dtype)
    p_BHLM = dropout(p_BHLM, key, rate=rate, shared=(2,))
    return jnp.einsum("bhlm,bmhk->blhk", p_BHLM, memory.values)


class Attention(nnx.Module):
    """Projections around `attend`, initialised as in T5: the queries' holds the 1 / sqrt(K)."""

    def __init__(
        self, d_model: int, num_heads: int, *, d_kv: int, dtype: DTypeLike, rngs: nnx.Rngs
    ) -> None:
        def dense(std: float, *, out: bool = False) -> Linear:
            shape, axes = (d_model, num_heads * d_kv), ("embed", "joined_kv")
            if out:
                shape, axes = shape[::-1], axes[::-1]
            init = nnx.initializers.normal(std)
            return Linear(shape, axes, init=init, dtype=dtype, rngs=rngs)

        self.query = dense((d_model * d_kv) ** -0.5)
        self.key = dense(d_model**-0.5)
        self.value = dense(d_model**-0.5)
        self.out = dense((num_heads * d_kv) ** -0.5, out=True)
        self.num_heads = num_heads

    def keys_values(self, x_BMD: jax.Array) -> KeysValues:
        """Computed once and used by any number of queries."""
        # The length is not split here: each query needs every key.
        return KeysValues(
            constrain(self._heads(self.key(x_BMD)), "batch", None, "heads", "kv"),
            constrain(self._heads(self.value(x_BMD)), "batch", None, "heads", "kv"),
        )

    def __call__(
        self,
        x_BLD: jax.Array,
        memory: KeysValues,
        *,
        mask: jax.Array | None = None,
        bias: jax.Array | None = None,
        rate: float = 0.0,
        key: jax.Array | None = None,
    ) -> jax.Array:
        """[B, L, D]; the rest is as in `attend`."""
        q_BLHK = constrain(self._heads(self.query(x_BLD)), "batch", "length", "heads", "kv")
        y_BLHK = attend(q_BLHK, memory, mask=mask, bias=bias, rate=rate, key=key)
        y_BLJ = constrain(y_BLHK.reshape(*x_BLD.shape[:2], -1), "batch", "length", "joined_kv")
        return self.out(y_BLJ)

    def _heads(self, x_BLJ: jax.Array) -> jax.Array:
        return x_BLJ.reshape(*x_BLJ.shape[:2], self.num_heads, -1)
