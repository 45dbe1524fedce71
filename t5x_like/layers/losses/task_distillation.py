"""What a model with a head learns from a teacher with a head of the same labels.

Suffixes: B batch, L length, M levels, D d_model, C classes.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from t5x_like.layers.losses.accounting import Term
from t5x_like.layers.losses.distillation import kl_divergences

LOGITS, STATES = "teacher_logits", "teacher_states"
"""The names of a teacher's outputs in a batch."""
FORMS = ("classes", "choices", "tags", "spans", "several", "numbers")
"""The forms of answers that a teacher can have."""


@dataclasses.dataclass(frozen=True)
class TaskDistillation:
    """How much of the loss is a teacher's (Hinton et al., 2015, section 2).

    Attributes:
      weight: the share of the teacher's answers in the loss; labels have the rest.
      temperature: that of probabilities; numbers have none.
      states: the weight of the squared distance of states, in addition (TinyBERT, Jiao et al.,
        2020, equation 8); 0 for none.
    """

    weight: float = 0.5
    temperature: float = 2.0
    states: float = 0.0

    def __post_init__(self) -> None:
        if not 0 < self.weight <= 1:
            raise ValueError(f"distill_weight is above 0 and at most 1, not {self.weight}")
        if not 0 < self.temperature < float("inf"):
            raise ValueError(f"distill_temperature is above 0, not {self.temperature}")
        if not 0 <= self.states < float("inf"):
            raise ValueError(f"distill_states is at least 0, not {self.states}")

    def answers(
        self, student: jax.Array, teacher: jax.Array, weights: jax.Array, *, form: str
    ) -> Term:
        """The distance of the answers of a student from those of its teacher.

        Args:
          student, teacher: the logits of both heads, of one shape.
          weights: of the labels, as `label_losses.label_weights` gives them.
          form: one of `FORMS`.
        """
        student, teacher = student.astype(jnp.float32), jax.lax.stop_gradient(teacher)
        teacher = teacher.astype(jnp.float32)
        if form == "numbers":
            distances = jnp.square(student - teacher)[..., 0]
        elif form == "several":
            both = (jnp.stack([x, jnp.zeros_like(x)], axis=-1) for x in (teacher, student))
            distances = kl_divergences(*both, temperature=self.temperature).mean(axis=-1)
        else:
            if form == "spans":
                student, teacher = student.swapaxes(1, 2), teacher.swapaxes(1, 2)
            distances = kl_divergences(teacher, student, temperature=self.temperature)
        return Term((distances * weights).sum(), weights.sum(), self.weight)

    def of_states(
        self, student_BMLD: jax.Array, teacher_BMLD: jax.Array, counts_BL: jax.Array
    ) -> Term:
        """The squared distance of states, a mean over tokens and units and a sum over levels."""
        counts_BL = (counts_BL > 0).astype(jnp.float32)
        teacher_BMLD = jax.lax.stop_gradient(teacher_BMLD).astype(jnp.float32)
        squares = jnp.square(student_BMLD.astype(jnp.float32) - teacher_BMLD)
        distances_BL = squares.mean(axis=-1).sum(axis=1)
        return Term((distances_BL * counts_BL).sum(), counts_BL.sum(), self.states)


def levels(student: int, teacher: int) -> list[int]:
    """The state of a teacher for each of a student's: level m of M is level m * N / M of N.

    Args:
      student, teacher: how many layers they have. Level 0 is the input of the first.
    """
    return [round(m * teacher / student) for m in range(student + 1)]
