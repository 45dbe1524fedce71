"""Finds the module that knows a family's names at Hugging Face, by model type or by our model.

A module of a family has

- `MODEL_TYPES`: values of `model_type` in config.json that it reads;
- `from_hf(config, architecture)`: turns config.json and one of its architectures into a
  `functools.partial` of one of our models, to be called with `rngs`; ValueError where a setting is
  not supported;
- `to_hf(model)`: the contents of config.json that our (possibly abstract) model determines,
  including `model_type` and `architectures`; None where the model is not of this family;
- `IDS`: by model type, the published special ids that config.json names and no model has;
- `NEVER_NULL`, only where there are such: by model type, the names of ids that a number must stand
  for: 0 where there is no other;
- `names(model)`: its `mapping.Names`;
- `ENDINGS`, only where it has other classes for tasks: by the form of the answers, the end of the
  name of the class that is fine-tuned;
- `copies(model)`, only where a model that is fine-tuned has several copies of parameters that a
  saved one has once: {pattern on saved paths: replacements}, as in `InitFrom.rename`;
- `halves(model, params)`, only where a model is exported as several: {name: (model, params)}.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from flax import nnx

from t5x_like.core.spelling import nearest
from t5x_like.interop import hugging_face


def _modules() -> list[ModuleType]:
    """The modules here that name model types; a new family is a new file."""
    names = [module_info.name for module_info in pkgutil.iter_modules(hugging_face.__path__)]
    modules = [
        importlib.import_module(f"{hugging_face.__name__}.{name}")
        for name in names
        if name != __name__.rpartition(".")[2]
    ]
    return [module for module in modules if hasattr(module, "MODEL_TYPES")]


def of_config(config: Mapping[str, Any]) -> ModuleType:
    """The family that reads a config.json.

    Raises:
      ValueError: no family does; names the nearest that are known.
    """
    known = {kind: module for module in _modules() for kind in module.MODEL_TYPES}
    kind = config.get("model_type")
    if kind in known:
        return known[kind]
    raise ValueError(
        f"config.json is of model_type {kind!r}, which is not supported"
        + nearest(str(kind), sorted(known), of="model types")
    )


def model_type(model: nnx.Module) -> str:
    """The `model_type` that config.json of one of our models has; raises as `of_model`."""
    kind: str = of_model(model).to_hf(model)["model_type"]
    return kind


def of_model(model: nnx.Module) -> ModuleType:
    """The family that exports one of our models.

    Raises:
      ValueError: no family does.
    """
    families = _modules() if "config" in vars(model) else ()  # a stranger's may have none
    for family in families:
        if family.to_hf(model) is not None:
            return family
    raise ValueError(
        f"{type(model).__name__} has no counterpart at Hugging Face: it cannot be exported"
    )


def exports(model: Any) -> bool:
    """Whether a family exports one of our models."""
    try:
        of_model(model)
    except ValueError:
        return False
    return True
