"""Semantic similarity: cosines of the vectors of two sentences, and what people say (STS)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from t5x_like.data.labelled.columns import NONE_NAMED, number, texts_and_label
from t5x_like.data.labelled.rows import Rows
from t5x_like.evaluation.label_metrics import check_installed, number_scores
from t5x_like.evaluation.language import reading, results
from t5x_like.evaluation.language.results import Model, Results, Row, Settings
from t5x_like.evaluation.language.tf_idf import TfIdf, trigrams, words

READS = ("train", "examples", "seed", "layer", "batch_size", "untrained")
_HEADER = ("sentence1", "sentence2", "score")


class Rated(NamedTuple):
    """Two sentences and how alike they are."""

    first: str
    second: str
    score: float


def read(files: str | Sequence[str]) -> list[Rated]:
    """The rated pairs: their columns are found as by `finetune`, or are three without names.

    Raises:
      ValueError, OSError: the files are missing or damaged, or a rating is not a number.
    """
    named = [files] if isinstance(files, str) else [*files]
    line = reading.first_line(reading.files(named)[0])
    unnamed = len(line) == len(_HEADER) and number(line[-1]) is not None
    rows = Rows(named, header=_HEADER if unnamed else ())
    texts, label = texts_and_label(rows, NONE_NAMED)
    if len(texts) != 2:
        raise ValueError(f"{files} has the columns {', '.join(rows.names)}: no pair of sentences")
    rated = []
    for place, row in enumerate(rows, start=1):
        score = number(row.get(label))
        if score is None:
            raise ValueError(f"{files}: the rating of row {place:,} is {row.get(label)!r:.40}")
        first, second = (reading.text_of(row, text, f"{files}, row {place:,}") for text in texts)
        rated.append(Rated(first, second, score))
    return rated


def evaluate(model: Model, files: str | Sequence[str], settings: Settings) -> Results:
    """The correlations, times 100, of cosines of mean states with ratings.

    Beside them are those of vectors without a model: words and character trigrams by TF-IDF, whose
    documents are the sentences of `settings.train`, or those that are compared; the states that the
    first layer reads; and those of the same model with newly drawn parameters.

    Raises:
      ValueError, OSError: as `read`; or the model gives no states.
    """
    check_installed()
    every = read(files)
    rated = settings.drawn(every)
    counted = read(settings.train) if settings.train else every
    sentences = [text for pair in counted for text in (pair.first, pair.second)]
    pairs = [(pair.first, pair.second) for pair in rated]
    layer = -1 if settings.layer is None else settings.layer
    cosines = {"model": _cosines(model, pairs, layer, settings)}
    if layer != 0:
        cosines["model, layer 0"] = _cosines(model, pairs, 0, settings)
    if settings.untrained is not None:
        cosines["untrained"] = _cosines(settings.untrained, pairs, layer, settings)
    cosines["words, TF-IDF"] = TfIdf(words, sentences).cosines(pairs)
    cosines["trigrams, TF-IDF"] = TfIdf(trigrams, sentences).cosines(pairs)
    ratings = [pair.score for pair in rated]
    rows = [
        Row(name, len(pairs), _correlations(ratings, values)) for name, values in cosines.items()
    ]
    of = "the training files" if settings.train else "the evaluated files"
    notes = [
        *results.sample_note(len(rated), len(every), settings, "pairs"),
        f"layer {layer}, mean over tokens; TF-IDF counts in {of}",
    ]
    return Results("pairs", rows, notes)


def _cosines(
    model: Model, pairs: Sequence[tuple[str, str]], layer: int, settings: Settings
) -> np.ndarray:
    predictor = model.predictor("embed", layer=layer, batch_size=settings.batch_size)
    texts = [*dict.fromkeys(text for pair in pairs for text in pair)]
    answers = results.ask_all(predictor, [{"inputs": text} for text in texts])
    vectors = np.array([answer["embedding"] for answer in answers], np.float64)
    vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    place = {text: n for n, text in enumerate(texts)}
    first, second = (vectors[[place[pair[side]] for pair in pairs]] for side in (0, 1))
    return np.einsum("nd,nd->n", first, second)


def _correlations(ratings: Sequence[float], cosines: np.ndarray) -> dict[str, float]:
    scores = number_scores(ratings, cosines.tolist(), ())
    return {name: 100 * scores[name] for name in ("spearman", "pearson")}
