"""The choice of a run's vocabulary: a named one, or one trained on the run's own text."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

from t5x_like.core.buckets import sending, staging
from t5x_like.core.protocols.data import Vocabulary
from t5x_like.data.cache import location
from t5x_like.data.cache.lock import sole_writer
from t5x_like.vocabularies import files, loading
from t5x_like.vocabularies.learning.vocabulary_recipe import (
    CHARACTER_COVERAGE,
    PATTERN,
    Recipe,
    train,
)
from t5x_like.vocabularies.sentinels import USUAL_EXTRA_IDS

_SPECIAL_TOKENS = 2
"""A number in the names of trained vocabularies. It changes when their special tokens change."""


class TrainingText(Protocol):
    """Text to train a vocabulary on: a corpus, or several."""

    @property
    def name(self) -> str: ...

    def fingerprint(self) -> str:
        """A hex digest of the text and of how it is read."""

    def training_texts(self) -> Iterator[str]:
        """The texts, in the same order each time."""


Once = Callable[[str, Path, Callable[[], bool], Callable[[], None]], None]
"""A function of (name, path, exists, make): one process makes a missing `path`, others wait."""


Check = Callable[[int, Vocabulary | None], None]
"""A function of (number of ids, vocabulary) that raises where a run cannot use the vocabulary.

The vocabulary is None while it does not exist yet.
"""


def no_check(ids: int, vocabulary: Vocabulary | None) -> None:
    """A `Check` that every vocabulary passes."""


def alone(name: str, path: Path, exists: Callable[[], bool], make: Callable[[], None]) -> None:
    """The `Once` for a single process."""
    del name, path
    if not exists():
        make()


def never(name: str, path: Path, exists: Callable[[], bool], make: Callable[[], None]) -> None:
    """The `Once` that makes nothing: whatever reads the missing thing says that it is missing."""
    del name, path, make
    exists()  # it fetches what a bucket has


@dataclasses.dataclass(frozen=True, kw_only=True)
class VocabularyChoice:
    """A vocabulary as a configuration names it.

    Attributes:
      name: a name that `vocabularies.loading.load` accepts, such as `bytes`, a `.model` file or a
        directory, on a disk or in a bucket; None trains one on the corpus at its first use.
      size: the number of pieces of a trained vocabulary, with special ids and without sentinels.
      kind: the kind of a trained vocabulary, one of `vocabulary_recipe.KINDS`.
      extra_ids: the number of sentinels; None for the usual number (100 for trained vocabularies
        and `.model` files, none for others).
      lowercase: whether a trained vocabulary of WordPiece or of words lower-cases text.
      strip_accents: whether it takes accents, umlauts, vowel signs and tones away; None does so
        where text is lower-cased, as in BERT.
      character_coverage: the share of the text whose characters a trained vocabulary has.
      byte_fallback: whether a trained SentencePiece vocabulary spells other characters as bytes.
      pattern: the pattern whose boundaries no piece of a trained byte-level BPE crosses: `gpt4o`,
        or `gpt2` as for RoBERTa.
    """

    name: str | None = None
    size: int = 32_000
    kind: str = "unigram"
    extra_ids: int | None = None
    lowercase: bool = False
    strip_accents: bool | None = None
    character_coverage: float = CHARACTER_COVERAGE
    byte_fallback: bool = False
    pattern: str = PATTERN

    def __post_init__(self) -> None:
        try:
            self._recipe()
        except ValueError as error:
            raise ValueError(f"VOCAB_TYPE or VOCAB_SIZE: {error}") from error

    def _recipe(self) -> Recipe:
        extra_ids = USUAL_EXTRA_IDS if self.extra_ids is None else self.extra_ids
        return Recipe(
            kind=self.kind,
            size=self.size,
            extra_ids=extra_ids,
            lowercase=self.lowercase,
            strip_accents=self.strip_accents,
            character_coverage=self.character_coverage,
            byte_fallback=self.byte_fallback,
            pattern=self.pattern,
        )

    @property
    def _label(self) -> str:
        """The part of a trained vocabulary's name that gives all but its text and size."""
        parts = [f"{self.kind}.{_SPECIAL_TOKENS}"]
        parts += ["lowercase"] * self.lowercase + ["bytes"] * self.byte_fallback
        parts += [] if self.strip_accents is None else [f"accents{not self.strip_accents:d}"]
        parts += [self.pattern] * (self.pattern != "gpt2" and self.kind == "byte_bpe")
        if self.character_coverage != CHARACTER_COVERAGE:
            parts.append(f"{self.character_coverage!r}".replace(".", "_"))
        return ".".join(parts)

    def ids(self) -> int:
        """The number of its ids; a vocabulary that is trained has at most so many.

        Raises:
          ValueError, OSError: there is no such vocabulary.
        """
        if self.name is not None:
            return loading.load(self.name, extra_ids=self.extra_ids).vocab_size
        recipe = self._recipe()
        return recipe.size + recipe.extra_ids

    def open(
        self,
        corpus: TrainingText | None,
        root: Path,
        *,
        once: Once = alone,
        check: Check = no_check,
    ) -> Vocabulary:
        """Loads the vocabulary, and trains it first where necessary.

        Args:
          corpus: the text to train on.
          root: the cache root, where trained vocabularies are kept.
          once: lets one process train while the others wait.
          check: called before training, which takes a while.

        Raises:
          ValueError, OSError: there is no such vocabulary, or no text to train one on.
        """
        if self.name is not None:
            return loading.load(self.name, extra_ids=self.extra_ids)
        if corpus is None:
            raise ValueError(
                "no vocabulary is named and there is no text to train one on: set VOCABULARY to "
                "'bytes' or to the vocabulary that the cache was made with"
            )
        recipe = self._recipe()
        file = location.vocabulary_file(
            root,
            corpus.name,
            fingerprint=corpus.fingerprint(),
            kind=self._label,
            size=self.size,
        )
        path = file if recipe.makes_file else file.with_suffix(f".{recipe.extra_ids}")
        check(self.ids(), None)

        def exists() -> bool:
            staging.fetch(path)
            return path.is_file() or (path / files.DESCRIPTION).is_file()

        def make() -> None:
            location.check_place(root, path)
            with sole_writer(path.parent, lock=f".{path.name}.writing"):
                if exists():  # another run has made it
                    return
                texts = corpus.training_texts()
                first = [*itertools.islice(texts, 1)]  # files that cannot be read are refused now
                print(
                    f"training a {self.kind} vocabulary of {self.size} pieces: "
                    f"{staging.known_as(path)}",
                    flush=True,
                )
                with sending.to_bucket(path, last=[files.DESCRIPTION]):
                    train(itertools.chain(first, texts), path, recipe)

        once(f"vocabulary {path.name}", path, exists, make)
        staging.fetch(path)
        return loading.load(path, extra_ids=self.extra_ids)


@dataclasses.dataclass(frozen=True)
class KnownVocabulary:
    """The choice of a vocabulary that exists already, such as the one kept with a run."""

    vocabulary: Vocabulary

    def open(
        self,
        corpus: TrainingText | None,
        root: Path,
        *,
        once: Once = alone,
        check: Check = no_check,
    ) -> Vocabulary:
        """The vocabulary itself."""
        del corpus, root, once, check
        return self.vocabulary
