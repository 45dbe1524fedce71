"""A bounded, uniform sample of a corpus's lines, to train a vocabulary on."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterable, Iterator
from typing import Any

from t5x_like.core import progress

MAX_SENTENCE = 1000
"""Characters after which a line is cut; the cut is at a space if there is one."""
MAX_SAMPLE = 100_000_000
"""The most characters of a sample; a trainer takes about 10 bytes for each."""
MAX_SENTENCES = 1_000_000
"""The default number of lines in a sample."""


def sample(documents: Iterable[str], *, max_sentences: int, seed: int, progress: bool) -> list[str]:
    """Like `sample_sentences`, with a progress bar if `progress`.

    Raises:
      ValueError: there is no text.
    """
    if isinstance(documents, str):
        raise TypeError("documents is one string: give a list of texts")
    sampled = sample_sentences(
        with_bar(documents) if progress else documents, max_sentences=max_sentences, seed=seed
    )
    if not sampled:
        raise ValueError("no text to train a vocabulary on: every document is empty")
    return sampled


def sample_sentences(documents: Iterable[str], *, max_sentences: int, seed: int) -> list[str]:
    """At most `max_sentences` lines, each equally likely (reservoir sampling with skips).

    Li (1994), "Reservoir-sampling algorithms of time complexity O(n(1 + log(N/n)))", algorithm L.
    """
    rng = random.Random(seed)
    lines = _sentences(documents)
    reservoir = list(itertools.islice(lines, max_sentences))

    def shrink() -> float:
        return math.exp(math.log(1.0 - rng.random()) / max_sentences)

    weight = shrink()
    while len(reservoir) == max_sentences:
        skipped = int(math.log(1.0 - rng.random()) / math.log1p(-weight))
        line = next(itertools.islice(lines, skipped, None), None)
        if line is None:
            break
        reservoir[rng.randrange(max_sentences)] = line
        weight *= shrink()
    return _within(reservoir, rng)


def _within(sentences: list[str], rng: random.Random) -> list[str]:
    """A uniform part of the sentences, with at most MAX_SAMPLE characters."""
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


def with_bar(documents: Iterable[Any], *, doing: str = "reading") -> Iterable[Any]:
    """The documents, with a bar on standard error that counts them."""
    return progress.bar(documents, desc=f"{doing} text for the vocabulary", unit=" documents")
