"""Trains vocabularies of WordPiece, words, byte-level BPE and characters on sampled sentences."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

from t5x_like.vocabularies import special_tokens
from t5x_like.vocabularies.characters import CharacterVocabulary
from t5x_like.vocabularies.subwords import SubwordVocabulary
from t5x_like.vocabularies.tokenizer_files import byte_bpe, wordpiece, words

_BERTS_NAMES = {"<pad>": "[PAD]", "<unk>": "[UNK]"}
# A piece that occurs once in a sample is not a piece of the language.
_MIN_FREQUENCY = 2


def train_wordpiece(
    sentences: Sequence[str],
    *,
    size: int,
    extra_ids: int,
    character_coverage: float,
    lowercase: bool,
    strip_accents: bool | None = None,
) -> SubwordVocabulary:
    """Trains at most `size` tokens: special ones with BERT's names, characters, frequent pieces.

    Where `strip_accents` is None, accents are stripped if text is lower-cased, as in BERT.

    Raises:
      ValueError: `size` is too small for the characters.
    """
    normalizer = normalizers.BertNormalizer(lowercase=lowercase, strip_accents=strip_accents)
    letters = _alphabet(map(normalizer.normalize_str, sentences), coverage=character_coverage)
    # The trainer numbers these in the order of a hash table, and the numbers settle ties: given
    # beforehand, they always make the same vocabulary.
    fixed = [_BERTS_NAMES.get(name, name) for name in special_tokens.TRAINED]
    fixed += letters + [wordpiece.PREFIX + letter for letter in letters]
    _check_size(size, at_least=len(fixed), why=f"the {len(letters):,} characters of the text")
    model = _trained(
        Tokenizer(models.WordPiece(unk_token=wordpiece.UNKNOWN)),
        trainers.WordPieceTrainer(
            vocab_size=size,
            min_frequency=_MIN_FREQUENCY,
            special_tokens=fixed,
            initial_alphabet=letters,
            limit_alphabet=len(letters),
            continuing_subword_prefix=wordpiece.PREFIX,
            show_progress=False,
        ),
        sentences,
        normalizer=normalizer,
        pre_tokenizer=pre_tokenizers.BertPreTokenizer(),
    )
    text = wordpiece.tokenizer_json(
        model["vocab"], lowercase=lowercase, strip_accents=strip_accents
    )
    return SubwordVocabulary(text, extra_ids)


def train_words(
    sentences: Sequence[str],
    *,
    size: int,
    extra_ids: int,
    lowercase: bool,
    strip_accents: bool | None = None,
) -> SubwordVocabulary:
    """Trains at most `size` tokens: special ones with BERT's names, then words by frequency.

    A word that occurs once in the sample is unknown, as all words are that have no id. Equally
    frequent words are in alphabetical order. Accents are as in `train_wordpiece`.
    """
    fixed = [_BERTS_NAMES.get(name, name) for name in special_tokens.TRAINED]
    model = _trained(
        Tokenizer(models.WordLevel(unk_token=wordpiece.UNKNOWN)),
        trainers.WordLevelTrainer(
            vocab_size=size,
            min_frequency=_MIN_FREQUENCY,
            special_tokens=fixed,
            show_progress=False,
        ),
        sentences,
        normalizer=normalizers.BertNormalizer(lowercase=lowercase, strip_accents=strip_accents),
        pre_tokenizer=pre_tokenizers.BertPreTokenizer(),
    )
    text = words.tokenizer_json(model["vocab"], lowercase=lowercase, strip_accents=strip_accents)
    return SubwordVocabulary(text, extra_ids)


def train_byte_bpe(
    sentences: Sequence[str], *, size: int, extra_ids: int, pattern: str = "gpt2"
) -> SubwordVocabulary:
    """Trains at most `size` tokens: special ones, the 256 bytes, then merges by frequency.

    No merge crosses the words that `pattern` (of `byte_bpe.PATTERNS`) makes of text.

    Raises:
      ValueError: `size` is too small for the bytes.
    """
    fixed = list(special_tokens.TRAINED)
    _check_size(size, at_least=len(fixed) + 256, why="the 256 bytes")
    divider = _divider(pattern)
    model = _trained(
        Tokenizer(models.BPE()),
        trainers.BpeTrainer(
            vocab_size=size,
            min_frequency=_MIN_FREQUENCY,
            special_tokens=fixed,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
        sentences,
        pre_tokenizer=divider,
    )
    merges = [(left, right) for left, right in model["merges"]]
    text = byte_bpe.tokenizer_json(model["vocab"], merges, pattern=pattern)
    return SubwordVocabulary(text, extra_ids)


def _divider(pattern: str) -> pre_tokenizers.PreTokenizer:
    """Divides text before merges, as the vocabulary's file does."""
    empty = byte_bpe.tokenizer_json({}, [], pattern=pattern)
    return Tokenizer.from_str(empty).pre_tokenizer


def train_characters(
    sentences: Sequence[str], *, size: int, extra_ids: int, character_coverage: float
) -> CharacterVocabulary:
    """At most `size` ids: special tokens, space, end of line, characters by frequency."""
    white_space = " \n"
    room = size - len(special_tokens.TRAINED) - len(white_space)
    letters = _alphabet(sentences, coverage=character_coverage)
    return CharacterVocabulary(white_space + "".join(letters[:room]), extra_ids)


def _trained(
    tokenizer: Tokenizer, trainer: trainers.Trainer, sentences: Sequence[str], **steps: Any
) -> dict[str, Any]:
    """The trained model, as in a `tokenizer.json`."""
    for name, step in steps.items():
        setattr(tokenizer, name, step)
    tokenizer.train_from_iterator(sentences, trainer=trainer, length=len(sentences))
    model: dict[str, Any] = json.loads(tokenizer.to_str())["model"]
    return model


def _check_size(size: int, *, at_least: int, why: str) -> None:
    if size < at_least:
        raise ValueError(
            f"a vocabulary of {size:,} pieces is too small for the special tokens and {why}: give "
            f"at least {at_least:,}"
        )


def _alphabet(texts: Iterable[str], *, coverage: float) -> list[str]:
    """The fewest characters that make up `coverage` of the texts, most frequent first.

    White space is left out. Equally frequent characters are in the order of their code points.
    """
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(text)
    frequent = sorted(
        ((-count, character) for character, count in counts.items() if not character.isspace())
    )
    missing = coverage * -sum(count for count, _ in frequent)
    alphabet = []
    for count, character in frequent:
        if missing <= 0:
            break
        alphabet.append(character)
        missing += count
    return alphabet
