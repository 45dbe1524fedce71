"""Rotary positions: queries and keys are turned by angles that grow with their positions.

Suffixes: B batch, L length, H heads, K d_kv, F = K / 2 frequencies.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from t5x_like.core.partitioning import active_platform
from t5x_like.layers.attention.kernels import turning


class Rotary(NamedTuple):
    """Float32 [B|1, L, F] each: the cosines and sines of a row's angles."""

    cosines: jax.Array
    sines: jax.Array

    def turn(self, x_BLHK: jax.Array) -> jax.Array:
        """Turns number i of a head with number i + F, in float32; same shape and dtype.

        On TPUs a kernel does it, where it `suits`.
        """
        if active_platform() == "tpu" and turning.suits(x_BLHK):
            return turning.turn(x_BLHK, *self)
        cos, sin = (angles[:, :, None] for angles in self)
        left, right = jnp.split(x_BLHK.astype(jnp.float32), 2, axis=-1)
        turned = jnp.concatenate([left * cos - right * sin, right * cos + left * sin], axis=-1)
        return turned.astype(x_BLHK.dtype)


def rotary(positions_BL: jax.Array, *, d_kv: int, theta: float = 10_000.0) -> Rotary:
    """Those of positions, int32 [B|1, L]: angle f is position * theta ** (-f / F).

    RoFormer (Su et al., 2021), section 3.2.2, in the order of GPT-NeoX: a head's first half is
    turned with its second.

    Raises:
      ValueError: a head's width is odd.
    """
    if d_kv % 2:
        raise ValueError(f"rotary positions need heads of even width, not d_kv={d_kv}")
    frequencies_F = (theta ** (-np.arange(0, d_kv, 2) / d_kv)).astype(np.float32)
    angles_BLF = positions_BL[..., None].astype(jnp.float32) * frequencies_F
    return Rotary(jnp.cos(angles_BLF), jnp.sin(angles_BLF))
