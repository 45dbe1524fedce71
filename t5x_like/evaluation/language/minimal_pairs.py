"""Minimal pairs: whether a model finds the better one of two sentences more likely.

Files are BLiMP's JSON lines (Warstadt et al., 2020), CLAMS's lines (Mueller et al., 2020), in which
wrong sentences follow the right one that they differ from, or tables of good and bad sentences.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from t5x_like.data.corpora.matching_files import File
from t5x_like.evaluation.language import reading, results
from t5x_like.evaluation.language.results import Model, Results, Row, Settings

READS = ("examples", "seed", "within_word", "batch_size", "counts")
_COLUMNS = (("sentence_good", "sentence_bad"), ("good", "bad"), ("grammatical", "ungrammatical"))
_MARKS = ("True", "False")


class MinimalPair(NamedTuple):
    """A right sentence, a wrong one, and their paradigm and phenomenon."""

    good: str
    bad: str
    paradigm: str
    phenomenon: str


def read(files: str | Sequence[str]) -> list[MinimalPair]:
    """The pairs of files.

    Raises:
      ValueError, OSError: a file is missing, damaged, or of another form; the error says where.
    """
    pairs = [pair for path in reading.files(files) for pair in _of_file(path)]
    if not pairs:
        raise ValueError(f"{files} has no pairs of sentences")
    return pairs


def _of_file(path: File) -> Iterator[MinimalPair]:
    if not reading.has_fields(path) or reading.first_line(path)[:1] in {(m,) for m in _MARKS}:
        yield from _marked(path)
        return
    first, name = reading.first_line(path), reading.stem(path)
    columns = next((pair for pair in _COLUMNS if {*pair} <= {*first}), None)
    if columns is None and len(first) != 2:
        raise ValueError(
            f"{path} has the columns {', '.join(first)[:100]}: pairs are read from sentence_good "
            "and sentence_bad, from a table of two columns, or from lines True<tab>sentence and "
            "False<tab>sentence"
        )
    if columns is None and not any(" " in cell.strip() for cell in first):
        raise ValueError(
            f"{path}: the first line, {first[0]!r} and {first[1]!r}, looks like names of columns, "
            "which are good and bad for pairs"
        )
    good, bad = columns or ("good", "bad")
    header = () if columns else (good, bad)
    for number, row in enumerate(reading.rows(path, header), start=1):
        place = f"{path}, row {number:,}"
        paradigm = str(row.get("UID", name))
        yield MinimalPair(
            reading.text_of(row, good, place),
            reading.text_of(row, bad, place),
            paradigm,
            str(row.get("linguistics_term", paradigm)),
        )


def _marked(path: File) -> Iterator[MinimalPair]:
    name, good = reading.stem(path), None
    for number, line in reading.lines(path):
        mark, tab, sentence = line.partition("\t")
        if mark not in _MARKS or not tab or (mark == "False" and good is None):
            raise ValueError(
                f"{path}:{number}: {line[:60]!r}: pairs are lines True<tab>sentence, each followed "
                "by lines False<tab>sentence"
            )
        if mark == "True":
            good = sentence
        elif good is not None:
            yield MinimalPair(good, sentence, name, name)


def preferences(good: Sequence[float], bad: Sequence[float]) -> np.ndarray:
    """1 where the good one's score is higher, 1/2 where both are equal, else 0: float64 [n]."""
    return (np.sign(np.subtract(good, bad, dtype=np.float64)) + 1) / 2


def evaluate(model: Model, files: str | Sequence[str], settings: Settings) -> Results:
    """The share of pairs whose good sentence is the likelier one, by paradigm and phenomenon.

    Beside it, `unigram` scores a sentence by how often its tokens occur in the training text, and
    `shorter` prefers the sentence with fewer tokens. A tie counts as half. Chance is 1/2.

    Raises:
      ValueError, OSError: as `read`; or the model gives no likelihood of a text.
    """
    every = read(files)
    pairs = settings.drawn(every)
    predictor = model.predictor("score", **settings.options())
    texts = [text for pair in pairs for text in (pair.good, pair.bad)]
    answers = results.ask_all(predictor, [{"inputs": text} for text in texts])
    scores = np.array([answer["log_likelihood"] for answer in answers]).reshape(-1, 2)
    columns = {"accuracy": preferences(*scores.T)}
    assert model.vocabulary is not None
    tokens = [model.vocabulary.encode(text) for text in texts]
    if settings.counts is not None:
        columns["unigram"] = preferences(*_unigram(tokens, settings.counts).reshape(-1, 2).T)
    lengths = -np.array([*map(len, tokens)]).reshape(-1, 2)
    columns["shorter"] = preferences(*lengths.T)
    notes = [
        *results.sample_note(len(pairs), len(every), settings, "pairs"),
        *results.cut_note(answers),
        *(
            ["no unigram: the counts of the training text are not there"]
            * (settings.counts is None)
        ),
        "chance is 0.5; a tie counts as half",
    ]
    return Results("pairs", _table(pairs, columns), notes)


def _table(pairs: Sequence[MinimalPair], columns: dict[str, np.ndarray]) -> list[Row]:
    """A row for each phenomenon, below it those of its paradigms, and one for all pairs."""
    rows = []
    for phenomenon in sorted({pair.phenomenon for pair in pairs}):
        members = [n for n, pair in enumerate(pairs) if pair.phenomenon == phenomenon]
        paradigms = [f"{phenomenon}/{pairs[n].paradigm}" for n in members]
        part = {name: values[members] for name, values in columns.items()}
        *of_paradigms, whole = results.grouped(paradigms, part, of_all=phenomenon)
        rows += [whole, *of_paradigms]
    if len(rows) == 1:
        return [rows[0]._replace(name="all")]
    return [*rows, results.grouped(["all"] * len(pairs), columns)[-1]]


def _unigram(tokens: Sequence[Sequence[int]], counts: np.ndarray) -> np.ndarray:
    """The log-probability of each sentence by the frequencies of its tokens, add-one smoothed."""
    log_p = np.log(counts + 1.0) - np.log((counts + 1.0).sum())
    ends = np.cumsum([len(of_text) for of_text in tokens])
    sums = np.concatenate([[0.0], np.cumsum(log_p[[*itertools.chain.from_iterable(tokens)]])])
    return sums[ends] - sums[[0, *ends[:-1]]]
