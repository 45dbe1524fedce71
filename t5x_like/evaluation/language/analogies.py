"""Word analogies by the vectors of a table of tokens: Athens is to Greece as Oslo to Norway."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from flax import nnx

from t5x_like.core.protocols.data import Vocabulary
from t5x_like.data.cache.words import encode
from t5x_like.evaluation.language import reading, results
from t5x_like.evaluation.language.results import Model, Results, Settings
from t5x_like.layers.basics.modules import Embedding

READS = ("examples", "seed")
_AT_ONCE = 1024


class Analogy(NamedTuple):
    """The first word is to the second as the third to the fourth."""

    words: tuple[str, str, str, str]
    section: str


def read(files: str | Sequence[str]) -> list[Analogy]:
    """The analogies of word2vec's files: lines of four words, after lines ": section".

    Raises:
      ValueError, OSError: a file is missing, or a line has other than four words.
    """
    analogies, section = [], "all"
    for path in reading.files(files):
        for number, line in reading.lines(path):
            if line.startswith(":"):
                section = line[1:].strip()
                continue
            words = line.split()
            if len(words) != 4:
                raise ValueError(
                    f"{path}:{number}: {line[:60]!r} has {len(words)} words, and not 4"
                )
            analogies.append(Analogy((words[0], words[1], words[2], words[3]), section))
    return analogies


def vectors(
    words: Sequence[str], table: np.ndarray, vocabulary: Vocabulary
) -> tuple[np.ndarray, np.ndarray]:
    """The mean of the vectors of a word's tokens, of length 1, and whether it is one known token.

    Args:
      words: the words.
      table: float [vocab_size or more, d_model].
      vocabulary: that of the table.

    Returns:
      float64 [words, d_model], and bool [words].
    """
    tokens = encode(vocabulary, words)
    unknown = vocabulary.token_ids.unk
    known = np.array([len(of_word) == 1 and of_word[0] != unknown for of_word in tokens])
    means = np.stack([table[of_word].astype(np.float64).mean(axis=0) for of_word in tokens])
    return means / np.maximum(np.linalg.norm(means, axis=1, keepdims=True), 1e-12), known


def token_table(model: nnx.Module, vocab_size: int) -> np.ndarray:
    """The vectors of tokens that a model reads, float [vocab_size or more, d_model].

    Raises:
      ValueError: it reads no tokens by a table.
    """
    for _, module in nnx.iter_graph(model):
        if isinstance(module, Embedding) and module.table.shape[0] >= vocab_size:
            return np.asarray(module.table[...], np.float32)
    raise ValueError(f"a {type(model).__name__} has no table of tokens' vectors")


def evaluate(model: Model, files: str | Sequence[str], settings: Settings) -> Results:
    """The share of analogies whose fourth word is nearest to b - a + c (3CosAdd), by section.

    Candidates are all words of the files but the three of the question (Mikolov et al., 2013).
    `covered` is the share of questions whose words are one token each, and `of these` the accuracy
    in them. `nearest to c` answers with the neighbour of the third word alone (Linzen, 2016).

    Raises:
      ValueError, OSError: as `read` and `token_table`.
    """
    every = read(files)
    vocabulary = model.vocabulary
    assert vocabulary is not None
    table = token_table(model.model, vocabulary.vocab_size)
    if not every:
        raise ValueError(f"{files} has no analogies")
    analogies = settings.drawn(every)
    words = [*dict.fromkeys(word for analogy in every for word in analogy.words)]
    place = {word: n for n, word in enumerate(words)}
    x_WD, known = vectors(words, table, vocabulary)
    asked = np.array([[place[word] for word in analogy.words] for analogy in analogies])
    a, b, c, right = asked.T
    accuracy = _nearest(x_WD[b] - x_WD[a] + x_WD[c], x_WD, asked[:, :3]) == right
    alone = _nearest(x_WD[c], x_WD, asked[:, :3]) == right
    covered = known[asked].all(axis=1)
    sections = [analogy.section for analogy in analogies]
    columns = {"accuracy": accuracy, "nearest to c": alone, "covered": covered}
    rows = results.grouped(sections, columns)
    right_of = {"of these": accuracy & covered}
    sums = results.grouped(sections, right_of)
    notes = [
        *results.sample_note(len(analogies), len(every), settings, "analogies"),
        f"{len(words):,} candidates: chance is {1 / max(len(words) - 3, 1):.5f}",
    ]
    return Results("analogies", [*map(_with_covered, rows, sums)], notes)


def _with_covered(row: results.Row, right: results.Row) -> results.Row:
    """The row with its accuracy in covered questions, if there are some."""
    share = row.values["covered"]
    values: Mapping[str, float] = row.values
    return row._replace(
        values={**values, "of these": right.values["of these"] / share} if share else values
    )


def _nearest(wanted: np.ndarray, x_WD: np.ndarray, without: np.ndarray) -> np.ndarray:
    """The number of the word with the highest cosine, but for those of `without`: int64 [n]."""
    best = []
    for start in range(0, len(wanted), _AT_ONCE):
        cosines = wanted[start : start + _AT_ONCE] @ x_WD.T
        np.put_along_axis(cosines, without[start : start + _AT_ONCE], -np.inf, axis=1)
        best.append(cosines.argmax(axis=1))
    return np.concatenate(best)
