"""Ways to compute attention: one signature, so that any serves any model.

A kernel takes queries [B, L, H, K] that are scaled, keys and values [B, M, H, K], a bool `mask` and
a float `bias` that broadcast to [B, H, L, M], and `drop`, dropout of the probabilities or None.

Suffixes: B batch, L queries, M keys, H heads, K d_kv.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp

_MASKED = -1e10  # finite: a row that sees no key at all gets a uniform softmax, not NaN


class KeysValues(NamedTuple):
    """What queries look at: two arrays [B, M, H, K]."""

    keys: jax.Array
    values: jax.Array


class Attended(NamedTuple):
    """Values [B, L, ...] and, where the kernel forms them, probabilities [B, H, L, M] undropped."""

    values: jax.Array
    probabilities: jax.Array | None


class Kernel(Protocol):
    """What `attention.attend` calls."""

    def __call__(
        self,
        q_BLHK: jax.Array,
        memory: KeysValues,
        *,
        mask: jax.Array | None,
        bias: jax.Array | None,
        drop: Callable[[jax.Array], jax.Array] | None,
    ) -> Attended: ...


def plain(
    q_BLHK: jax.Array,
    memory: KeysValues,
    *,
    mask: jax.Array | None,
    bias: jax.Array | None,
    drop: Callable[[jax.Array], jax.Array] | None,
) -> Attended:
    """Forms all logits; float32 softmax. Knows everything: bias, dropout, probabilities."""
    logits_BHLM = jnp.einsum(
        "blhk,bmhk->bhlm", q_BLHK, memory.keys, preferred_element_type=jnp.float32
    )
    if bias is not None:
        logits_BHLM += bias
    if mask is not None:
        logits_BHLM = jnp.where(mask, logits_BHLM, _MASKED)
    p_BHLM = jax.nn.softmax(logits_BHLM, axis=-1).astype(memory.values.dtype)
    dropped_BHLM = p_BHLM if drop is None else drop(p_BHLM)
    return Attended(jnp.einsum("bhlm,bmhk->blhk", dropped_BHLM, memory.values), p_BHLM)
