"""Windows with global tokens, which see all and are seen by all (Longformer, section 3.2).

Suffixes: B batch, L length, G global tokens, D d_model, H heads, K d_kv, J = H * K joined heads.
"""

from __future__ import annotations

import dataclasses

import jax
from flax import nnx
from jax.typing import DTypeLike

from t5x_like.core.partitioning import constrain
from t5x_like.layers.attention.attention_kernels import Attended, Kernel, KeysValues
from t5x_like.layers.attention.masks import Chosen, Mask
from t5x_like.layers.attention.multi_head import Attention, Inits, attend
from t5x_like.layers.attention.view import View
from t5x_like.layers.basics.dropout import Dropouts, subkeys
from t5x_like.layers.basics.modules import Init, Linear


class GlobalAttention(Attention):
    """Self-attention in which the keys that the mask has chosen are global tokens.

    Other queries see, in one softmax, the keys of their window and all global ones. The queries of
    global tokens see the whole row, through projections of their own: theirs, and those of the keys
    and values that they see. Where a mask chooses no keys, nothing of this is computed.
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        *,
        tied: bool,
        init: Init,
        kernel: Kernel,
        dtype: DTypeLike,
        rngs: nnx.Rngs,
    ) -> None:
        """Makes the projections.

        Args:
          d_model: the width of states.
          num_heads: H, which share the width evenly.
          tied: whether global tokens have the projections of the others.
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
            scale=d_kv**-0.5,
            kernel=kernel,
            dtype=dtype,
            rngs=rngs,
        )

        def dense() -> Linear | None:
            shape, axes = (d_model, num_heads * d_kv), ("embed", "joined_kv")
            if tied:
                return None
            return Linear(shape, axes, init=init, bias=True, dtype=dtype, rngs=rngs)

        self.query_global = dense()
        self.key_global = dense()
        self.value_global = dense()

    def mixed(
        self,
        x_BLD: jax.Array,
        memory: KeysValues,
        *,
        view: View,
        dropouts: Dropouts,
        key: jax.Array | None,
    ) -> Attended:
        """The values of each head, [B, L, H, K]; NaN in rows with more global tokens than promised.

        `memory` holds the keys and values of `x_BLD` itself.
        """
        mask = view.mask
        if mask is None or mask.keys.chosen is None:
            return super().mixed(x_BLD, memory, view=view, dropouts=dropouts, key=key)
        keys = subkeys(key, 2)
        local = super().mixed(x_BLD, memory, view=view, dropouts=dropouts, key=keys[0])
        assert mask.most_chosen is not None
        tokens = Chosen.of_row(mask.keys.chosen, mask.most_chosen)
        whole = self._of_global(x_BLD, memory, tokens, view=view, dropouts=dropouts, key=keys[1])
        values_BLHK = tokens.or_nan(tokens.put(local.values, whole.values))
        if local.probabilities is None or whole.probabilities is None:
            return Attended(values_BLHK, None)
        p_BLHM, p_BGHM = (p.swapaxes(1, 2) for p in (local.probabilities, whole.probabilities))
        return Attended(values_BLHK, tokens.put(p_BLHM, p_BGHM).swapaxes(1, 2))

    def _of_global(
        self,
        x_BLD: jax.Array,
        memory: KeysValues,
        tokens: Chosen,
        *,
        view: View,
        dropouts: Dropouts,
        key: jax.Array | None,
    ) -> Attended:
        """What global tokens see of the whole row: [B, G, H, K], and the probabilities."""
        query = self.query if self.query_global is None else self.query_global
        q_BGHK = self._heads(query(tokens.of(x_BLD)) * self.scale)
        if self.key_global is not None and self.value_global is not None:
            memory = KeysValues(
                *(
                    constrain(self._heads(of(x_BLD)), "batch", None, "heads", "kv")
                    for of in (self.key_global, self.value_global)
                )
            )
        assert view.mask is not None
        open_view = dataclasses.replace(view, mask=_whole_row(view.mask, tokens))
        return attend(
            q_BGHK, memory, view=open_view, dropouts=dropouts, key=key, kernel=self.kernel
        )


def _whole_row(mask: Mask, tokens: Chosen) -> Mask:
    """The mask of the queries of global tokens: that of the row without its window."""
    segments_BL = mask.queries.segments
    segments_BG = None if segments_BL is None else tokens.of(segments_BL)
    return dataclasses.replace(
        mask,
        window=None,
        most_chosen=None,
        queries=mask.queries._replace(segments=segments_BG),
        keys=mask.keys._replace(chosen=None),
    )
