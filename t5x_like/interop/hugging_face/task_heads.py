"""Hugging Face's classes for tasks, by the end of their names, and our heads for them."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

from flax import nnx

from t5x_like.interop.hugging_face.configuration import unsupported_settings
from t5x_like.layers.heads import label_heads
from t5x_like.layers.losses import task_losses
from t5x_like.models.finetuned import FineTuned

Make = functools.partial

BODY = "Model"
CLASSES = "ForSequenceClassification"
TAGS = "ForTokenClassification"
CHOICES = "ForMultipleChoice"
SPANS = "ForQuestionAnswering"
_ENDINGS = {
    "classes": CLASSES,
    "numbers": CLASSES,
    "tags": TAGS,
    "choices": CHOICES,
    "spans": SPANS,
}
"""By a model's `answer_form`."""


@dataclasses.dataclass(frozen=True)
class Heads:
    """What a family's heads are made with, besides the number of labels."""

    of_sequence: Callable[..., nnx.Module]
    of_tokens: Callable[..., nnx.Module] = label_heads.TokenHead


def fine_tuned(
    ending: str,
    body: Make[nnx.Module],
    *,
    made_with: Heads,
    config: Mapping[str, Any],
    default_labels: int = 2,
) -> Make[nnx.Module] | None:
    """The body with the head that this class ending means; None where no such ending is known.

    With one label, the head predicts a number. `default_labels` is used where config.json has
    none.

    Raises:
      ValueError: rows have several labels at once, or several numbers.
    """
    of_sequence, of_tokens = made_with.of_sequence, made_with.of_tokens
    labels = len(config.get("id2label") or ()) or config.get("num_labels", default_labels)
    match ending:
        case "Model":
            return Make(FineTuned, body)
        case "ForSequenceClassification":
            unsupported_settings.check_problem(config, num_labels=labels)
            task = task_losses.numbers if labels == 1 else task_losses.classes
            return Make(FineTuned, body, Make(of_sequence, num_labels=labels), task=task)
        case "ForMultipleChoice":
            return Make(FineTuned, body, Make(of_sequence, num_labels=1), task=task_losses.classes)
        case "ForTokenClassification":
            return Make(FineTuned, body, Make(of_tokens, num_labels=labels), task=task_losses.tags)
        case "ForQuestionAnswering":
            spans = Make(label_heads.TokenHead, num_labels=2)
            return Make(FineTuned, body, spans, task=task_losses.spans)
    return None


def ending_of(model: FineTuned) -> str:
    """The inverse of `fine_tuned`: the ending for a model."""
    return _ENDINGS[model.answer_form] if model.has_task_head else BODY


def settings(model: FineTuned) -> dict[str, Any]:
    """The number of labels, as config.json writes it; the model does not know their names."""
    return {"num_labels": model.num_labels} if ending_of(model) in (CLASSES, TAGS) else {}
