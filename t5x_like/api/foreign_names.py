"""Arguments and methods as other libraries call them: errors name ours."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import ParamSpec, TypeVar

from t5x_like.config import settings
from t5x_like.core.spelling import nearest

_P = ParamSpec("_P")
_R = TypeVar("_R")

TRAINING = {
    "data": "corpus",
    "dataset": "corpus",
    "epochs": "train_steps",
    "lr": "learning_rate",
    "max_steps": "train_steps",
    "num_train_epochs": "train_steps",
    "output_dir": "model_dir",
    "per_device_train_batch_size": "batch_size, over all devices",
    "steps": "train_steps",
    "tokenizer": "vocabulary",
    "train_batch_size": "batch_size",
}
"""Arguments of trainers."""

FILLING = {"top_k": "k", "num_return_sequences": "k"}
"""Arguments of `transformers`' fill-mask."""

METHODS = {
    "generate": "predict",
    "save_pretrained": "export",
    "push_to_hub": "export(directory, push=NAME)",
    "encode": "hidden, or predict(texts, ask='embed') for a vector each",
    "tokenizer": "vocabulary",
}
"""Methods and attributes of models elsewhere."""


def named_here(names: Mapping[str, str]) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Makes errors about unknown arguments of a function name ours.

    Args:
      names: {name elsewhere: what it is here}.
    """

    def decorate(function: Callable[_P, _R]) -> Callable[_P, _R]:
        known = inspect.signature(function).parameters

        @functools.wraps(function)
        def called(*args: _P.args, **named: _P.kwargs) -> _R:
            for name in named:
                if name not in known:
                    raise TypeError(f"no argument {name!r}{_advice(name, names, list(known))}")
            return function(*args, **named)

        return called

    return decorate


def _advice(name: str, names: Mapping[str, str], known: list[str]) -> str:
    if name in names:
        return f": here it is {names[name]}"
    if "gin" in known and name.upper() in settings.macros():
        return f": it is given as gin=['{name.upper()}=VALUE']"
    return nearest(name, [argument for argument in known if argument != "self"], of="arguments")
