"""Activation functions under their names in Hugging Face's configurations."""

from __future__ import annotations

from t5x_like.layers.basics import activations
from t5x_like.layers.basics.mlp import Activation

_BY_NAME = {
    "gelu": activations.gelu,
    "gelu_new": activations.gelu_tanh,
    "gelu_pytorch_tanh": activations.gelu_tanh,
    "gelu_fast": activations.gelu_tanh,
    "relu": activations.relu,
    "silu": activations.silu,
    "swish": activations.silu,
    "tanh": activations.tanh,
}


def read(name: str) -> Activation:
    """The activation function of this name.

    Raises:
      ValueError: there is none.
    """
    if name not in _BY_NAME:
        raise ValueError(
            f"config.json asks for the activation {name!r}; known are {', '.join(_BY_NAME)}"
        )
    return _BY_NAME[name]


def name_of(activation: Activation) -> str:
    """The activation's first name there; compared by name, as gin wraps the functions it refers to.

    Raises:
      ValueError: Hugging Face has no name for it.
    """
    for name, function in _BY_NAME.items():
        if function.__name__ == getattr(activation, "__name__", None):
            return name
    raise ValueError(f"{activation} has no name at Hugging Face")
