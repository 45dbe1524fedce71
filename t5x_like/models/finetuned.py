"""A pretrained body, alone or with a task head: classes, numbers, choices, tags, answers.

Suffixes: B batch, A alternatives of a choice, L length, C classes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from flax import nnx

from t5x_like.core.abilities import LAST, NamesClasses, ReadsPackedRows, States, Want, can
from t5x_like.layers.basics.dropout import subkeys
from t5x_like.layers.basics.modules import Linear
from t5x_like.layers.families import packed_texts, prompts
from t5x_like.layers.families.body import OnBody
from t5x_like.layers.families.prompts import Prompt
from t5x_like.layers.heads import label_heads, word_means
from t5x_like.layers.heads.state_mixtures import Concatenation, ScalarMix
from t5x_like.layers.losses import (
    accounting,
    label_losses,
    ordered_classes,
    r_drop,
    task_distillation,
)
from t5x_like.layers.losses.accounting import Term
from t5x_like.layers.losses.task_distillation import TaskDistillation
from t5x_like.layers.losses.term_loss import TermLoss

if TYPE_CHECKING:
    from t5x_like.core.protocols.model import Batch, Carry, Metrics


_NAMED = ("classes", "several", "tags", "ordered")


class FineTuned(OnBody, TermLoss):
    """A body and a head.

    The body has a `config`, with `d_model` and `dtype`, and `hidden(batch, key)`. A batch holds
    what the body reads and, for the loss, what the task needs (`label_losses`). For a choice,
    every array that the body reads has the alternatives as its second dimension, [B, A, ...].

    Rows of several texts have the labels of each text at its first token, or those of its tokens.

    With `r_drop` above 0, a step asks twice, with other units dropped. Its loss is the mean of both
    losses, and `r_drop` times the mean distance of both answers (`losses.r_drop`). Published code
    sums the distances of a batch (Liang et al., 2021), so that its weights are other ones.

    With a `mixture`, the head reads what it makes of the states of all layers. With a `prompt`,
    virtual tokens are in front of each text (`layers.adapters.prompt`).

    With a `distillation`, a batch has a teacher's answers (`runs.completers.task_teacher`).
    """

    prompt: Prompt | None = None
    teacher_projection: Linear | None = None

    def __init__(
        self,
        body: Callable[..., Any],
        head: Callable[..., Any] | None = None,
        *,
        label_loss: label_losses.LabelLoss = label_losses.classes,
        r_drop: float = 0.0,
        mixture: Callable[..., ScalarMix | Concatenation] | None = None,
        distillation: TaskDistillation | None = None,
        rngs: nnx.Rngs,
    ) -> None:
        self.body = body(rngs=rngs)
        config = self.body.config
        self.mixture = mixture and mixture(rngs=rngs)
        width = config.d_model if self.mixture is None else self.mixture.width(config.d_model)
        self.head = head and head(width, dtype=config.dtype, rngs=rngs)
        self.label_loss = label_loss
        self.r_drop = r_drop
        self.distillation = distillation
        self.config = config

    def logits(self, batch: Batch, key: jax.Array | None = None) -> jax.Array:
        """The head's logits: float32 [B, C], [B, L, C], or [B, A] for a choice.

        Where rows are packed, those of a text are at its first token: [B L, C], [B L, L, C] of
        spans, and [B L, A] at the first token of a choice.

        An alternative without tokens is not one: it cannot be chosen. Where the batch has
        `word_ids`, each token of a word has the mean over its tokens.
        """
        return self._answered(batch, key)[0]

    def _answered(
        self, batch: Batch, key: jax.Array | None, *, want: Want = LAST
    ) -> tuple[jax.Array, States]:
        """The head's logits, and the body's states of the texts."""
        alternatives = None
        if _tokens(batch).ndim == 3:
            alternatives = _tokens(batch).shape[1]
            batch = {name: x.reshape(-1, *x.shape[2:]) for name, x in batch.items() if x.ndim > 1}
        keys = subkeys(key, 2)
        counts_BL = counts(batch, self.padding)
        want = want._replace(states=want.states or self.mixture is not None)
        states = self.body.hidden(prompts.before(self.prompt, batch), keys[0], want=want)
        states = prompts.without(self.prompt, states)
        x_BLD = states.last
        if self.mixture is not None and states.states is not None:
            x_BLD = self.mixture(states.states)
        logits = self.of_states(x_BLD, batch, keys[1])
        if alternatives is not None:
            counts_BAL = counts_BL.reshape(-1, alternatives, counts_BL.shape[-1])
            chosen_BA = logits.reshape(-1, alternatives)
            logits = label_heads.of_alternatives(chosen_BA, counts_BAL)
        return logits, states

    def of_states(self, x_BLD: jax.Array, batch: Batch, key: jax.Array | None = None) -> jax.Array:
        """The logits of the head for states of the body, one row for each of theirs.

        Raises:
          ValueError: there is no head.
        """
        if self.head is None:
            raise ValueError("this body has no head: read its states with body.hidden(batch)")
        apart = packed_texts.are_packed(batch) and self.label_loss.form != "tags"
        counted = packed_texts.counts(batch) if apart else counts(batch, self.padding)
        logits: jax.Array = self.head(x_BLD, _tokens(batch), counted, key)
        if apart and self.label_loss.form == "spans":
            return packed_texts.of_tokens(logits, batch)
        if apart:
            return packed_texts.of_texts(logits, batch)
        if "word_ids" in batch:
            logits = word_means.of_words(logits, batch["word_ids"])
        return logits

    @property
    def max_tokens(self) -> int | None:
        """The body's, less those of a prompt."""
        return prompts.room(self.prompt, super().max_tokens)

    def states(self, batch: Batch, *, want: Want = LAST) -> States:
        """The body's states."""
        states = super().states(prompts.before(self.prompt, batch), want=want)
        return prompts.without(self.prompt, states)

    @property
    def abilities(self) -> tuple[type, ...]:
        """Abilities of a body and a head; `NamesClasses` where the answers have names."""
        names_classes = self.has_task_head and self.answer_form in _NAMED
        alone = self.prompt is not None or self.distillation is not None
        return (
            *super().abilities,
            *([NamesClasses] if names_classes else []),
            *([ReadsPackedRows] if can(self.body, ReadsPackedRows) and not alone else []),
        )

    @property
    def has_task_head(self) -> bool:
        """Whether it has a head that does more than to pool the states."""
        return not (self.head is None or isinstance(self.head, label_heads.PooledState))

    @property
    def answer_form(self) -> str:
        """The form of the answers, as the loss declares it.

        It is `spans`, `tags`, `numbers`, `several` (classes at once), `ordered` (classes in an
        order), `choices` (classes of which a text has one logit) or `classes`.
        """
        form = self.label_loss.form
        if form == "classes" and self.num_labels == 1:
            return "choices"
        return "classes" if form == "neighbours" else form

    @property
    def drops(self) -> bool:
        """Whether its body or its head drops units in training."""
        rates = [rate for name, rate in vars(self.config).items() if name.endswith("_rate")]
        return any(rates) or (self.head is not None and self.head.drops)

    @property
    def num_labels(self) -> int:
        """The number of classes, or of the logits of other answers.

        Raises:
          ValueError: there is no head.
        """
        if self.head is None:
            raise ValueError("this body has no head")
        count: int = self.head.out.kernel.shape[-1]
        return count + (self.label_loss.form == "ordered")

    def answers(self, batch: Batch) -> jax.Array:
        """The head's logits; of ordered classes the log of their probabilities."""
        logits = self.logits(batch)
        return self._log_probabilities(logits) if self.label_loss.form == "ordered" else logits

    @property
    def padding(self) -> int | None:
        """The padding id of the body."""
        padding: int | None = self.body.padding
        return padding

    def weights(self, batch: Batch) -> dict[str, jax.Array]:
        """The denominators of `task`, the weight of the labels, and of `r_drop`."""
        labelled, _, weighed = self._labelled(batch)
        weights = {"task": self.label_loss.denominator(labelled, weighed)}
        if self.distillation is not None:
            tokens = accounting.count(counts(batch, self.padding))
            more = {"states": tokens} if self.distillation.states else {}
            return {**weights, "teacher": weighed.sum(), **more}
        return weights | ({"r_drop": weighed.sum()} if self.r_drop else {})

    def terms(
        self, batch: Batch, key: jax.Array | None, carry: Carry
    ) -> tuple[dict[str, Term], Metrics, Carry]:
        """The task's term, in which rows may have weights, and metrics, which count each once.

        In training, R-Drop's term besides.
        """
        labelled, counted, weighed = self._labelled(batch)
        if self.distillation is not None:
            return *self._taught(batch, key, counted, weighed), carry
        twice = key is not None and self.r_drop > 0
        answers = [self.logits(batch, k) for k in (subkeys(key, 2) if twice else [key])]
        losses = [self.label_loss(logits, labelled, weighed)[0] for logits in answers]
        _, metrics = self.label_loss(answers[0], labelled, counted)
        mean = jnp.stack([term.sum for term in losses]).mean()
        terms = {"task": losses[0]._replace(sum=mean)}
        if twice:
            distances = r_drop.divergence(*map(self._log_probabilities, answers))
            distance = (distances * weighed).sum()
            terms["r_drop"] = Term(distance, weighed.sum(), coefficient=self.r_drop)
        return terms, dict(metrics), carry

    def _labelled(self, batch: Batch) -> tuple[Batch, jax.Array, jax.Array]:
        """What has the labels of the logits, their weights, and those weights in the loss."""
        counted_BL = counts(batch, self.padding)
        if packed_texts.are_packed(batch):
            if self.label_loss.form == "tags":
                batch = packed_texts.with_weights_of_tokens(batch)
            else:
                batch, counted_BL = packed_texts.labelled_texts(batch)
        weights = label_losses.label_weights(batch, counted_BL)
        return batch, weights, label_losses.example_weights(batch, weights)

    def _taught(
        self, batch: Batch, key: jax.Array | None, counted: jax.Array, weighed: jax.Array
    ) -> tuple[dict[str, Term], Metrics]:
        """The terms of the labels and of a teacher, and metrics.

        Raises:
          ValueError: the batch has no answers of a teacher.
        """
        distillation = self.distillation
        assert distillation is not None  # for the type checker
        if task_distillation.LOGITS not in batch:
            raise ValueError(
                "this model learns from a teacher, and the batch has none of its answers: a run "
                "with `finetune --teacher` adds them"
            )
        want = Want(states=distillation.states > 0)
        logits, states = self._answered(batch, key, want=want)
        term, _ = self.label_loss(logits, batch, weighed)
        _, metrics = self.label_loss(logits, batch, counted)
        said = distillation.answers(
            logits, batch[task_distillation.LOGITS], weighed, form=self.answer_form
        )
        terms = {"task": term._replace(coefficient=1 - distillation.weight), "teacher": said}
        if states.states is not None and distillation.states:
            states_BMLD = states.states.swapaxes(0, 1)
            if self.teacher_projection is not None:
                states_BMLD = self.teacher_projection(states_BMLD)
            terms["states"] = distillation.of_states(
                states_BMLD, batch[task_distillation.STATES], counts(batch, self.padding)
            )
        return terms, dict(metrics)

    def _log_probabilities(self, logits: jax.Array) -> jax.Array:
        """The log of the probabilities of classes, float32 [..., C]."""
        if self.label_loss.form == "ordered":
            return ordered_classes.log_probabilities(logits)
        return jax.nn.log_softmax(logits.astype(jnp.float32))

    def counted(self, batch: Batch) -> dict[str, jax.Array]:
        """Counts tokens only."""
        return {"tokens": accounting.count(counts(batch, self.padding))}


def counts(batch: Batch, padding: int | None) -> jax.Array:
    """Above 0 for the tokens that a head on a body reads; all count where nothing marks padding."""
    if "encoder_attention_mask" in batch:
        return batch["encoder_attention_mask"]
    return _tokens(batch) != (-1 if padding is None else padding)


def _tokens(batch: Batch) -> Any:
    """The tokens that a head pools over: the encoder's, or those of a lone decoder."""
    return batch[
        "encoder_input_tokens" if "encoder_input_tokens" in batch else "decoder_input_tokens"
    ]
