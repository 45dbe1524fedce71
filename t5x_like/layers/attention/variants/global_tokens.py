"""Windows with global tokens, which see all and are seen by all (Longformer, section 3.2).

Suffixes: B batch, L length, G global tokens, D d_model, H heads, K d_kv, J = H * K joined heads.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from t5x_like.core.partitioning import constrain
from t5x_like.layers.attention.attention_kernels import Attended, KeysValues
from t5x_like.layers.attention.masks import Chosen, Mask
from t5x_like.layers.attention.multi_head import Attention, Inits, attend
from t5x_like.layers.attention.view import View, Views
from t5x_like.layers.basics.dropout import Dropouts, subkeys
from t5x_like.layers.basics.modules import Init, Linear

GIVEN = "encoder_global_mask"
"""The array of a batch that is 1 for global tokens, int32 [B, L]."""


def sides_of_layers(window: int | Sequence[int], *, layers: int, name: str) -> tuple[int, ...]:
    """How many positions before and after a token each layer sees.

    Args:
      window: that number of all layers, or one for each.
      layers: how many layers there are.
      name: what the message of an error calls the window.

    Raises:
      ValueError: there are not so many, or one is below 1.
    """
    sides = tuple(window) if isinstance(window, Sequence) else (window,) * layers
    whole = all(isinstance(one, int) and not isinstance(one, bool) for one in sides)
    if len(sides) != layers or not whole or min(sides) < 1:
        raise ValueError(
            f"{name} must be a number of at least 1, or one for each of the {layers} layers, got "
            f"{window!r}"
        )
    return sides


def views(mask: Mask, sides: Sequence[int]) -> Views:
    """A view through a window for each layer, or one where all are the same."""
    different = sides[:1] if len({*sides}) == 1 else sides
    return [View(mask=dataclasses.replace(mask, window=(one, one))) for one in different]


def first_tokens(present_BL: jax.Array) -> jax.Array:
    """The first token of each row, bool [B, L]; `present_BL` is above 0 for those that count."""
    return (jnp.arange(present_BL.shape[1]) == 0) & (present_BL > 0)


class GlobalAttention(Attention):
    """Self-attention in which the keys that the mask has chosen are global tokens.

    Other queries see, in one softmax, the keys of their window and all global ones. The queries of
    global tokens see the whole row, through projections of their own: theirs, and those of the keys
    and values that they see. Where a mask chooses no keys, nothing of this is computed.
    """

    def __init__(self, config: Any, *, init: Init, tied: bool, rngs: nnx.Rngs) -> None:
        """Makes the projections.

        Args:
          config: has `d_model`, which `num_heads` share evenly, a `kernel`, and the `dtype` of
            products.
          init: the initialiser of all matrices.
          tied: whether global tokens have the projections of the others.
          rngs: the source of random numbers.
        """
        d_model, d_kv, dtype = config.d_model, config.d_kv, config.dtype
        super().__init__(
            d_model,
            config.num_heads,
            d_kv=d_kv,
            inits=Inits.same(init),
            bias=True,
            scale=d_kv**-0.5,
            kernel=config.kernel,
            dtype=dtype,
            rngs=rngs,
        )

        def dense() -> Linear | None:
            if tied:
                return None
            axes = ("embed", "joined_kv")
            return Linear((d_model, d_model), axes, init=init, bias=True, dtype=dtype, rngs=rngs)

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
