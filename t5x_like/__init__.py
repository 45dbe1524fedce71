"""Pretraining of encoder and encoder-decoder language models in JAX.

    import t5x_like as t5x

    run = t5x.recipe("bert-mini", corpus="data/*.txt", model_dir="runs/mine")
    run.train()
    model = t5x.load("runs/mine")
    model.fill("The capital of France is [MASK].", k=5)

Names are imported when they are first used. More is in docs/python.md.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# Where TensorFlow is installed, epath (and so Orbax) would reach buckets through it: without s3://,
# and with credentials and endpoints of its own.
os.environ.setdefault("EPATH_USE_TF", "0")

_PLACES = {
    "api.finetuning": ("finetune",),
    "api.loaded_model": ("LoadedModel",),
    "api.loading": ("load",),
    "api.pretraining": ("Pretraining", "from_gin", "recipe"),
    "api.sweeps": ("sweep",),
    "api.trackers": ("MLflow", "Wandb"),
    "config.gin_files": ("ConfigError",),
    "data.dataset": ("Data",),
    "data.vocabulary_choice": ("KnownVocabulary", "VocabularyChoice"),
    "core.partitioning": ("make_layout",),
    "runs.run": ("Options", "Phase", "Run"),
    "runs.settings.finetuning.distilling": ("Distilling",),
    "runs.settings.finetuning.methods": ("Method",),
    "training.callbacks": ("Callback",),
}
_MODULES = {name: module for module, names in _PLACES.items() for name in names}

if TYPE_CHECKING:
    from t5x_like.api.finetuning import finetune
    from t5x_like.api.loaded_model import LoadedModel
    from t5x_like.api.loading import load
    from t5x_like.api.pretraining import Pretraining, from_gin, recipe
    from t5x_like.api.sweeps import sweep
    from t5x_like.api.trackers import MLflow, Wandb
    from t5x_like.config.gin_files import ConfigError
    from t5x_like.core.partitioning import make_layout
    from t5x_like.data.dataset import Data
    from t5x_like.data.vocabulary_choice import KnownVocabulary, VocabularyChoice
    from t5x_like.runs.run import Options, Phase, Run
    from t5x_like.runs.settings.finetuning.distilling import Distilling
    from t5x_like.runs.settings.finetuning.methods import Method
    from t5x_like.training.callbacks import Callback

__all__ = [
    "Callback",
    "ConfigError",
    "Data",
    "Distilling",
    "KnownVocabulary",
    "LoadedModel",
    "MLflow",
    "Method",
    "Options",
    "Phase",
    "Pretraining",
    "Run",
    "VocabularyChoice",
    "Wandb",
    "finetune",
    "from_gin",
    "load",
    "make_layout",
    "recipe",
    "sweep",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 't5x_like' has no attribute {name!r}")
    attribute = getattr(importlib.import_module(f"t5x_like.{_MODULES[name]}"), name)
    globals()[name] = attribute
    return attribute


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
