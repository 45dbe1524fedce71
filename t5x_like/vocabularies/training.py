"""Training a SentencePiece vocabulary on a bounded sample of a corpus."""

from __future__ import annotations

import io
import itertools
import math
import random
import re
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path

import sentencepiece as spm

from t5x_like.vocabularies import files

MODEL_TYPES = ("unigram", "bpe")
MAX_SENTENCE = 1000
"""Characters after which a line is cut, at a space where it has one."""
MAX_SAMPLE = 100_000_000
"""Characters of a whole sample; the trainer takes about 10 bytes for each."""

# The trainer divides its sums by thread: a number that depended on the machine would make the
# model depend on it too.
_NUM_THREADS = 16


def train_sentencepiece(
    documents: Iterable[str],
    model_file: str | Path,
    *,
    vocab_size: int = 32_000,
    model_type: str = "unigram",
    max_sentences: int = 1_000_000,
    seed: int = 0,
    character_coverage: float = 0.9995,
    byte_fallback: bool = False,
    num_threads: int | None = None,
    progress: bool = True,
) -> Path:
    """Writes a model with T5's special ids: padding 0, end 1, unknown 2, no beginning.

    The same documents and arguments give the same bytes. Memory is bounded whatever the corpus:
    at most `max_sentences` lines, drawn uniformly, and `MAX_SAMPLE` characters are kept.

    Args:
      documents: texts; their lines are the sentences.
      model_file: where the model goes, whole or not at all.
      vocab_size: pieces, special ids included, sentinels not.
      num_threads: of the trainer; changes the last digits of a unigram model's scores.

    Raises:
      ValueError: no text, or not enough for `vocab_size` (says the largest possible).
      OSError: `model_file` cannot be written; found before any document is read.
    """
    path = Path(model_file)
    if model_type not in MODEL_TYPES:
        raise ValueError(f"no model type {model_type!r}: choose one of {', '.join(MODEL_TYPES)}")
    if isinstance(documents, str):
        raise TypeError("documents is one string: give a list of texts")
    _check_writable(path)
    sample = sample_sentences(
        _shown(documents) if progress else documents, max_sentences=max_sentences, seed=seed
    )
    if not sample:
        raise ValueError("no text to train a vocabulary on: every document is empty")
    model = io.BytesIO()
    try:
        spm.SentencePieceTrainer.train(
            sentence_iterator=iter(sample),
            model_writer=model,
            vocab_size=vocab_size,
            model_type=model_type,
            character_coverage=character_coverage,
            byte_fallback=byte_fallback,
            max_sentence_length=4 * MAX_SENTENCE,
            pad_id=0,
            eos_id=1,
            unk_id=2,
            bos_id=-1,
            num_threads=num_threads or _NUM_THREADS,
            minloglevel=2,
        )
    except RuntimeError as error:
        raise _explained(error, vocab_size, sample) from error
    files.write_atomically(path, model.getvalue())
    return path


def sample_sentences(documents: Iterable[str], *, max_sentences: int, seed: int) -> list[str]:
    """At most `max_sentences` lines, each equally likely (reservoir sampling with skips).

    Li (1994), "Reservoir-sampling algorithms of time complexity O(n(1 + log(N/n)))", algorithm L.
    """
    rng = random.Random(seed)
    lines = _sentences(documents)
    kept = list(itertools.islice(lines, max_sentences))

    def shrink() -> float:
        return math.exp(math.log(1.0 - rng.random()) / max_sentences)

    weight = shrink()
    while len(kept) == max_sentences:
        skipped = int(math.log(1.0 - rng.random()) / math.log1p(-weight))
        line = next(itertools.islice(lines, skipped, None), None)
        if line is None:
            break
        kept[rng.randrange(max_sentences)] = line
        weight *= shrink()
    return _within(kept, rng)


def _within(sentences: list[str], rng: random.Random) -> list[str]:
    """A uniform part of the sentences with at most MAX_SAMPLE characters."""
    if sum(map(len, sentences)) <= MAX_SAMPLE:
        return sentences
    rng.shuffle(sentences)
    ends = itertools.accumulate(map(len, sentences))
    return sentences[: sum(1 for _ in itertools.takewhile(MAX_SAMPLE.__ge__, ends))]


def _sentences(documents: Iterable[str]) -> Iterator[str]:
    for document in documents:
        for line in document.split("\n"):
            rest = line.strip()
            while len(rest) > MAX_SENTENCE:
                cut = rest.rfind(" ", 1, MAX_SENTENCE + 1)
                cut = cut if cut > 0 else MAX_SENTENCE
                yield rest[:cut]
                rest = rest[cut:].lstrip()
            if rest:
                yield rest


def _shown(documents: Iterable[str]) -> Iterable[str]:
    import tqdm

    return tqdm.tqdm(documents, desc="reading text for the vocabulary", unit=" documents")


def _check_writable(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    probe = path.with_name(f"{path.name}.{uuid.uuid4().hex}.tmp")
    probe.touch()
    probe.unlink()


def _explained(error: RuntimeError, vocab_size: int, sample: list[str]) -> Exception:
    """The trainer's errors, those about size in the user's terms."""
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
