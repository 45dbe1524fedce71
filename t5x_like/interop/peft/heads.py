"""Heads in PEFT's files: the tensors of a model's head, whole, and the modules that hold them."""

from __future__ import annotations

from collections.abc import Iterable

from t5x_like.interop.hugging_face import head_classes
from t5x_like.interop.mapping import Names, Rule

_HEAD = "head/"
_OF_TASKS = {
    head_classes.CLASSES: ("SEQ_CLS", ("classifier", "score")),
    head_classes.TAGS: ("TOKEN_CLS", ("classifier", "score")),
    head_classes.SPANS: ("QUESTION_ANS", ("qa_outputs",)),
}
"""PEFT's task, by the end of a class's name, and the names one of which it wants the head under."""
_WRITES = {"ForConditionalGeneration": "SEQ_2_SEQ_LM", "LMHeadModel": "CAUSAL_LM"}


def rules(names: Names) -> list[Rule]:
    """The rules of the parameters of a head."""
    return [rule for rule in names.rules if all(path.startswith(_HEAD) for path in rule.paths)]


def modules(names: Names) -> list[str]:
    """The names of the modules to save: a head as a whole, but a part of a body by its whole name.

    BERT's pooler, which belongs to our head, is a part of its body there.
    """
    whole = (rule.name(0).rpartition(".")[0] for rule in rules(names))
    saved = (
        x if names.prefix and x.startswith(names.prefix) else x.partition(".")[0] for x in whole
    )
    return [*dict.fromkeys(saved)]


def task_type(architecture: str, heads: Iterable[str]) -> str | None:
    """PEFT's task for a class; None for those that PEFT has no task for, or with other heads.

    Args:
      architecture: the class.
      heads: the modules to save.
    """
    for ending, (task, known) in _OF_TASKS.items():
        if architecture.endswith(ending):
            return task if set(known) & set(heads) else None
    return next((task for ending, task in _WRITES.items() if architecture.endswith(ending)), None)


def ending(task: str | None) -> str | None:
    """The end of the names of the classes of one of PEFT's tasks with a head; None for others."""
    return next((end for end, (name, _) in _OF_TASKS.items() if name == task), None)
