"""Shorter rows of molecules for rows of characters, and back (CANINE, sections 3.2 to 3.4).

CANINE is Clark et al., 2022. Suffixes: B batch, L characters, M molecules, N blocks, W characters
of a block, D d_model.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike

from t5x_like.layers.attention.masks import Mask
from t5x_like.layers.attention.view import View
from t5x_like.layers.basics.convolution import StridedConvolution
from t5x_like.layers.basics.dropout import Dropouts, dropout_hidden, subkeys
from t5x_like.layers.basics.mlp import Activation
from t5x_like.layers.basics.modules import LayerNorm
from t5x_like.layers.stacks.encoder import EncoderStack


def in_blocks(
    stack: EncoderStack,
    x_BLD: jax.Array,
    present_BL: jax.Array,
    *,
    size: int,
    key: jax.Array | None = None,
) -> jax.Array:
    """Runs layers in which characters see those of their own block alone: [B, L, D].

    Args:
      stack: the layers.
      x_BLD: their input.
      present_BL: above 0 for characters that count.
      size: how many characters a block has; the last one of a row may have fewer.
      key: for dropout.
    """
    whole = x_BLD.shape[1] // size * size
    parts = ((slice(0, whole), size), (slice(whole, None), x_BLD.shape[1] - whole))
    found = []
    for (places, of_block), part_key in zip(parts, subkeys(key, 2), strict=True):
        part_BLD, counts_BL = x_BLD[:, places], present_BL[:, places]
        if part_BLD.shape[1]:
            view = View(mask=Mask(present=counts_BL.reshape(-1, of_block)))
            blocks_RWD = part_BLD.reshape(-1, of_block, x_BLD.shape[2])
            of_part = stack.encode(blocks_RWD, views=view, key=part_key).last
            found.append(of_part.reshape(part_BLD.shape))
    return jnp.concatenate(found, axis=1)


def of_groups(counts_BL: jax.Array, size: int) -> jax.Array:
    """The greatest of each whole group of `size` positions, [B, M]."""
    whole = counts_BL.shape[1] // size * size
    return counts_BL[:, :whole].reshape(len(counts_BL), -1, size).max(axis=2)


def repeated(molecules_BMD: jax.Array, length: int, rate: int) -> jax.Array:
    """The molecule of each of L characters, [B, L, D].

    The first molecule is that of [CLS], which no character has where there are others. Molecule
    m + 1 is that of `rate` characters from m * rate on, and the last one that of all after them.
    """
    each = jnp.repeat(molecules_BMD[:, 1:], rate, axis=1)
    rest = jnp.repeat(molecules_BMD[:, -1:], length - each.shape[1], axis=1)
    return jnp.concatenate([each, rest], axis=1)


class Downsampling(nnx.Module):
    """norm([first character, activation(convolution)]): a molecule for each `rate` characters.

    The molecule of the last characters makes room for the first character's own, that of [CLS],
    which no convolution has changed.
    """

    def __init__(
        self,
        d_model: int,
        *,
        rate: int,
        activation: Activation,
        norm: LayerNorm,
        dtype: DTypeLike,
        rngs: nnx.Rngs,
    ) -> None:
        self.convolution = StridedConvolution(
            (d_model, d_model), width=rate, stride=rate, dtype=dtype, rngs=rngs
        )
        self.activation = activation
        self.norm = norm

    def __call__(self, x_BLD: jax.Array) -> jax.Array:
        """[B, M, D]; M is L divided by the rate, rounded down."""
        molecules_BMD = self.activation(self.convolution(x_BLD))[:, :-1]
        return self.norm(jnp.concatenate([x_BLD[:, :1], molecules_BMD], axis=1))


class Upsampling(nnx.Module):
    """norm(activation(convolution([characters, their molecules]))), with dropout after it."""

    def __init__(
        self,
        d_model: int,
        *,
        width: int,
        activation: Activation,
        norm: LayerNorm,
        dropouts: Dropouts,
        dtype: DTypeLike,
        rngs: nnx.Rngs,
    ) -> None:
        self.convolution = StridedConvolution(
            (2 * d_model, d_model), width=width, same=True, dtype=dtype, rngs=rngs
        )
        self.activation = activation
        self.norm = norm
        self.dropouts = dropouts

    def __call__(
        self, x_BLD: jax.Array, molecules_BLD: jax.Array, key: jax.Array | None = None
    ) -> jax.Array:
        """[B, L, D] from characters and the molecule of each, as `repeated` gives it."""
        both = jnp.concatenate([x_BLD, molecules_BLD], axis=-1)
        found_BLD = self.norm(self.activation(self.convolution(both)))
        return dropout_hidden(found_BLD, key, dropouts=self.dropouts)
