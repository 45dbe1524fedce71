"""Attention in rows too long for our kernel for TPUs, by JAX's Splash attention.

It takes blocks of queries and of keys, and adds up a softmax over the blocks (FlashAttention, Dao
et al., 2022), so that memory grows with the length. Suffixes: B batch, L queries, M keys, H heads,
K d_kv.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as kernels
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks
from jax.sharding import PartitionSpec

from t5x_like.core.partitioning import active_layout
from t5x_like.layers.attention.attention_kernels import Attended, KeysValues
from t5x_like.layers.attention.kernels.band import EVERYTHING, LANES, Band, band_of
from t5x_like.layers.attention.kernels.kernel_mesh import Split, parts_of_queries
from t5x_like.layers.attention.masks import Mask
from t5x_like.layers.basics.dropout import Dropping

_QUERIES, _KEYS, _KEYS_OF_GRADIENTS, _AT_ONCE = 512, 2048, 4096, 512
"""Sides of blocks, at most: keys in the forward and in the backward pass, and those of a product.

Of those tried with rows of 8,192 on v5e they have the shortest modelled time; larger ones do not
fit the chip's memory.
"""

_NOWHERE = jnp.iinfo(jnp.int32).min
"""A segment without queries."""


def splash(
    q_BLHK: jax.Array,
    memory: KeysValues,
    *,
    mask: Mask | None,
    bias: jax.Array | None,
    drop: Dropping | None,
    interpret: bool = False,
) -> Attended:
    """`attention_kernels.plain` on TPUs, for rows of any length; with `interpret` it runs anywhere.

    Raises:
      ValueError: it cannot compute the case (`unsuited`).
    """
    if reason := unsuited(q_BLHK, memory, mask=mask, bias=bias, drop=drop):
        raise ValueError(f"attention of long rows: {reason}; use attention_kernels.blocked")
    length = q_BLHK.shape[1]
    segments = _segments(mask, q_BLHK, memory.keys)
    q_BLHK, k_BMHK, v_BMHK = map(_filled_up, (q_BLHK, *memory))
    local = functools.partial(_of_device, band=band_of(mask), interpret=interpret)
    layout = active_layout()
    if layout is None or layout.mesh.size == 1:
        return Attended(local(q_BLHK, k_BMHK, v_BMHK, segments)[:, :length], None)
    split = Split.of(layout, *q_BLHK.shape[:3])
    heads, rows = PartitionSpec(split.rows, None, split.heads), PartitionSpec(split.rows)
    of_segments = None if segments is None else (rows, rows)
    values = jax.shard_map(
        local,
        mesh=layout.mesh,
        in_specs=(heads, heads, heads, of_segments),
        out_specs=heads,
        check_vma=False,
    )(q_BLHK, k_BMHK, v_BMHK, segments)
    return Attended(values[:, :length], None)


def unsuited(
    q_BLHK: jax.Array,
    memory: KeysValues,
    *,
    mask: Mask | None,
    bias: jax.Array | None,
    drop: Dropping | None,
) -> str | None:
    """Why it cannot compute the case; None if it can."""
    if bias is not None or drop is not None:
        return "it has no biases and no dropout"
    if parts_of_queries(*q_BLHK.shape[:3]) > 1:
        return "the queries of a row are on several devices"
    if mask is None:
        return None
    traits = (mask.queries, mask.keys)
    others = [*[x.prefix for x in traits], *[x.chosen for x in traits], *[x.order for x in traits]]
    if mask.itself or mask.pairs is not None or any(x is not None for x in others):
        return "a mask may have padding, segments, a causal side and a window alone"
    band = band_of(mask)
    if band.step > 1 or (band == EVERYTHING and (mask.causal or mask.window is not None)):
        return "places do not say what a window or a causal side shows"
    return None


def _segments(
    mask: Mask | None, q_BLHK: jax.Array, k_BMHK: jax.Array
) -> tuple[jax.Array, jax.Array] | None:
    """Int32 [B, L] and [B, M], filled up: a key that does not count is in no query's segment."""
    mask = Mask() if mask is None else mask
    queries, keys = mask.queries.segments, mask.keys.segments
    rows, is_whole = len(q_BLHK), k_BMHK.shape[1] % LANES == 0
    if is_whole and mask.present is None and (queries is None or keys is None):
        return None
    if queries is None or keys is None:
        queries, keys = (jnp.ones((rows, x.shape[1]), jnp.int32) for x in (q_BLHK, k_BMHK))
    if mask.present is not None:
        keys = jnp.where(mask.present > 0, keys, _NOWHERE)
    ids_BL, ids_BM = (
        jnp.broadcast_to(x, (rows, x.shape[-1])).astype(jnp.int32) for x in (queries, keys)
    )
    return _filled_up(ids_BL), _filled_up(ids_BM, with_=_NOWHERE)


def _filled_up(x: jax.Array, *, with_: int = 0) -> jax.Array:
    """An array [B, L, ...] whose length is a multiple of a lane's 128."""
    around = [(0, -x.shape[1] % LANES if axis == 1 else 0) for axis in range(x.ndim)]
    return jnp.pad(x, around, constant_values=with_)


def _of_device(
    q_BLHK: jax.Array,
    k_BMHK: jax.Array,
    v_BMHK: jax.Array,
    segments: tuple[jax.Array, jax.Array] | None,
    *,
    band: Band,
    interpret: bool,
) -> jax.Array:
    """The values [B, L, H, K] of a device's rows and heads."""
    queries, keys, heads = q_BLHK.shape[1], k_BMHK.shape[1], q_BLHK.shape[2]
    seen: masks.Mask = (
        masks.FullMask((queries, keys))
        if band == EVERYTHING
        else masks.LocalMask((queries, keys), (band.before, band.after), offset=0)
    )
    rows_of, keys_of = _side(queries, _QUERIES), _side(keys, _KEYS)
    of_gradients = _side(keys, _KEYS_OF_GRADIENTS)
    kernel = kernels.make_splash_mha(
        mask=masks.MultiHeadMask([seen] * heads),
        block_sizes=kernels.BlockSizes(
            block_q=rows_of,
            block_kv=keys_of,
            block_kv_compute=_side(keys_of, _AT_ONCE),
            block_q_dkv=rows_of,
            block_kv_dkv=of_gradients,
            block_kv_dkv_compute=_side(of_gradients, _AT_ONCE),
            use_fused_bwd_kernel=True,
        ),
        head_shards=1,
        q_seq_shards=1,
        residual_checkpoint_name="attended",
        interpret=interpret,
    )
    ids = None if segments is None else kernels.SegmentIds(*segments)
    heads_first = [jnp.swapaxes(x, 1, 2) for x in (q_BLHK, k_BMHK, v_BMHK)]
    return jnp.swapaxes(jax.vmap(kernel)(*heads_first, ids), 1, 2)


def _side(length: int, most: int) -> int:
    """The largest multiple of a lane's 128 that divides a length and is at most `most`."""
    return max(side for side in range(LANES, most + 1, LANES) if length % side == 0)
