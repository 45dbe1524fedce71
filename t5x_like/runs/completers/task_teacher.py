"""The frozen teacher of a task: a fine-tuned model whose answers go into batches."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import jax
from flax import nnx

from t5x_like.core.abilities import Want
from t5x_like.layers.losses import task_distillation
from t5x_like.models.finetuned import FineTuned
from t5x_like.runs import saved_model
from t5x_like.runs.completers.teacher import Teacher

if TYPE_CHECKING:
    from t5x_like.core.protocols.model import Batch


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskTeacher(Teacher):
    """A fine-tuned model, from which another one learns the same labels.

    Attributes:
      dtype: that of its parameters.
      layers: how many layers the student has, where it learns states too; 0 where it does not.
    """

    dtype: str = "float32"
    layers: int = 0

    def check_model(self, model: Any) -> None:
        """Raises ValueError if the model cannot learn from this teacher."""
        teacher = self._abstract_model()
        if not isinstance(model, FineTuned) or model.distillation is None:
            raise ValueError(
                f"a TaskTeacher has no effect on a {type(model).__name__}: `finetune --teacher` "
                "makes a model that learns from one"
            )
        forms = [x.answer_form for x in (teacher, model)]
        sizes = [x.num_labels for x in (teacher, model)]
        if forms[0] != forms[1] or sizes[0] != sizes[1]:
            raise ValueError(
                f"the teacher in {self.directory} answers with {sizes[0]} {forms[0]}, and its "
                f"student with {sizes[1]} {forms[1]}: take a teacher of the same labels"
            )

    def added(self, row: Mapping[str, Any], model: Any) -> dict[str, jax.ShapeDtypeStruct]:
        """`teacher_logits`, and `teacher_states` where the student learns them."""
        teacher = self._abstract_model()
        batch = {
            name: jax.ShapeDtypeStruct((1, *value.shape), value.dtype)
            for name, value in row.items()
        }
        outputs = nnx.eval_shape(lambda model, batch: self._outputs(model, batch), teacher, batch)
        return {name: jax.ShapeDtypeStruct(x.shape[1:], x.dtype) for name, x in outputs.items()}

    def _outputs(self, teacher: Any, batch: Batch) -> Batch:
        """What the teacher adds to a batch, without dropout."""
        added = {task_distillation.LOGITS: teacher.logits(batch)}
        if self.layers:
            states = teacher.body.hidden(batch, want=Want(states=True)).states
            at = task_distillation.levels(self.layers, len(states) - 1)
            added[task_distillation.STATES] = states[jax.numpy.array(at)].swapaxes(0, 1)
        return jax.lax.stop_gradient(added)

    def _abstract_model(self) -> Any:
        model = saved_model.abstract_model(str(self._path()))
        if not isinstance(model, FineTuned) or not model.has_task_head:
            raise ValueError(
                f"the teacher in {self.directory} is a {type(model).__name__} without a head for "
                "labels: fine-tune it first"
            )
        return model
