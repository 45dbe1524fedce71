"""LAMBADA: the last word of a passage, which its whole context tells (Paperno et al., 2016)."""

from __future__ import annotations

import collections
import math
import re
from collections.abc import Sequence

import numpy as np

from t5x_like.core.protocols.data import Vocabulary
from t5x_like.evaluation.language import reading, results
from t5x_like.evaluation.language.results import Model, Results, Row, Settings
from t5x_like.inference.likelihoods.likelihood import Span

READS = ("examples", "seed", "batch_size")
_STOP = "."
_COMMON = 100
_WORD = re.compile(r"\w+(?:['\u2019]\w+)*")


def read(files: str | Sequence[str]) -> list[str]:
    """The passages: a line of plain text each, or the field `text` of a row.

    Raises:
      ValueError, OSError: a file is missing or damaged, or a passage has a single word.
    """
    passages: list[str] = []
    for path in reading.files(files):
        if reading.has_fields(path):
            rows = enumerate(reading.rows(path), start=1)
            passages += (reading.text_of(row, "text", f"{path}, row {n:,}") for n, row in rows)
        else:
            passages += (line for _, line in reading.lines(path))
    short = next((text for text in passages if len(text.split()) < 2), None)
    if short is not None or not passages:
        raise ValueError(f"{files}: a passage has a last word and a text before it, not {short!r}")
    return [text.strip() for text in passages]


def span(passage: str, vocabulary: Vocabulary, *, stop: bool) -> Span:
    """The tokens of the passage's last word among all; with `stop`, a full stop follows.

    Where its first token holds the end of the word before it, too, the word has that token.
    """
    context, _ = passage.rsplit(maxsplit=1)
    tokens = [*vocabulary.encode(passage + _STOP * stop)]
    begin = reading.shared(vocabulary.encode(context), tokens)
    end = reading.shared(vocabulary.encode(passage), tokens) if stop else len(tokens)
    begin, end = min(begin, len(tokens) - 1), max(end, 1)
    if begin >= end:
        raise ValueError(f"the vocabulary has no tokens for the last word of {passage[-60:]!r}")
    return Span(tokens, begin, end)


def evaluate(model: Model, files: str | Sequence[str], settings: Settings) -> Results:
    """How often the last word is the likeliest one, token by token, and its perplexity.

    A language model reads the text before it. Models that read both sides guess it in place of
    masks or of a blank before a full stop, its pieces from left to right; masks tell them how many
    there are. `frequent` answers with the most frequent word of the passage that is not among the
    100 commonest of all; `unigram perplexity` is that of tokens by their frequency in all passages.

    Raises:
      ValueError, OSError: as `read`; or the model gives no likelihood of a part of a text.
    """
    every = read(files)
    passages = settings.drawn(every)
    scorer = model.predictor("score", **settings.options()).of_spans
    if scorer is None:
        raise ValueError("this model gives the likelihood of targets alone, and not of a last word")
    assert model.vocabulary is not None
    spans = [span(passage, model.vocabulary, stop=scorer.both_sides) for passage in passages]
    scored = results.likelihoods(scorer, spans)
    log_p = [likelihood.log_p for likelihood in scored]
    guessed = zip(_guesses(passages), (text.lower().split()[-1] for text in passages), strict=True)
    values = {
        "accuracy": float(np.mean([likelihood.likeliest for likelihood in scored])),
        "perplexity": _perplexity(log_p),
        "frequent": float(np.mean([guess == word for guess, word in guessed])),
        "unigram perplexity": _perplexity(_unigram(spans)),
    }
    single = sum(end - begin == 1 for _, begin, end in spans) / len(spans)
    notes = [
        *results.sample_note(len(passages), len(every), settings, "passages"),
        f"{single:.1%} of the last words are one token; a perplexity is per word",
        *(["the model reads a full stop after the word, too"] * scorer.both_sides),
    ]
    return Results("passages", [Row("all", len(passages), values)], notes)


def _perplexity(log_p: Sequence[float]) -> float:
    with np.errstate(over="ignore"):  # then it is infinite
        return float(np.exp(-np.mean(log_p)))


def _guesses(passages: Sequence[str]) -> list[str]:
    """The most frequent word of each passage before its last; of several, the latest.

    The words that occur in the most passages, which are words like "the", are left out.
    """
    words = [_WORD.findall(text.lower().rsplit(maxsplit=1)[0]) for text in passages]
    in_passages = collections.Counter(word for of_one in words for word in {*of_one})
    common = {word for word, _ in in_passages.most_common(_COMMON)}
    guesses = []
    for of_one in words:
        counts = collections.Counter(word for word in of_one if word not in common)
        most = max(counts.values(), default=0)
        latest = (word for word in reversed(of_one) if word in counts and counts[word] == most)
        guesses.append(next(latest, ""))
    return guesses


def _unigram(spans: Sequence[Span]) -> list[float]:
    """The log-probability of each word by how often its tokens precede last words, plus one."""
    counts = collections.Counter(i for tokens, begin, _ in spans for i in tokens[:begin])
    seen = {i for tokens, _, end in spans for i in tokens[:end]}
    total = counts.total() + len(seen)
    return [
        sum(math.log((counts[i] + 1) / total) for i in tokens[begin:end])
        for tokens, begin, end in spans
    ]
