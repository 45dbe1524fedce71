"""Pseudo-log-likelihoods of texts, by models that guess masked tokens."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import ClassVar, NamedTuple

import jax
import numpy as np

from t5x_like.inference import masked_words, text_rows
from t5x_like.inference.likelihoods.likelihood import Likelihood, Span, fitted, joined
from t5x_like.inference.model_on_mesh import ModelOnMesh
from t5x_like.inference.text_rows import Framing, Row
from t5x_like.objectives.parts.words import word_bounds, word_starts


class _Blank(NamedTuple):
    """A row whose tokens from number `at` up to `end` are to be masked; `at` is asked for."""

    row: Row
    at: int
    end: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class MaskedScorer:
    """The pseudo-log-likelihood of texts: each token is masked in turn (Salazar et al., 2020).

    Attributes:
      model: predicts masked tokens.
      framing: of texts; tokens that it adds are not masked.
      within_word: whether the later pieces of a token's word are masked with it, so that they do
        not give it away (Kauf and Ivanova, 2023).
      batch_size: the rows of a batch.
    """

    both_sides: ClassVar[bool] = True

    model: ModelOnMesh
    framing: Framing
    within_word: bool = False
    batch_size: int = text_rows.ROWS

    def __call__(self, rows: Sequence[Row]) -> list[Likelihood]:
        """The sum over a row's tokens of log p(token | all others).

        Raises:
          ValueError: words are asked for, and the vocabulary does not say where they begin.
        """
        return self._sums([[*self._blanks(row)] for row in rows])

    def spans(self, spans: Sequence[Span]) -> list[Likelihood]:
        """How likely each span is, of which all pieces from the asked one on are masked.

        A text that is too long loses its first tokens, or its last ones where the span is nearer to
        the beginning.
        """
        first, room = len(self.framing.before), self.framing.room
        blanks = []
        for span in spans:
            tokens, begin, end = fitted(span, room)
            row = self.framing.row(tokens)
            blanks.append([_Blank(row, first + n, first + end) for n in range(begin, end)])
        return self._sums(blanks)

    def _blanks(self, row: Row) -> Iterator[_Blank]:
        """The blanks of a row's tokens, one by one."""
        tokens = np.array(row.tokens)
        bounds = np.arange(len(tokens) + 1)
        if self.within_word:
            bounds = word_bounds(word_starts(tokens, self.framing.ids))
        for begin, end in itertools.pairwise(bounds.tolist()):
            yield from (
                _Blank(row, at, end)
                for at in range(begin, end)
                if self.framing.is_text(row.tokens[at])
            )

    def _sums(self, blanks: Sequence[Sequence[_Blank]]) -> list[Likelihood]:
        likelihoods = iter(self._likelihoods([blank for some in blanks for blank in some]))
        return [joined([next(likelihoods) for _ in some]) for some in blanks]

    def _likelihoods(self, blanks: Sequence[_Blank]) -> list[Likelihood]:
        ids = self.framing.ids
        mask = ids.given("mask")
        masked = [
            row._replace(tokens=[*row.tokens[:at], *[mask] * (end - at), *row.tokens[end:]])
            for row, at, end in blanks
        ]
        likelihoods = [Likelihood(0.0, True, 0)] * len(blanks)
        for batch in self.framing.batches(masked, self.model.rows(self.batch_size)):
            at = np.zeros((len(batch.tokens), 1), np.int32)
            for place, n in enumerate(batch.numbers):
                at[place, 0] = blanks[n].at
            logits = self.model(masked_words.predictions, masked_words.asked(batch, at))
            log_p = np.asarray(jax.nn.log_softmax(logits[:, 0, : ids.vocab_size]))
            best = log_p.argmax(axis=1)
            for place, n in enumerate(batch.numbers):
                wanted = blanks[n].row.tokens[blanks[n].at]
                likelihoods[n] = Likelihood(
                    float(log_p[place, wanted]), bool(best[place] == wanted), 1
                )
        return likelihoods
