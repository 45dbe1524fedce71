"""Fine-tuning with a teacher: a larger model that has learned the same labels."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from flax import nnx

from t5x_like.core.buckets import storage
from t5x_like.layers.adapters import teacher_projection
from t5x_like.layers.losses.task_distillation import FORMS, TaskDistillation
from t5x_like.models.finetuned import FineTuned
from t5x_like.runs import run_directory, saved_model
from t5x_like.runs.completers.task_teacher import TaskTeacher
from t5x_like.runs.settings.finetuning import features

if TYPE_CHECKING:
    from t5x_like.runs.settings.finetuning.finetuned_model import FineTunedModel


class Distilling(NamedTuple):
    """What a model learns from a teacher besides labels; None for the usual.

    Attributes:
      teacher: the directory of a run of `finetune`, or of an import with a head.
      weight: the share of the teacher's answers in the loss (None: 0.5).
      temperature: that of their probabilities (None: 2).
      states: the weight of the distance of states of all layers (None: 0, without).
    """

    teacher: str | None = None
    weight: float | None = None
    temperature: float | None = None
    states: float | None = None

    def check(self, *, is_full: bool, r_drop: float | None, pack: bool) -> None:
        """Checks what is said of a teacher.

        Args:
          is_full: whether all parameters train.
          r_drop: the weight of R-Drop.
          pack: whether a row holds several texts.

        Raises:
          ValueError: there is no teacher, or it does not go with other settings.
        """
        if self.teacher is None:
            given = [name for name in self._fields[1:] if getattr(self, name) is not None]
            if given:
                raise ValueError(f"distill_{given[0]} is for a teacher: name it (teacher)")
            return
        if r_drop is not None:
            raise ValueError("r_drop and a teacher are two ways to soften labels: leave one out")
        if pack:
            raise ValueError("a teacher reads one text in a row: leave it out, or pack")
        if self.states and not is_full:
            raise ValueError("distill_states would train layers that the method freezes")

    def on(self, model: FineTunedModel, labels: Sequence[str]) -> Taught:
        """The model that learns from the teacher.

        Args:
          model: a model with a head.
          labels: the names of its classes; none for numbers.

        Raises:
          ValueError: the model writes texts, or teacher and student have other labels.
          OSError: the teacher cannot be read.
        """
        directory = str(self.teacher)
        if model.form not in FORMS or model.make.func is not FineTuned:
            raise ValueError(
                f"a teacher is for models with a head for {', '.join(FORMS)}: leave it out"
            )
        known = run_directory.read_class_names(storage.path(directory))
        if labels and known and list(known) != list(labels):
            raise ValueError(
                f"the teacher in {directory} has learned {', '.join(known)}, in this order, and "
                f"the files have {', '.join(labels)}"
            )
        given = self._asdict()
        of_loss = {name: given[name] for name in ("weight", "temperature", "states") if given[name]}
        keywords = {**model.make.keywords, "distillation": TaskDistillation(**of_loss)}
        make = functools.partial(model.make.func, *model.make.args, **keywords)
        layers, adapt = 0, None
        if self.states:
            if model.form == "choices":
                raise ValueError("distill_states is not for choices, whose rows are several texts")
            layers = features.count_of_states(model.make) - 1
            adapt = self._projection(model)
        teacher = TaskTeacher(directory=directory, layers=layers)
        teacher.check_model(nnx.eval_shape(lambda: make(rngs=nnx.Rngs(0))))
        return Taught(model._replace(make=make), teacher, adapt)

    def _projection(self, model: FineTunedModel) -> functools.partial[Any] | None:
        """What makes the student's states as wide as the teacher's; None where they are."""
        teacher: Any = saved_model.abstract_model(str(self.teacher))
        student: Any = nnx.eval_shape(lambda: model.make(rngs=nnx.Rngs(0)))
        width = teacher.config.d_model
        if width == student.config.d_model:
            return None
        return functools.partial(teacher_projection.adapt, width=width)


class Taught(NamedTuple):
    """A model that learns from a teacher.

    Attributes:
      model: the model.
      teacher: the completer of its batches.
      adapt: gives it what it learns from states with; None for nothing.
    """

    model: FineTunedModel
    teacher: TaskTeacher
    adapt: functools.partial[Any] | None
