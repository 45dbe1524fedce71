"""Hugging Face's classes for tasks, by the end of their names, and our heads for them."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

from flax import nnx

from t5x_like.interop.hugging_face.configuration import unsupported_settings
from t5x_like.layers.heads import label_heads
from t5x_like.layers.losses import label_losses, ordered_classes
from t5x_like.layers.losses.weighed_classes import WeighedClasses
from t5x_like.models.finetuned import FineTuned

Make = functools.partial

BODY = "Model"
CLASSES = "ForSequenceClassification"
TAGS = "ForTokenClassification"
CHOICES = "ForMultipleChoice"
SPANS = "ForQuestionAnswering"
SEVERAL = "multi_label_classification"
_ENDINGS = {
    "classes": CLASSES,
    "several": CLASSES,
    "numbers": CLASSES,
    "tags": TAGS,
    "choices": CHOICES,
    "spans": SPANS,
    "ordered": CLASSES,
}
"""The ends of class names, by a model's `answer_form`."""
_OURS = {"ordered": ordered_classes.ordered}
"""The losses of forms that no class knows; their heads are those of the class of this ending."""


@dataclasses.dataclass(frozen=True)
class Heads:
    """The constructors of a family's heads; they take `num_labels` as well."""

    of_sequence: Callable[..., nnx.Module]
    of_tokens: Callable[..., nnx.Module] = label_heads.TokenHead


def fine_tuned(
    ending: str,
    body: Make[Any],
    *,
    made_with: Heads,
    config: Mapping[str, Any],
    default_labels: int = 2,
) -> Make[Any] | None:
    """The body with the head that this class ending means; None where no such ending is known.

    With one label, the head predicts a number; with the problem `multi_label_classification`,
    several classes at once. `default_labels` is used where config.json has none.

    Raises:
      ValueError: rows have several numbers.
    """
    of_sequence, of_tokens = made_with.of_sequence, made_with.of_tokens
    labels = len(config.get("id2label") or ()) or config.get("num_labels", default_labels)
    match ending:
        case "Model":
            return Make(FineTuned, body)
        case "ForSequenceClassification":
            unsupported_settings.check_problem(config, num_labels=labels)
            label_loss = label_losses.numbers if labels == 1 else label_losses.classes
            if config.get("problem_type") == SEVERAL:
                label_loss = label_losses.several
            return Make(
                FineTuned, body, Make(of_sequence, num_labels=labels), label_loss=label_loss
            )
        case "ForMultipleChoice":
            return Make(
                FineTuned, body, Make(of_sequence, num_labels=1), label_loss=label_losses.classes
            )
        case "ForTokenClassification":
            return Make(
                FineTuned, body, Make(of_tokens, num_labels=labels), label_loss=label_losses.tags
            )
        case "ForQuestionAnswering":
            spans = Make(label_heads.TokenHead, num_labels=2)
            return Make(FineTuned, body, spans, label_loss=label_losses.spans)
    return None


def ending_for(form: str) -> str:
    """The end of the name of the class whose answers have this form in most families.

    Raises:
      ValueError: there is none.
    """
    if form not in _ENDINGS:
        raise ValueError(f"answers are {', '.join(_ENDINGS)}, not {form!r}")
    return _ENDINGS[form]


def outputs(form: str, num_labels: int) -> int:
    """The logits of a head whose answers have this form, for a number of labels."""
    return num_labels - 1 if form == "ordered" else num_labels


def learning(make: Make[Any], form: str) -> Make[Any]:
    """The constructor of a model that `fine_tuned` gives, with the loss of a form."""
    if form not in _OURS:
        return make
    return Make(make.func, *make.args, **{**make.keywords, "label_loss": _OURS[form]})


def check_exported(model: nnx.Module) -> None:
    """Raises ValueError where no class of transformers gives the answers of a model."""
    if isinstance(model, FineTuned) and model.mixture is not None:
        raise ValueError(
            "transformers has no class whose head reads the states of several layers: `t5x_like "
            "predict` answers with this model; to export one, use --states last or another method"
        )
    if isinstance(model, FineTuned) and model.has_task_head and model.answer_form in _OURS:
        raise ValueError(
            f"transformers has no class for {model.answer_form} classes: it would read the logits "
            "of this head as those of something else. `t5x_like predict` answers with this model; "
            "to export one, fine-tune it with --kind classes or --kind numbers"
        )


def ending_of(model: FineTuned) -> str:
    """The inverse of `fine_tuned`: the ending for a model."""
    return _ENDINGS[model.answer_form] if model.has_task_head else BODY


def settings(model: FineTuned) -> dict[str, Any]:
    """The number of labels, as config.json writes it; the model does not know their names."""
    if ending_of(model) not in (CLASSES, TAGS):
        return {}
    return {"num_labels": model.num_labels, **problem(model.answer_form)}


def weighed(make: Make[FineTuned], **settings: Any) -> Make[FineTuned]:
    """The constructor of a model with a head whose classes or tags count as settings say.

    Args:
      make: its constructor.
      **settings: those of `WeighedClasses`.

    Raises:
      ValueError: one of them is out of its range.
    """
    label_loss = WeighedClasses(form=make.keywords["label_loss"].form, **settings)
    return Make(make.func, *make.args, **{**make.keywords, "label_loss": label_loss})


def problem(form: str) -> dict[str, str]:
    """The setting that says whether answers of this form are several classes at once."""
    return {"problem_type": SEVERAL} if form == "several" else {}
