"""Hugging Face's classes for tasks, by the end of their names, and our heads for them."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

from flax import nnx

from t5x_like.layers import heads, tasks
from t5x_like.models.finetuned import FineTuned

Make = functools.partial

BODY = "Model"
CLASSES = "ForSequenceClassification"
TAGS = "ForTokenClassification"
CHOICES = "ForMultipleChoice"
SPANS = "ForQuestionAnswering"


@dataclasses.dataclass(frozen=True)
class Heads:
    """What the heads of a family are made with, beside the number of labels."""

    of_sequence: Callable[..., nnx.Module]
    of_tokens: Callable[..., nnx.Module] = heads.TokenHead


def fine_tuned(
    ending: str, body: Make[nnx.Module], *, made_with: Heads, config: Mapping[str, Any]
) -> Make[nnx.Module] | None:
    """The body as a class with this ending has it; None where none of the above ends so.

    With one label, rows are given a number.
    """
    of_sequence, of_tokens = made_with.of_sequence, made_with.of_tokens
    labels = _num_labels(config)
    match ending:
        case "Model":
            return Make(FineTuned, body)
        case "ForSequenceClassification":
            task = tasks.numbers if labels == 1 else tasks.classes
            return Make(FineTuned, body, Make(of_sequence, num_labels=labels), task=task)
        case "ForMultipleChoice":
            return Make(FineTuned, body, Make(of_sequence, num_labels=1), task=tasks.classes)
        case "ForTokenClassification":
            return Make(FineTuned, body, Make(of_tokens, num_labels=labels), task=tasks.tags)
        case "ForQuestionAnswering":
            spans = Make(heads.TokenHead, num_labels=2)
            return Make(FineTuned, body, spans, task=tasks.spans)
    return None


def ending_of(model: FineTuned) -> str:
    """The inverse of `fine_tuned`."""
    if model.head is None or isinstance(model.head, heads.PooledState):
        return BODY
    if isinstance(model.head, heads.TokenHead):
        return SPANS if _does(model, tasks.spans) else TAGS
    one = _num_labels_of(model) == 1
    return CHOICES if one and _does(model, tasks.classes) else CLASSES


def settings(model: FineTuned) -> dict[str, Any]:
    """The labels of a model, as config.json has them."""
    if ending_of(model) not in (CLASSES, TAGS):
        return {}
    labels = [f"LABEL_{i}" for i in range(_num_labels_of(model))]
    return {
        "id2label": {str(i): label for i, label in enumerate(labels)},
        "label2id": {label: i for i, label in enumerate(labels)},
    }


def _num_labels(config: Mapping[str, Any]) -> int:
    return len(config["id2label"]) if "id2label" in config else config.get("num_labels", 2)


def _num_labels_of(model: Any) -> int:
    labels: int = model.head.out.kernel.shape[-1]
    return labels


def _does(model: FineTuned, task: Callable[..., Any]) -> bool:
    """Whether that is the task of a model; by name, as gin wraps the functions it refers to."""
    return getattr(model.task, "__name__", None) == task.__name__
