"""Pseudo-log-likelihoods of texts, by encoder-decoders that fill blanks."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from t5x_like.inference.likelihoods.likelihood import Likelihood, Span, fitted, joined
from t5x_like.inference.likelihoods.target_scorer import Pair, TargetScorer
from t5x_like.inference.text_rows import Framing
from t5x_like.objectives.parts.words import word_bounds, word_starts


@dataclasses.dataclass(frozen=True)
class BlankScorer:
    """The likelihood of each word of a text in place of a blank, summed over the words.

    Where masked models mask a token, this hides a whole word, as these models learn to fill spans
    of any length. A T5 writes the word after the blank's sentinel; a BART writes the text again up
    to the word's end. Only the word's tokens count.

    Attributes:
      score: the likelihood of a target.
      framing: of the text with its blank.
      rewrites: whether the model writes the whole text again.
    """

    both_sides: ClassVar[bool] = True

    score: TargetScorer
    framing: Framing
    rewrites: bool

    def __call__(self, texts: Sequence[str]) -> list[Likelihood]:
        """The sum over a text's words of log p(word | all others).

        Raises:
          ValueError: the vocabulary does not say where words begin.
        """
        spans = [self.words(text) for text in texts]
        likelihoods = iter(self.spans([span for some in spans for span in some]))
        return [joined([next(likelihoods) for _ in some]) for some in spans]

    def words(self, text: str) -> list[Span]:
        """The words of a text."""
        tokens = self.framing.vocabulary.encode(text)
        bounds = word_bounds(word_starts(np.array(tokens, np.int32), self.framing.ids)).tolist()
        return [Span([*tokens], begin, end) for begin, end in itertools.pairwise(bounds)]

    def spans(self, spans: Sequence[Span]) -> list[Likelihood]:
        """How likely each span is in place of a blank; a text that is too long is cut around it."""
        return self.score([self._pair(span) for span in spans])

    def _pair(self, span: Span) -> Pair:
        ids = self.framing.ids
        blank = ids.given("mask") if self.rewrites else ids.sentinel(0)
        tokens, begin, end = fitted(span, self.framing.room)
        inputs = self.framing.row([*tokens[:begin], blank, *tokens[end:]]).tokens
        word = tokens[begin:end]
        written = [*self.framing.before, *tokens[:begin]] if self.rewrites else [blank]
        return Pair(inputs, [*written, *word], len(word))
