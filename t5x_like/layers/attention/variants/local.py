"""Local attention, and tokens that sum up blocks of the row beside it (LongT5, section 3.1).

LongT5 is Guo et al., 2022. Time and memory grow with the length of a row times the window, and,
with such tokens, by its square over the size of their blocks.

Suffixes: B batch, L positions, D d_model, H heads, K d_kv; C queries that are taken at a time and S
keys near them; N blocks that queries are in, G blocks that a token sums up.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from t5x_like.layers.attention.attention_kernels import Attended, KeysValues
from t5x_like.layers.attention.masks import Mask
from t5x_like.layers.attention.multi_head import Attention, dropping
from t5x_like.layers.attention.positions import RelativeBias
from t5x_like.layers.attention.view import View
from t5x_like.layers.attention.windowed import Beside, keys_of_block, with_keys_beside
from t5x_like.layers.basics.dropout import Dropouts


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class Summaries:
    """Blocks of a row, each of which a token sums up for all queries (section 3.1.2).

    Tokens after the last whole block count to that one. A row without a whole block has none.

    Attributes:
      present: [B, L], above 0 for the tokens that count; they are before all padding.
      bias: float [H, N, G], of a query's block and the block that is summed up.
      size: how many tokens a block has.
    """

    present: jax.Array
    bias: jax.Array
    size: int = dataclasses.field(metadata={"static": True})

    def sums(self, x_BLD: jax.Array) -> jax.Array:
        """The sum of the states of each whole block, [B, G, D]."""
        count = self.bias.shape[-1]
        block_BL = jnp.minimum(jnp.arange(x_BLD.shape[1]) // self.size, self._last[:, None])
        of_block_BLG = jax.nn.one_hot(block_BL, count, dtype=x_BLD.dtype)
        counted_BL = (self.present > 0).astype(x_BLD.dtype)
        return jnp.einsum("bld,blg,bl->bgd", x_BLD, of_block_BLG, counted_BL)

    def beside(self, memory: KeysValues) -> Beside:
        """Their keys and values [B, G, H, K], with what queries see of them."""
        seen_BG = jnp.arange(memory.keys.shape[1]) <= self._last[:, None]
        return Beside(memory, Mask(present=seen_BG), bias=self._bias)

    @property
    def _last(self) -> jax.Array:
        """The number of the last whole block of each row, int [B]; -1: there is none."""
        ends = self.present[:, self.size - 1 :: self.size] > 0
        return ends.sum(axis=1) - 1

    def _bias(self, queries_C: jax.Array) -> jax.Array:
        """Float [B, H, C, G]; the first query begins a block."""
        blocks = -(-len(queries_C) // self.size)
        rows_HNG = jax.lax.dynamic_slice_in_dim(
            self.bias, queries_C[0] // self.size, blocks, axis=1
        )
        rows_HCG = jnp.repeat(rows_HNG, self.size, axis=1)[:, : len(queries_C)]
        last_BHG = jnp.moveaxis(self.bias[:, self._last], 1, 0)
        beyond_BC = queries_C // self.size > self._last[:, None]
        return jnp.where(beyond_BC[:, None, :, None], last_BHG[:, :, None], rows_HCG)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class LocalView(View):
    """A view through a window whose bias is that of a block of queries; `bias` is None.

    Attributes:
      near_bias: float [1, H, C, S], of any C queries side by side and the keys around them.
      summaries: the tokens that all queries see besides; None: there are none.
    """

    near_bias: jax.Array
    summaries: Summaries | None = None


def local_view(
    mask: Mask,
    length: int,
    *,
    radius: int,
    relative: RelativeBias,
    block: int | None = None,
    relative_blocks: RelativeBias | None = None,
) -> LocalView:
    """The view of all layers.

    Args:
      mask: which keys count, [B, L], and their segments; it has no window yet.
      length: L.
      radius: how many tokens before and after a query are seen.
      relative: the biases of distances of tokens.
      block: how many tokens are summed up; None: none are.
      relative_blocks: the biases of distances of blocks; None where none are summed up.

    Raises:
      ValueError: blocks are summed up in rows that are packed.
    """
    mask = dataclasses.replace(mask, window=(radius, radius))
    # Whole blocks, and as many queries as there are keys on a side (section 3.1.1).
    unit = block or 1
    queries = -(-(radius + 1) // unit) * unit
    size, keys, before = keys_of_block(mask, length, queries)
    near_bias = relative(size, keys, first=-before)
    count = 0 if block is None else length // block
    if block is None or relative_blocks is None or not count:
        return LocalView(mask=mask, near_bias=near_bias)
    if mask.queries.segments is not None:
        raise ValueError(
            "tokens that sum up blocks would mix the texts of a packed row: give each text a row "
            "of its own (PACK = False), or sum up no blocks (longt5.Config.summed_block = None)"
        )
    assert mask.present is not None
    of_queries = -(-length // size) * -(-size // block)
    bias_HNG = relative_blocks(of_queries, count)[0]
    summaries = Summaries(present=mask.present, bias=bias_HNG, size=block)
    return LocalView(mask=mask, near_bias=near_bias, summaries=summaries)


class LocalAttention(Attention):
    """Attention through a `LocalView`, in blocks on any device.

    `summary_norm` makes the norm of the sums of blocks, whose keys and values come from the same
    matrices as those of tokens; None: no blocks are summed up.
    """

    def __init__(
        self,
        *args: Any,
        rngs: nnx.Rngs,
        summary_norm: Callable[[nnx.Rngs], Callable[[jax.Array], jax.Array]] | None,
        **settings: Any,
    ) -> None:
        super().__init__(*args, rngs=rngs, **settings)
        self.summary_norm = summary_norm and summary_norm(rngs)

    def mixed(
        self,
        x_BLD: jax.Array,
        memory: KeysValues,
        *,
        view: View,
        dropouts: Dropouts,
        key: jax.Array | None,
    ) -> Attended:
        """The values of each head, [B, L, H, K]; no probabilities are formed."""
        assert isinstance(view, LocalView)
        assert view.mask is not None
        beside = None
        if view.summaries is not None:
            assert self.summary_norm is not None
            sums_BGD = self.summary_norm(view.summaries.sums(x_BLD))
            beside = view.summaries.beside(self.keys_values(sums_BGD))
        values_BLHK = with_keys_beside(
            self.queries(x_BLD),
            memory,
            mask=view.mask,
            block=view.near_bias.shape[2],
            near_bias=view.near_bias,
            beside=beside,
            drop=dropping(dropouts, key),
        )
        if view.heads is not None:
            values_BLHK *= view.heads[:, None, :, None].astype(values_BLHK.dtype)
        return Attended(values_BLHK, None)
