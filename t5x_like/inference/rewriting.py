"""Fills the masks of texts with a model that writes the whole text again, such as a BART."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from t5x_like.inference.fill_blanks import Filled
from t5x_like.inference.masked_words import masked_row
from t5x_like.inference.writing import Writing


@dataclasses.dataclass(frozen=True)
class Rewriting(Writing):
    """The predictor of encoder-decoders that read masks (`predictions.Predictor`)."""

    def check(self, record: Mapping[str, Any]) -> None:
        """Raises ValueError where a text has no blank, or one that the model does not read."""
        masked_row(record["inputs"], self.framing)

    def __call__(self, records: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """`filled`: the whole text, as the model writes it."""
        texts = [record["inputs"] for record in records]
        cut = [masked_row(text, self.framing).truncated for text in texts]
        return [
            {"filled": text.filled} | ({"truncated": True} if truncated else {})
            for text, truncated in zip(self.fill(texts), cut, strict=True)
        ]

    def fill(self, texts: Sequence[str]) -> list[Filled]:
        """Whole texts, as the model writes them; what it puts into each blank is not told apart.

        Raises:
          ValueError: a text has no blank, or one that the model does not read.
        """
        written = self.writer([masked_row(text, self.framing).tokens for text in texts])
        return [
            Filled(text, (), self.framing.vocabulary.decode(best.tokens))
            for text, (best, *_) in zip(texts, written, strict=True)
        ]
