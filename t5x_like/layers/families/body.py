"""A part of a model that reads an encoder's batch, for heads and for those who ask for states."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from t5x_like.core.abilities import (
    LAST,
    AnswersTask,
    GivesStates,
    ReadsPackedRows,
    States,
    Want,
    can,
)
from t5x_like.layers.basics.modules import Embedding

if TYPE_CHECKING:
    import jax

    from t5x_like.core.protocols.model import Batch


class EncoderBody:
    """A body whose states are those of its `hidden`."""

    abilities: ClassVar[tuple[type, ...]] = (GivesStates,)
    padding: int | None = None  # masks tell what is padding

    @property
    def max_tokens(self) -> int | None:
        """None: any number."""
        return None

    def hidden(self, batch: Batch, key: jax.Array | None = None, *, want: Want = LAST) -> States:
        """The states of a batch; a subclass defines it."""
        raise NotImplementedError

    def states(self, batch: Batch, *, want: Want = LAST) -> States:
        """Those of `hidden`, without dropout."""
        return self.hidden(batch, want=want)


class PositionedEncoder(EncoderBody):
    """An encoder whose `config` says for how many positions it is made, `max_positions`.

    Its `embedding` has the token table. It reads packed rows.
    """

    abilities: ClassVar[tuple[type, ...]] = (GivesStates, ReadsPackedRows)
    config: Any
    embedding: Any

    @property
    def max_tokens(self) -> int | None:
        """How many positions it is made for."""
        limit: int = self.config.max_positions
        return limit

    @property
    def tokens(self) -> Embedding:
        """The token table, which heads score with."""
        table: Embedding = self.embedding.tokens
        return table


class WithEncoder:
    """A pretraining model whose states are those of its encoder."""

    encoder: Any
    abilities: ClassVar[tuple[type, ...]] = (GivesStates,)

    @property
    def max_tokens(self) -> int | None:
        """The encoder's."""
        limit: int | None = self.encoder.max_tokens
        return limit

    def states(self, batch: Batch, *, want: Want = LAST) -> States:
        """The encoder's states."""
        states: States = self.encoder.hidden(batch, want=want)
        return states


class OnBody:
    """A model that a body and a head make; it gives the body's states."""

    body: Any

    @property
    def abilities(self) -> tuple[type, ...]:
        """To answer where there is a task's head, and to give states where the body can."""
        return (
            *([AnswersTask] if self.has_task_head else []),
            *([GivesStates] if can(self.body, GivesStates) else []),
        )

    @property
    def has_task_head(self) -> bool:
        """Whether the head answers."""
        return True

    @property
    def max_tokens(self) -> int | None:
        """The body's."""
        limit: int | None = self.body.max_tokens
        return limit

    def states(self, batch: Batch, *, want: Want = LAST) -> States:
        """The body's states."""
        states: States = self.body.states(batch, want=want)
        return states
