"""A head that reads states of several layers: frozen features, as ELMo's and BERT's papers use."""

from __future__ import annotations

import dataclasses
import functools
import re
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
from flax import nnx

from t5x_like.core.abilities import Want
from t5x_like.layers.heads.state_mixtures import Concatenation, ScalarMix
from t5x_like.models.finetuned import FineTuned

if TYPE_CHECKING:
    from t5x_like.runs.settings.finetuning.finetuned_model import FineTunedModel

LAST = "last"
_CONCATENATION = re.compile(r"concat:(\d+)")


def with_states(model: FineTunedModel, states: str) -> FineTunedModel:
    """The model with a head that reads other states.

    Args:
      model: a model with a head.
      states: "last", "concat:4" (the last four layers side by side) or "mix" (a weighted mean of
        all layers, whose weights are learned).

    Raises:
      ValueError: there are no such states, or the model has not such a head.
    """
    if states == LAST:
        return model
    chosen = _CONCATENATION.fullmatch(states)
    if states != "mix" and not chosen:
        raise ValueError(f"states are last, mix or concat:N, such as concat:4, not {states!r}")
    make = model.make
    if make.func is not FineTuned:
        raise ValueError(
            f"the head of a {make.func.__name__} reads its last states alone: name them "
            "(states last)"
        )
    count = count_of_states(make)
    layers = int(chosen[1]) if chosen else None
    if layers is not None and not 0 < layers <= count:
        raise ValueError(f"there are {count} states, and {states} would take {layers}")
    mixture: Any = functools.partial(ScalarMix, count)
    if layers is not None:
        mixture = functools.partial(Concatenation, layers)
    init_from = model.init_from
    if layers is not None:  # the head is wider than the saved one
        skip = (*init_from.skip, r"^head\.")
        init_from = dataclasses.replace(init_from, skip=skip)
    changed = functools.partial(make.func, *make.args, **{**make.keywords, "mixture": mixture})
    return model._replace(make=changed, init_from=init_from)


def count_of_states(make: functools.partial[Any]) -> int:
    """How many states the body of a model gives: the input of its first layer, and each output.

    Args:
      make: the constructor of a body with a head.
    """
    ones = jnp.ones((1, 4), jnp.int32)
    batch = {
        f"encoder_{name}": ones for name in ("input_tokens", "attention_mask", "token_type_ids")
    }

    def states() -> Any:
        body: Any = make(rngs=nnx.Rngs(0)).body
        return body.hidden(batch, want=Want(states=True)).states

    return int(nnx.eval_shape(states).shape[0])
