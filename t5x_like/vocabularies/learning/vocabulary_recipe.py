"""How a vocabulary of any kind is trained, and the training itself."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from t5x_like.core.protocols.data import Vocabulary
from t5x_like.vocabularies import files, special_tokens
from t5x_like.vocabularies.characters import CharacterVocabulary
from t5x_like.vocabularies.learning import (
    extending,
    sampling,
    sentencepiece_training,
    subword_training,
    trimming,
)
from t5x_like.vocabularies.sentinels import USUAL_EXTRA_IDS
from t5x_like.vocabularies.subwords import SubwordVocabulary
from t5x_like.vocabularies.text import lower_case
from t5x_like.vocabularies.tokenizer_files import byte_bpe

KINDS = (*sentencepiece_training.MODEL_TYPES, "wordpiece", "words", "byte_bpe", "characters")
_OF_WORDS = ("wordpiece", "words")
MIN_SIZE = len(special_tokens.TRAINED) + 3
"""Special tokens, space, the end of a line, and one character."""

CHARACTER_COVERAGE = 0.9995
PATTERN = "gpt4o"
"""The default pattern of byte-level BPE: it suits every script."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recipe:
    """How to train a vocabulary.

    Attributes:
      kind: one of `KINDS`; the first two are SentencePiece's.
      size: pieces, with special ids but without sentinels. It is an upper limit, except for
        SentencePiece, which makes exactly this many or fails.
      extra_ids: sentinels that are saved with it; a SentencePiece model gets them when loaded.
      max_sentences: the number of lines to sample.
      seed: for the sample.
      character_coverage: share of the text whose characters get ids (byte-level BPE has all
        bytes, and words are whole).
      byte_fallback: only for SentencePiece: spells other characters as bytes.
      lowercase: only for WordPiece and words: lower-cases text.
      strip_accents: only for WordPiece and words: takes accents, umlauts, vowel signs and tones
        away; None does so where text is lower-cased, as in BERT.
      pattern: only for byte-level BPE: one of `byte_bpe.PATTERNS`; no piece crosses its words.
    """

    kind: str = "unigram"
    size: int = 32_000
    extra_ids: int = USUAL_EXTRA_IDS
    max_sentences: int = sampling.MAX_SENTENCES
    seed: int = 0
    character_coverage: float = CHARACTER_COVERAGE
    byte_fallback: bool = False
    lowercase: bool = False
    strip_accents: bool | None = None
    pattern: str = PATTERN

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"no kind of vocabulary {self.kind!r}: one of {', '.join(KINDS)}")
        if not isinstance(self.size, int) or self.size < MIN_SIZE:
            raise ValueError(
                f"the size of a vocabulary must be a whole number of at least {MIN_SIZE}, not "
                f"{self.size!r}"
            )
        for name, least in (("extra_ids", 0), ("max_sentences", 1), ("seed", 0)):
            value = getattr(self, name)
            if not isinstance(value, int) or value < least:
                raise ValueError(
                    f"{name} must be a whole number of at least {least}, not {value!r}"
                )
        if not 0 < self.character_coverage <= 1:
            raise ValueError(
                "character_coverage is a share of the text, above 0 and at most 1, not "
                f"{self.character_coverage!r}"
            )
        if self.byte_fallback and not self.makes_file:
            raise ValueError(
                f"byte_fallback is for {' and '.join(sentencepiece_training.MODEL_TYPES)} alone"
            )
        byte_bpe.divide(self.pattern)
        if self.pattern != PATTERN and self.kind != "byte_bpe":
            raise ValueError("a pattern is for byte_bpe alone")
        if self.lowercase and self.kind not in _OF_WORDS:
            raise ValueError(f"lowercase is for {' and '.join(_OF_WORDS)} alone")
        if self.strip_accents is not None and self.kind not in _OF_WORDS:
            raise ValueError(f"strip_accents is for {' and '.join(_OF_WORDS)} alone")

    @property
    def makes_file(self) -> bool:
        """Whether the vocabulary is a `.model` file; otherwise it is a directory."""
        return self.kind in sentencepiece_training.MODEL_TYPES


