"""Abilities of models besides learning: each is a protocol, which a model declares.

A model's attribute `abilities` lists these protocols. `check` compares it with what the model has;
everything that asks a model looks at `can` alone.

Suffixes: B batch, L length, M input length, K asked positions, N layers, H heads, D d_model, V
vocabulary.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from t5x_like.core.protocols.members import lacking
from t5x_like.core.protocols.model import Decodable

if TYPE_CHECKING:
    from collections.abc import Sequence

    import jax

    from t5x_like.core.protocols.model import Batch


class Want(NamedTuple):
    """The wanted results of a stack besides its last states: those of all layers, and attention."""

    states: bool = False
    attention: bool = False


LAST, ALL = Want(), Want(states=True, attention=True)


class States(NamedTuple):
    """The states that a stack computes, float [B, L, D], and more if it is wanted.

    Attributes:
      last: the states that heads read.
      states: the input of the first layer and the output of each, [N + 1, B, L, D].
      attention: the probabilities of each layer before dropout, [N, B, H, L, L]; in a decoder, to
        its own positions.
      cross: those of a decoder to the encoder's, [N, B, H, L, M].
    """

    last: jax.Array
    states: jax.Array | None = None
    attention: jax.Array | None = None
    cross: jax.Array | None = None


class Body(Protocol):
    """A model, or the part of one, whose states heads read.

    Attributes:
      padding: the id that it treats as padding where a batch has no mask; None where it needs none.
    """

    @property
    def padding(self) -> int | None: ...

    def hidden(self, batch: Batch, key: jax.Array | None = None, *, want: Want = LAST) -> States:
        """The states of a batch; `key` None: without dropout."""


class GivesStates(Protocol):
    """It gives the states of a text.

    Attributes:
      max_tokens: the most tokens of a row that it reads; None for any number.
    """

    @property
    def max_tokens(self) -> int | None: ...

    def states(self, batch: Batch, *, want: Want = LAST) -> States:
        """The states of int32 `encoder_input_tokens`, whose mask is `encoder_attention_mask`.

        An encoder-decoder gives its encoder's, and a decoder alone reads the same tokens.
        """


class ReadsPackedRows(Protocol):
    """A text has the states, and a head's loss, in a row of several that it has alone.

    Of a batch it reads int32 `encoder_segment_ids` and `encoder_positions`, [B, L] each, as
    `feature_converters.Encoder` makes them.
    """


class GuessesMasked(Protocol):
    """It predicts masked tokens."""

    def guesses(self, batch: Batch) -> jax.Array:
        """Logits at `masked_positions` (int32 [B, K]) of an encoder's batch: float32 [B, K, V].

        The batch is one of the model's objective, or has `blanks`, int32 [B, L], 1 at these
        positions.
        """


class MarksReplaced(Protocol):
    """It tells tokens that were replaced from others."""

    def marks(self, batch: Batch) -> jax.Array:
        """Above 0 where a token of an encoder's batch looks replaced: float32 [B, L]."""


class ReplacesTokens(Protocol):
    """It marks what a generator of its own puts into a text."""

    def replaced_by_itself(self, batch: Batch) -> dict[str, jax.Array]:
        """A batch of its objective as it reads it, with `encoder_original_tokens`."""


class AnswersTask(Protocol):
    """It has a task's head.

    Attributes:
      answer_form: "classes", "several", "numbers", "tags", "spans" or "choices", which are made of
        logits, "ordered", or "searched spans".
    """

    @property
    def answer_form(self) -> str: ...

    def answers(self, batch: Batch) -> Any:
        """The head's logits for a body's batch, float32, or the spans that it has found.

        Of ordered classes they are the log of the probabilities.
        """


class AnswersTasks(Protocol):
    """It has the heads of several tasks.

    Attributes:
      tasks: the names of the tasks.
    """

    @property
    def tasks(self) -> tuple[str, ...]: ...

    def of_task(self, name: str) -> Any:
        """A model of one task, which `AnswersTask`, with the same parameters."""


class NamesClasses(AnswersTask, Protocol):
    """Its answers are classes of whole texts, or of tokens, which are tags.

    Attributes:
      num_labels: the number of classes.
    """

    @property
    def num_labels(self) -> int: ...


class ScoresTargets(Protocol):
    """It gives the likelihood of targets."""

    def logits(self, batch: Batch) -> jax.Array:
        """Of each target after those before it: float32 [B, L, V]."""


class CountsFlops(Protocol):
    """It counts the operations of its steps."""

    def flops(self, batch: Batch) -> jax.Array:
        """Floating point operations of a training step on a batch of its objective, float32 [].

        Matrix products only, backward twice forward, without padding. It reads the shapes of its
        parameters alone.
        """


class TrainsInTurn(Protocol):
    """The terms of its loss come in turn in a step: a later one is that of parameters after it.

    Attributes:
      turns: the numbers of its turns, in order.
    """

    @property
    def turns(self) -> Sequence[int]: ...

    def loss_of_turn(
        self, turn: int, batch: Batch, key: jax.Array | None, carry: Any, weights: Any
    ) -> tuple[jax.Array, Any, Any]:
        """The terms of a turn, as `Model.loss` gives all; each turn has the carry of the last."""


class Writes(Decodable, Protocol):
    """It writes token by token.

    Attributes:
      reads_apart: whether it reads inputs apart from what it writes, as an encoder-decoder does.
      max_tokens: the most tokens of a row, or of a side, that it reads; None for any number.
    """

    @property
    def reads_apart(self) -> bool: ...

    @property
    def max_tokens(self) -> int | None: ...


def can(model: Any, ability: type) -> bool:
    """Whether a model declares an ability; one that declares none can only be trained."""
    return ability in getattr(model, "abilities", ())


def check(model: Any) -> None:
    """Compares what a model declares with what it has.

    Raises:
      ValueError: it lacks a member of an ability that it declares.
    """
    for ability in getattr(model, "abilities", ()):
        if missing := lacking(model, ability):
            raise ValueError(
                f"{type(model).__name__} declares {ability.__name__}, but has no "
                f"{', '.join(missing)}: core.abilities says what these are"
            )
