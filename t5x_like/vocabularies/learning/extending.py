"""Extends a vocabulary with whole words that it would write in pieces, as new ids."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from tokenizers import Tokenizer

from t5x_like.core.protocols.data import Vocabulary
from t5x_like.vocabularies.subwords import SubwordVocabulary
from t5x_like.vocabularies.tokenizer_files import tokenizer_json

# A word that occurs once in a sample is not a word of the language.
_MIN_FREQUENCY = 2


def check(base: Vocabulary, size: int) -> SubwordVocabulary:
    """`base`, if it can be extended to `size` ids.

    Raises:
      ValueError: it is not WordPiece, has sentinels, or already has `size` ids.
    """
    if not isinstance(base, SubwordVocabulary) or not base.is_wordpiece or base.num_sentinels:
        raise ValueError(
            f"only a WordPiece vocabulary without sentinels can be extended, not {base!r}: in the "
            "other kinds pieces need scores or merges, and sentinels, the top ids, would move"
        )
    if size <= base.vocab_size:
        raise ValueError(
            f"the vocabulary to extend has {base.vocab_size:,} ids already: give a size of more "
            f"than that, not {size:,}"
        )
    return base


def extend(base: Vocabulary, sentences: Iterable[str], *, size: int) -> SubwordVocabulary:
    """`base` with the words that shorten the text most when each gets an id.

    The old ids keep their meanings, so that a model can continue from its parameters.

    Args:
      base: a WordPiece vocabulary without sentinels, which would have to stay the top ids.
      sentences: of the text that needs fewer ids.
      size: the most ids; a word that occurs once is not added.

    Raises:
      ValueError: as in `check`.
    """
    base = check(base, size)
    tokenizer = Tokenizer.from_str(base.tokenizer_json)
    unknown = base.token_ids.unk
    saved: dict[str, int] = {}
    for word, count in _words(tokenizer, sentences).items():
        ids = tokenizer.encode(word, add_special_tokens=False).ids
        if count >= _MIN_FREQUENCY and (len(ids) > 1 or unknown in ids):
            saved[word] = count * max(len(ids) - 1, 1)
    best = sorted(saved, key=lambda word: (-saved[word], word))[: size - base.vocab_size]
    added = {word: base.vocab_size + n for n, word in enumerate(best)}
    return SubwordVocabulary(tokenizer_json.with_words(base.tokenizer_json, added))


def _words(tokenizer: Tokenizer, sentences: Iterable[str]) -> Counter[str]:
    """Counts words and punctuation marks, normalised."""
    counts: Counter[str] = Counter()
    for sentence in sentences:
        normal = tokenizer.normalizer.normalize_str(sentence)
        counts.update(word for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(normal))
    return counts