def train(
    documents: Iterable[str], path: str | Path, recipe: Recipe, *, progress: bool = True
) -> Path:
    """Trains on a bounded sample; writes all of a file or directory for `loading.load`, or nothing.

    The same documents and recipe give the same bytes.

    Raises:
      ValueError: there is no text, or the text does not allow this size.
      OSError: `path` cannot be written, or is a directory that is not empty; raised before any
        document is read.
    """
    if recipe.makes_file:
        return sentencepiece_training.train_sentencepiece(
            documents,
            path,
            vocab_size=recipe.size,
            model_type=recipe.kind,
            max_sentences=recipe.max_sentences,
            seed=recipe.seed,
            character_coverage=recipe.character_coverage,
            byte_fallback=recipe.byte_fallback,
            progress=progress,
        )
    directory = _checked(path)
    sentences = sampling.sample(
        documents, max_sentences=recipe.max_sentences, seed=recipe.seed, progress=progress
    )
    if progress and recipe.lowercase and recipe.strip_accents is None:
        for line in lower_case.marks_lost(sentences):
            print(line, file=sys.stderr, flush=True)
    files.save_whole(_made(sentences, recipe), directory)
    return directory


def extend(
    documents: Iterable[str],
    path: str | Path,
    base: Vocabulary,
    *,
    size: int,
    max_sentences: int = sampling.MAX_SENTENCES,
    seed: int = 0,
    progress: bool = True,
) -> Path:
    """Writes `base` with words of a bounded sample, as `extending.extend` chooses them.

    Raises:
      ValueError: there is no text, or the vocabulary or size does not allow it; the latter is
        raised before any document is read.
      OSError: as in `train`.
    """
    directory = _checked(path)
    extending.check(base, size)
    sentences = sampling.sample(
        documents, max_sentences=max_sentences, seed=seed, progress=progress
    )
    files.save_whole(extending.extend(base, sentences, size=size), directory)
    return directory


def trim(
    documents: Iterable[str],
    path: str | Path,
    base: Vocabulary,
    *,
    max_sentences: int = sampling.MAX_SENTENCES,
    seed: int = 0,
    progress: bool = True,
) -> Path:
    """Writes those pieces of `base` that a bounded sample uses (`trimming.trim`).

    Raises:
      ValueError: there is no text, or the vocabulary does not allow it; the latter is raised before
        any document is read.
      OSError: as in `train`.
    """
    directory = _checked(path)
    trimming.check(base)
    sentences = sampling.sample(
        documents, max_sentences=max_sentences, seed=seed, progress=progress
    )
    if progress:
        print(
            f"Keeps the pieces of {len(sentences):,} lines (a sample has at most {max_sentences:,} "
            f"and {sampling.MAX_SAMPLE:,} characters).",
            file=sys.stderr,
            flush=True,
        )
    files.save_whole(trimming.trim(base, sentences), directory)
    return directory


def _checked(path: str | Path) -> Path:
    """The directory to write, which must be missing or empty."""
    directory = Path(path)
    files.check_writable(directory)
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise FileExistsError(f"{directory} is there already: name a directory that is not")
    return directory


def _made(sentences: list[str], recipe: Recipe) -> SubwordVocabulary | CharacterVocabulary:
    sizes: dict[str, Any] = {"size": recipe.size, "extra_ids": recipe.extra_ids}
    if recipe.kind == "byte_bpe":
        return subword_training.train_byte_bpe(sentences, **sizes, pattern=recipe.pattern)
    coverage = recipe.character_coverage
    if recipe.kind == "characters":
        return subword_training.train_characters(sentences, **sizes, character_coverage=coverage)
    of_words: dict[str, Any] = {
        "lowercase": recipe.lowercase,
        "strip_accents": recipe.strip_accents,
    }
    if recipe.kind == "words":
        return subword_training.train_words(sentences, **sizes, **of_words)
    return subword_training.train_wordpiece(
        sentences, **sizes, **of_words, character_coverage=coverage
    )
