"""Modules and parameters that had other names when a configuration was written."""

from __future__ import annotations

import re
from collections.abc import Mapping

_BASICS = ("activations", "depth", "dropout", "embeddings", "mlp", "norms", "token_scores")
MOVED: Mapping[str, str] = {
    **{f"t5x_like.layers.{name}": f"t5x_like.layers.basics.{name}" for name in _BASICS},
    "t5x_like.layers.basic": "t5x_like.layers.basics.modules",
    "t5x_like.data.feature_converters": "t5x_like.data.rows.feature_converters",
    "t5x_like.layers.losses.task_losses": "t5x_like.layers.losses.label_losses",
}
"""{former name: name}, of modules that a gin file may name."""
PARAMETERS: Mapping[str, str] = {"FineTuned.task": "FineTuned.label_loss"}
"""The same, of parameters."""

_FROM = re.compile(r"^from (\S+) import (\S+)", re.MULTILINE)


def current(text: str) -> str:
    """Gin text with the names that modules and parameters have today."""

    def imported(match: re.Match[str]) -> str:
        name = MOVED.get(f"{match[1]}.{match[2]}")
        if name is None:
            return match[0]
        package, _, module = name.rpartition(".")
        alias = "" if module == match[2] else f" as {match[2]}"
        return f"from {package} import {module}{alias}"

    text = _FROM.sub(imported, text)
    for former, name in {**MOVED, **PARAMETERS}.items():
        text = re.sub(rf"\b{re.escape(former)}\b", name, text)
    return text
