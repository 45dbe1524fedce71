"""A pretrained body, alone or with a task head: classes, numbers, choices, tags, answers.

Suffixes: B batch, A alternatives of a choice, L length, C classes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
from flax import nnx

from t5x_like.core.abilities import NamesClasses
from t5x_like.layers.dropout import subkeys
from t5x_like.layers.families.body import OnBody
from t5x_like.layers.heads import label_heads
from t5x_like.layers.losses import accounting, task_losses
from t5x_like.layers.losses.accounting import Term
from t5x_like.layers.losses.term_loss import TermLoss

if TYPE_CHECKING:
    from t5x_like.core.protocols.model import Batch, Metrics


class FineTuned(OnBody, TermLoss):
    """A body and a head.

    The body has a `config`, with `d_model` and `dtype`, and `hidden(batch, key)`. A batch holds
    what the body reads and, for the loss, what the task needs (`task_losses`). For a choice,
    every array that the body reads has the alternatives as its second dimension, [B, A, ...].
    """

    def __init__(
        self,
        body: Callable[..., nnx.Module],
        head: Callable[..., nnx.Module] | None = None,
        *,
        task: task_losses.Task = task_losses.classes,
        rngs: nnx.Rngs,
    ) -> None:
        self.body = body(rngs=rngs)
        config = self.body.config
        self.head = head and head(config.d_model, dtype=config.dtype, rngs=rngs)
        self.task = task
        self.config = config

    def logits(self, batch: Batch, key: jax.Array | None = None) -> jax.Array:
        """The head's logits: float32 [B, C], [B, L, C], or [B, A] for a choice."""
        alternatives = None
        if _read(batch).ndim == 3:
            alternatives = _read(batch).shape[1]
            batch = {name: x.reshape(-1, *x.shape[2:]) for name, x in batch.items() if x.ndim > 1}
        keys = subkeys(key, 2)
        tokens_BL = _read(batch)
        counts_BL = self._counts(batch)
        if self.head is None:
            raise ValueError("this body has no head: read its states with body.hidden(batch)")
        x_BLD = self.body.hidden(batch, keys[0]).last
        logits = self.head(x_BLD, tokens_BL, counts_BL, keys[1])
        return logits if alternatives is None else logits.reshape(-1, alternatives)

    @property
    def abilities(self) -> tuple[type, ...]:
        """Those of a body and a head; to name classes where the head and the task do that."""
        names_classes = self.has_task_head and self.answer_form == "classes"
        return (*super().abilities, *([NamesClasses] if names_classes else []))

    @property
    def has_task_head(self) -> bool:
        """Whether it has a head that does more than to pool the states."""
        return not (self.head is None or isinstance(self.head, label_heads.PooledState))

    @property
    def answer_form(self) -> str:
        """What the head and the task make: `spans`, `tags`, `numbers`, `choices` or `classes`."""
        name = getattr(self.task, "__name__", "")  # gin wraps functions that it refers to
        if isinstance(self.head, label_heads.TokenHead):
            return "spans" if name == task_losses.spans.__name__ else "tags"
        if name == task_losses.numbers.__name__:
            return "numbers"
        one = self.num_labels == 1
        return "choices" if one and name == task_losses.classes.__name__ else "classes"

    @property
    def num_labels(self) -> int:
        """The logits of a text, or of a token; only where there is a task's head."""
        if self.head is None:
            raise ValueError("this body has no head")
        found: int = self.head.out.kernel.shape[-1]
        return found

    def answers(self, batch: Batch) -> jax.Array:
        """The head's logits."""
        return self.logits(batch)

    @property
    def padding(self) -> int | None:
        """The body's."""
        found: int | None = self.body.padding
        return found

    def weights(self, batch: Batch) -> dict[str, jax.Array]:
        """The denominator of the one term, named `task`: the labels (`label_weights`)."""
        return {"task": task_losses.label_weights(batch, self._counts(batch)).sum()}

    def terms(self, batch: Batch, key: jax.Array | None) -> tuple[dict[str, Term], Metrics]:
        """The task's term and its metrics."""
        weighed = task_losses.label_weights(batch, self._counts(batch))
        term, metrics = self.task(self.logits(batch, key), batch, weighed)
        return {"task": term}, dict(metrics)

    def counted(self, batch: Batch) -> dict[str, jax.Array]:
        """Counts tokens only."""
        return {"tokens": accounting.count(self._counts(batch))}

    def _counts(self, batch: Batch) -> jax.Array:
        """Above 0 for tokens; all count where nothing marks padding."""
        if "encoder_attention_mask" in batch:
            return batch["encoder_attention_mask"]
        return _read(batch) != (-1 if self.padding is None else self.padding)


def _read(batch: Batch) -> Any:
    """The tokens that a head pools over: the encoder's, or those of a lone decoder."""
    return batch[
        "encoder_input_tokens" if "encoder_input_tokens" in batch else "decoder_input_tokens"
    ]
