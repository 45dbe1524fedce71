"""A stack of layers that read one sequence: an encoder or, with a causal mask, a lone decoder.

Suffixes: B batch, L length, T cache length, D d_model, H heads, N layers.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from flax import nnx

from t5x_like.core.abilities import LAST, States, Want
from t5x_like.layers.attention.attention_kernels import KeysValues
from t5x_like.layers.attention.kernel_choice import forming_probabilities
from t5x_like.layers.attention.view import View, Views, views_of
from t5x_like.layers.basics.dropout import give_keys
from t5x_like.layers.stacks.blocks import EncoderLayer, Parts, insert
from t5x_like.layers.stacks.stack import Body, Stack

if TYPE_CHECKING:
    from t5x_like.layers.stacks.transformer_config import Transformer


def with_last(hidden: States, last_BLD: jax.Array) -> States:
    """The states with the last one after the last norm."""
    states = hidden.states
    if states is not None:
        states = jnp.concatenate([states[:-1], last_BLD[None]])
    return hidden._replace(last=last_BLD, states=states)


def all_states(
    x_BLD: jax.Array, states: jax.Array | None, attention: Any, *, want: Want
) -> jax.Array | None:
    """Puts the first layer's input before the layers' states [N, B, L, D], if there are any.

    Raises:
      ValueError: attention is wanted of a kernel that forms no probabilities.
    """
    if want.attention and attention is None:
        raise ValueError(
            "this attention kernel forms no probabilities to return: use attention_kernels.plain"
        )
    return None if states is None else jnp.concatenate([x_BLD[None], states])


def by_layer(heads_BNH: jax.Array | None) -> jax.Array | None:
    """[N, B, H], as inputs of the layers."""
    return None if heads_BNH is None else jnp.moveaxis(heads_BNH, 1, 0)


class EncoderStack(Stack):
    """N encoder layers."""

    layers: EncoderLayer

    def encode(
        self,
        x_BLD: jax.Array,
        *,
        views: Views,
        heads_BNH: jax.Array | None = None,
        key: jax.Array | None = None,
        want: Want = LAST,
        part: slice | None = None,
    ) -> States:
        """Runs the layers.

        Args:
          x_BLD: what the first layer reads.
          views: the view of all layers, or several in turn.
          heads_BNH: float, multiplies the values of each head of each layer; None: nothing.
          key: for dropout.
          want: what to return.
          part: which layers run, at least one; None: all.

        Raises:
          ValueError: attention is wanted of a kernel that forms no probabilities.
        """

        def reading(view: View) -> Body:
            def body(layer: EncoderLayer, x_BLD: jax.Array, of_layer: tuple) -> tuple:
                key, heads_BH = of_layer
                give_keys(layer, key)
                x_BLD, p_BHLL = layer(x_BLD, view=view.with_heads(heads_BH), key=key)
                return x_BLD, (x_BLD if want.states else None, p_BHLL if want.attention else None)

            return body

        with forming_probabilities(want.attention):
            run = self if part is None else functools.partial(self.run_part, part)
            last, (states, attention) = run(
                [*map(reading, views_of(views))], x_BLD, (self.keys(key), by_layer(heads_BNH))
            )
        states = all_states(x_BLD, states, attention, want=want)
        return States(last, states, attention)

    def step(
        self,
        x_B1D: jax.Array,
        past: KeysValues,
        *,
        position: jax.Array,
        views: Views,
    ) -> tuple[jax.Array, KeysValues]:
        """All layers at one position, and the past, [N, B, T, H, K] each, that includes it.

        Arguments as in `EncoderLayer.step`, with the views of all layers, or several in turn.
        """

        def reading(view: View) -> Body:
            def body(layer: EncoderLayer, x_B1D: jax.Array, past: KeysValues) -> tuple:
                return layer.step(x_B1D, past, position=position, view=view)

            return body

        x_B1D, new = self([*map(reading, views_of(views))], x_B1D, past)
        return x_B1D, insert(past, new, position=position, axis=2)


def encoder_stack(
    config: Transformer,
    made_of: Parts,
    *,
    num_layers: int,
    rngs: nnx.Rngs,
    kind: type[EncoderStack] = EncoderStack,
) -> EncoderStack:
    """A stack of layers with these parts, run as `config` says."""
    return kind(
        lambda rngs: EncoderLayer(made_of, rngs=rngs),
        num_layers,
        rngs=rngs,
        unroll=config.scan_unroll,
        remat=config.remat,
    )
