"""Refuses settings that change what a model computes and have only one value here or there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from t5x_like.models import bert

ENCODER = {
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
    "tie_word_embeddings": True,
}
"""Settings of BERT and similar models."""

DECODER = {**ENCODER, "is_decoder": True}
"""Settings of the same models, run as decoders."""


def check(config: Mapping[str, Any], fixed: Mapping[str, Any]) -> None:
    """Raises ValueError where a setting is given and differs from `fixed`."""
    for name, wanted in fixed.items():
        if config.get(name, wanted) != wanted:
            raise ValueError(f"config.json has {name} {config[name]!r}: only {wanted!r} is read")


def check_problem(config: Mapping[str, Any], *, num_labels: int) -> None:
    """Raises ValueError where rows have several numbers, or one class that may not hold."""
    wanted = "regression" if num_labels == 1 else "single_label_classification"
    several = None if num_labels == 1 else "multi_label_classification"
    if (problem := config.get("problem_type")) not in (None, wanted, several):
        raise ValueError(
            f"config.json has problem_type {problem!r} and the number of labels {num_labels}: only "
            f"{wanted!r} is read with it, as rows here have one class, or one number"
        )


def check_biases(config: bert.Config) -> None:
    """Raises ValueError where layers have biases by relative position."""
    if config.relative_buckets:
        raise ValueError(
            f"relative_buckets is {config.relative_buckets}, but Hugging Face's models of this "
            "family have no relative position biases: it cannot be exported"
        )
