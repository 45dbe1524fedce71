"""Trains a SentencePiece vocabulary on a bounded sample of a corpus."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable
from pathlib import Path

import sentencepiece as spm

from t5x_like.vocabularies import files, special_tokens
from t5x_like.vocabularies.learning import sampling

MODEL_TYPES = ("unigram", "bpe")

# The trainer divides its sums by thread: a number of threads that depends on the machine would
# make the model depend on it too.
_NUM_THREADS = 16


def train_sentencepiece(
    documents: Iterable[str],
    model_file: str | Path,
    *,
    vocab_size: int = 32_000,
    model_type: str = "unigram",
    max_sentences: int = sampling.MAX_SENTENCES,
    seed: int = 0,
    character_coverage: float = 0.9995,
    byte_fallback: bool = False,
    num_threads: int | None = None,
    progress: bool = True,
) -> Path:
    """Writes a model whose first ids are T5's (padding 0, end 1, unknown 2), then other specials.

    The special tokens are `special_tokens.TRAINED`, so that one cache serves every objective.

    The same documents and arguments give the same bytes. Memory is bounded for any corpus:
    at most `max_sentences` lines, drawn uniformly, and `sampling.MAX_SAMPLE` characters are kept.

    Args:
      documents: texts; their lines are the sentences.
      model_file: where the model is written, whole or not at all.
      vocab_size: pieces, with special ids but without sentinels.
      num_threads: threads of the trainer; changes the last digits of a unigram model's scores.

    Raises:
      ValueError: no text, or not enough for `vocab_size` (says the largest possible).
      OSError: `model_file` cannot be written; raised before any document is read.
    """
    path = Path(model_file)
    if model_type not in MODEL_TYPES:
        raise ValueError(f"no model type {model_type!r}: choose one of {', '.join(MODEL_TYPES)}")
    files.check_writable(path, as_file=True)
    sample = sampling.sample(documents, max_sentences=max_sentences, seed=seed, progress=progress)
    model = io.BytesIO()
    try:
        spm.SentencePieceTrainer.train(
            sentence_iterator=iter(sample),
            model_writer=model,
            vocab_size=vocab_size,
            model_type=model_type,
            character_coverage=character_coverage,
            byte_fallback=byte_fallback,
            max_sentence_length=4 * sampling.MAX_SENTENCE,
            pad_id=0,
            eos_id=1,
            unk_id=2,
            bos_id=-1,
            control_symbols=list(special_tokens.TRAINED[3:]),
            num_threads=num_threads or _NUM_THREADS,
            minloglevel=2,
        )
    except RuntimeError as error:
        raise _explained(error, vocab_size, sample) from error
    files.write_atomically(path, model.getvalue())
    return path


def _explained(error: RuntimeError, vocab_size: int, sample: list[str]) -> Exception:
    """The trainer's errors; those about size in the user's terms."""
    characters = sum(map(len, sample))
    text = f"a sample of {len(sample):,} sentences and {characters:,} characters"
    if match := re.search(r"set it to a value <= (\d+)", str(error)):
        return ValueError(
            f"a vocabulary of {vocab_size:,} pieces is too large for {text}: "
            f"the largest possible is {int(match[1]):,}"
        )
    if match := re.search(r"smaller than required_chars\. \d+ vs (\d+)", str(error)):
        return ValueError(
            f"a vocabulary of {vocab_size:,} pieces is too small for the characters in {text}: "
            f"give at least {int(match[1]) + 1:,}, or a lower character_coverage"
        )
    return ValueError(f"SentencePiece cannot train {vocab_size:,} pieces on {text}: {error}")
