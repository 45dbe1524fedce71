"""Rotary positions as a Pallas kernel for TPUs: joined heads are turned where they lie.

XLA halves the heads, which are narrower than the chip's 128 lanes, and copies them around: that
took a fifth of a ModernBERT's step. Suffixes: B batch, L length, H heads, K d_kv, F = K / 2
frequencies, J joined heads.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import PartitionSpec

from t5x_like.core.partitioning import active_layout
from t5x_like.layers.attention.kernels.band import LANES
from t5x_like.layers.attention.kernels.kernel_mesh import Split

_ROWS, _LEAST = 512, 16
"""Positions of a grid step, at most, and what they must be a multiple of."""


def suits(x_BLHK: jax.Array) -> bool:
    """Whether whole heads fill blocks of lanes, and positions fill grid steps."""
    _, length, heads, width = x_BLHK.shape
    return LANES % width == 0 and heads * width % LANES == 0 and length % _LEAST == 0


def turn(
    x_BLHK: jax.Array, cosines_BLF: jax.Array, sines_BLF: jax.Array, *, interpret: bool = False
) -> jax.Array:
    """`Rotary.turn` of heads that it `suits`; with `interpret` it runs anywhere, slowly."""
    half = (cosines_BLF, cosines_BLF), (-sines_BLF, sines_BLF)
    copies = LANES // x_BLHK.shape[-1]
    cos, sin = (jnp.concatenate([*parts] * copies, axis=-1) for parts in half)
    width = x_BLHK.shape[-1]

    def local(x_BLJ: jax.Array, cos: jax.Array, sin: jax.Array) -> jax.Array:
        return _turned(x_BLJ, cos, sin, width, interpret)

    joined = x_BLHK.reshape(*x_BLHK.shape[:2], -1)
    layout = active_layout()
    if layout is not None and layout.mesh.size > 1:
        split = Split.of(layout, *x_BLHK.shape[:3])
        angles = PartitionSpec(split.rows if len(cos) > 1 else None, split.queries)
        local = jax.shard_map(
            local,
            mesh=layout.mesh,
            in_specs=(split.of_q, angles, angles),
            out_specs=split.of_q,
            check_vma=False,
        )
    return local(joined, cos, sin).reshape(x_BLHK.shape)


@functools.partial(jax.custom_vjp, nondiff_argnums=(3, 4))
def _turned(
    x_BLJ: jax.Array, cos: jax.Array, sin: jax.Array, width: int, interpret: bool
) -> jax.Array:
    """Joined heads of this width; tables are float32 [B|1, L, 128], the sines with their signs."""
    rows, length, joined = x_BLJ.shape
    size = max(n for n in range(_LEAST, _ROWS + 1, _LEAST) if length % n == 0)
    own_row = len(cos) > 1
    whole = pl.BlockSpec((1, size, joined), lambda b, i: (b, i, 0))
    table = pl.BlockSpec((1, size, LANES), lambda b, i: (b if own_row else 0, i, 0))
    return pl.pallas_call(
        functools.partial(_step, width=width),
        out_shape=jax.ShapeDtypeStruct(x_BLJ.shape, x_BLJ.dtype),
        grid=(rows, length // size),
        in_specs=[whole, table, table],
        out_specs=whole,
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "parallel")),
        interpret=interpret,
        name="turn",
    )(x_BLJ, cos, sin)


def _turned_forward(
    x_BLJ: jax.Array, cos: jax.Array, sin: jax.Array, width: int, interpret: bool
) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    return _turned(x_BLJ, cos, sin, width, interpret), (cos, sin)


def _turned_backward(
    width: int, interpret: bool, tables: tuple[jax.Array, jax.Array], g_BLJ: jax.Array
) -> tuple[jax.Array, None, None]:
    """The gradient is turned back; angles have none."""
    cos, sin = tables
    return _turned(g_BLJ, cos, -sin, width, interpret), None, None


_turned.defvjp(_turned_forward, _turned_backward)


def _step(x: Any, cos: Any, sin: Any, turned: Any, *, width: int) -> None:
    half = width // 2
    is_left = jax.lax.broadcasted_iota(jnp.int32, (1, LANES), 1) % width < half
    for first in range(0, x.shape[-1], LANES):
        lanes = slice(first, first + LANES)
        block = x[0, :, lanes].astype(jnp.float32)
        others = (pltpu.roll(block, by, 1) for by in (LANES - half, half))
        turned[0, :, lanes] = (block * cos[0] + jnp.where(is_left, *others) * sin[0]).astype(
            turned.dtype
        )
