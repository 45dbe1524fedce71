"""One body and a head for each of several tasks (MT-DNN: Liu et al., 2019, section 3).

Suffixes: B batch, L length, D d_model.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from flax import nnx

from t5x_like.core.abilities import LAST, AnswersTasks, GivesStates, States, Want, can
from t5x_like.core.protocols.tasks import TASK, of_task, own
from t5x_like.layers.basics.dropout import subkeys
from t5x_like.layers.families import prompts
from t5x_like.layers.families.body import OnBody
from t5x_like.layers.families.prompts import Prompt
from t5x_like.layers.losses import accounting, label_losses
from t5x_like.layers.losses.accounting import Term
from t5x_like.layers.losses.term_loss import TermLoss
from t5x_like.models.finetuned import FineTuned, counts

if TYPE_CHECKING:
    from t5x_like.core.protocols.model import Batch, Carry, Metrics

_MASK = "encoder_attention_mask"


@dataclasses.dataclass(frozen=True)
class TaskHead:
    """The head of a task and its loss.

    Attributes:
      make: constructs the head, such as a `label_heads.SequenceHead`.
      num_labels: the number of its logits.
      label_loss: the loss of its logits.
    """

    make: Callable[..., nnx.Module]
    num_labels: int
    label_loss: label_losses.LabelLoss


class MultiTask(OnBody, TermLoss):
    """A body and heads. Each row of a batch is of one task (`data.rows.task_rows`).

    The body reads a batch once, and every head reads its states; the loss of a head counts the rows
    of its task alone. The loss of a batch is the mean over the tasks, each by its share of the
    rows: every row counts once, whatever its task. So the rates at which rows are drawn weigh the
    tasks, as they do where a batch has one task only (algorithm 1).

    Attributes:
      tasks: the names of the tasks, in the order of their numbers.
      head: the head of each task by its name.
      label_losses: the loss of each task, in the same order.
    """

    prompt: Prompt | None = None

    def __init__(
        self,
        body: Callable[..., Any],
        heads: Mapping[str, TaskHead],
        *,
        rngs: nnx.Rngs,
    ) -> None:
        self.body = body(rngs=rngs)
        config = self.body.config
        made = {
            name: head.make(
                config.d_model, num_labels=head.num_labels, dtype=config.dtype, rngs=rngs
            )
            for name, head in heads.items()
        }
        self.head = nnx.Dict(made)
        self.tasks = tuple(heads)
        self.label_losses = tuple(head.label_loss for head in heads.values())
        self.config = config

    def of_task(self, name: str) -> FineTuned:
        """The body and the head of a task as a model of this task alone, with the same parameters.

        Raises:
          ValueError: there is no such task.
        """
        if name not in self.tasks:
            raise ValueError(f"there is no head {name!r}: the heads are {', '.join(self.tasks)}")
        model = FineTuned(
            lambda **_: self.body,
            lambda *_, **__: self.head[name],
            label_loss=self.label_losses[self.tasks.index(name)],
            rngs=nnx.Rngs(0),
        )
        model.prompt = self.prompt
        return model

    @property
    def abilities(self) -> tuple[type, ...]:
        """To answer several tasks, and to give states where the body can."""
        return (AnswersTasks, *([GivesStates] if can(self.body, GivesStates) else []))

    @property
    def max_tokens(self) -> int | None:
        """The body's, less those of a prompt."""
        return prompts.room(self.prompt, super().max_tokens)

    def states(self, batch: Batch, *, want: Want = LAST) -> States:
        """The body's states."""
        states = super().states(prompts.before(self.prompt, batch), want=want)
        return prompts.without(self.prompt, states)

    @property
    def drops(self) -> bool:
        """Whether its body or a head drops units in training."""
        return any(self.of_task(name).drops for name in self.tasks)

    @property
    def padding(self) -> int | None:
        """The padding id of the body."""
        padding: int | None = self.body.padding
        return padding

    def weights(self, batch: Batch) -> dict[str, jax.Array]:
        """The denominator of each task's term (`_denominator`)."""
        return {name: weight for name, _, weight in self._learned(batch)}

    def terms(
        self, batch: Batch, key: jax.Array | None, carry: Carry
    ) -> tuple[dict[str, Term], Metrics, Carry]:
        """The term of each task, and metrics: `loss`, and those of each task by its name.

        These are means over the rows of the task, in which every row counts once but for the loss.
        """
        keys = subkeys(key, 1 + len(self.tasks))
        states = self.body.hidden(prompts.before(self.prompt, batch), keys[0])
        x_BLD = prompts.without(self.prompt, states).last
        terms: dict[str, Term] = {}
        metrics: Metrics = {}
        for (name, rows, weight), head_key in zip(self._learned(batch), keys[1:], strict=True):
            model = self.of_task(name)
            logits = model.of_states(x_BLD, {**batch, **own(batch, name)}, head_key)
            counted = label_losses.label_weights(rows, rows[_MASK])
            weighed = label_losses.example_weights(rows, counted)
            term, _ = model.label_loss(logits, rows, weighed)
            _, of_labels = model.label_loss(logits, rows, counted)
            terms[name] = Term(term.sum, weight)
            values = {"loss": (term.sum, term.weight), **of_labels}
            metrics |= {of_task(name, metric): pair for metric, pair in values.items()}
        sums = jnp.stack([term.sum for term in terms.values()])
        metrics["loss"] = (sums, jnp.stack([term.weight for term in terms.values()]))
        return terms, metrics, carry

    def _learned(self, batch: Batch) -> Iterator[tuple[str, Batch, jax.Array]]:
        """For each task its name, what its loss reads of the batch, and its denominator."""
        counts_BL = counts(batch, self.padding)
        rows = accounting.count((counts_BL > 0).any(axis=1))
        for number, name in enumerate(self.tasks):
            counts_of_task_BL = counts_BL * (batch[TASK] == number)[:, None]
            learned = {**own(batch, name), _MASK: counts_of_task_BL}
            yield name, learned, self._denominator(name, learned, rows)

    def _denominator(self, name: str, rows_of_task: Batch, rows: jax.Array) -> jax.Array:
        """The denominator with which a task has its share of the rows: float32 [].

        It is that of the task's mean, times all rows, by the rows of the task.
        """
        counts_BL = rows_of_task[_MASK]
        counted = label_losses.label_weights(rows_of_task, counts_BL)
        weighed = label_losses.example_weights(rows_of_task, counted)
        loss = self.label_losses[self.tasks.index(name)]
        weight = loss.denominator(rows_of_task, weighed)
        number = accounting.count((counts_BL > 0).any(axis=1))
        return jnp.where(number > 0, rows * weight / accounting.at_least_one(number), rows)

    def counted(self, batch: Batch) -> dict[str, jax.Array]:
        """Counts tokens only."""
        return {"tokens": accounting.count(counts(batch, self.padding))}
