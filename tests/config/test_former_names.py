"""Configurations of earlier versions name modules where they lay then."""

from __future__ import annotations

import importlib
import importlib.util

from t5x_like.config.former_names import MOVED, current


def test_every_module_is_where_it_is_said_to_be_and_no_longer_where_it_was() -> None:
    for former, name in MOVED.items():
        importlib.import_module(name)
        assert importlib.util.find_spec(former) is None, former


def test_imports_and_full_names_are_translated_and_nothing_else() -> None:
    text = """from t5x_like.layers import activations
from t5x_like.layers import basic
from t5x_like.layers.attention import kernel_choice
from t5x_like.data import feature_converters
from t5x_like.layers.losses import task_losses
import t5x_like.layers.mlp

t5.Config.mlp = @t5x_like.layers.mlp.GatedMlp
bert.Config.activation = @activations.gelu
finetuned.FineTuned.task = @task_losses.tags
"""
    assert (
        current(text)
        == """from t5x_like.layers.basics import activations
from t5x_like.layers.basics import modules as basic
from t5x_like.layers.attention import kernel_choice
from t5x_like.data.rows import feature_converters
from t5x_like.layers.losses import label_losses as task_losses
import t5x_like.layers.basics.mlp

t5.Config.mlp = @t5x_like.layers.basics.mlp.GatedMlp
bert.Config.activation = @activations.gelu
finetuned.FineTuned.label_loss = @task_losses.tags
"""
    )
    assert current(current(text)) == current(text)
