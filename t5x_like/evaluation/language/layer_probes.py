"""Linear probes of a model's layers: the tags of words, or the classes of texts, from its states.

Suffixes: D d_model, F features.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from t5x_like.core import progress
from t5x_like.core.protocols.data import Vocabulary
from t5x_like.data.labelled.columns import NONE_NAMED, texts_and_label
from t5x_like.data.labelled.rows import Rows
from t5x_like.evaluation.label_metrics import check_installed
from t5x_like.evaluation.language import linear_probes, reading, tagged_words
from t5x_like.evaluation.language.results import Model, Results, Row, Settings
from t5x_like.evaluation.language.tagged_words import Aligner, Tagged
from t5x_like.inference.embeddings import Embeddings
from t5x_like.inference.text_rows import Framing

READS = ("train", "examples", "seed", "layer", "batch_size", "untrained")
EXAMPLES = 10_000
"""The most words, or texts, that are trained on, and evaluated, if nothing else is said."""
_AT_ONCE = 512


class Texts(NamedTuple):
    """Texts and the class of each."""

    texts: list[str]
    labels: list[str]


def read(files: Sequence[str], settings: Settings) -> Texts | list[Tagged]:
    """Tagged sentences of `.conll` and `.conllu`, or texts with classes, as many as are read.

    Raises:
      ValueError, OSError: files are missing, damaged, or of neither form, or have two texts a row.
    """
    most = settings.examples or EXAMPLES
    if all(map(tagged_words.is_tagged, reading.files(files))):
        sentences = tagged_words.read(files)
        return tagged_words.some_words(sentences, most, seed=settings.seed)
    rows = Rows([*files])
    texts, label = texts_and_label(rows, NONE_NAMED)
    if len(texts) != 1:
        raise ValueError(f"{files}: a probe reads one text a row, and not {' and '.join(texts)}")
    rows.check_texts(texts)
    chosen = dataclasses.replace(settings, examples=most).drawn([*rows])
    return Texts([row[texts[0]] for row in chosen], [str(row[label]) for row in chosen])


def word_states(
    reader: Embeddings, sentences: Sequence[Tagged], vocabulary: Vocabulary
) -> tuple[np.ndarray, np.ndarray]:
    """The state of each word's first token, float32 [W, D], and the word's number, int64 [W].

    Words that are cut off a sentence that is too long are left out.
    """
    align, before = Aligner(vocabulary), len(reader.framing.before)
    states, numbers, begun = [], [], 0
    aligned = [align(sentence) for sentence in sentences]
    rows = [reader.framing.row(tokens.tolist()) for tokens, _ in aligned]
    for vectors, (_, firsts) in zip(_vectors(reader, rows), aligned, strict=True):
        kept = (firsts < _text_tokens(reader.framing, len(vectors))).nonzero()[0]
        states.append(vectors[before + firsts[kept]])
        numbers.append(begun + kept)
        begun += len(firsts)
    return np.concatenate(states), np.concatenate(numbers)


def text_states(reader: Embeddings, texts: Sequence[str]) -> np.ndarray:
    """The mean over each text's tokens and the first state, float32 [texts, 2 D]."""
    rows = [reader.framing.text(text) for text in texts]
    before = len(reader.framing.before)
    states = []
    for vectors in _vectors(reader, rows):
        count = _text_tokens(reader.framing, len(vectors))
        mean_D = vectors[before : before + count].sum(axis=0) / max(1, count)
        states.append(np.concatenate([mean_D, vectors[0]]))
    return np.stack(states)


def _vectors(reader: Embeddings, rows: Sequence[Any]) -> list[np.ndarray]:
    """The states of all tokens of rows, [tokens, D] each, in their order; a bar is shown."""
    order = sorted(range(len(rows)), key=lambda n: len(rows[n].tokens))
    vectors: dict[int, np.ndarray] = {}
    with progress.bar(total=len(rows), desc="reading", unit=" texts") as bar:
        for start in range(0, len(order), _AT_ONCE):
            numbers = order[start : start + _AT_ONCE]
            vectors |= zip(numbers, reader.vectors([rows[n] for n in numbers]), strict=True)
            bar.update(len(numbers))
    return [vectors[n] for n in range(len(rows))]


def _text_tokens(framing: Framing, tokens: int) -> int:
    """The number of a row's tokens that are of its text."""
    return tokens - len(framing.row(()).tokens)


def evaluate(model: Model, files: str | Sequence[str], settings: Settings) -> Results:
    """The accuracy of a linear probe of each layer, trained on `settings.train`.

    Layer 0 is what the first layer reads. Beside it are those of the same model with newly drawn
    parameters, of the commonest label, and of the commonest tag of each word.

    Raises:
      ValueError, OSError: as `read`; there are no training files, the model gives no states, or
        has no such layer; or the training files are of another form.
    """
    check_installed()
    if not settings.train:
        raise ValueError("a probe learns from labels: name its training files (--train)")
    named = [files] if isinstance(files, str) else files
    parts = [read(settings.train, settings), read(named, settings)]
    if isinstance(parts[0], Texts) != isinstance(parts[1], Texts):
        raise ValueError(f"{settings.train} and {files}: one has tags of words, and one classes")
    depth = model.predictor("embed").depth()
    layers = range(depth + 1) if settings.layer is None else [settings.layer]
    who = {"model": model} | ({"untrained": settings.untrained} if settings.untrained else {})
    rows = []
    for layer in progress.bar([*layers], desc="probes", unit=" layers"):
        values = {name: _accuracy(one, parts, layer, settings) for name, one in who.items()}
        rows.append(Row(f"layer {layer}", _size(parts[1]), values))
    floors = _floors(*parts)
    rows += [Row(name, _size(parts[1]), {"model": value}) for name, value in floors.items()]
    unit = "texts" if isinstance(parts[0], Texts) else "words"
    notes = [f"accuracy; trained on {_size(parts[0]):,} {unit}, with scikit-learn"]
    return Results(unit, rows, notes)


def _accuracy(
    model: Model, parts: Sequence[Texts | list[Tagged]], layer: int, settings: Settings
) -> float:
    reader = model.predictor("embed", layer=layer, pooling="tokens", batch_size=settings.batch_size)
    assert model.vocabulary is not None
    (x, y), (held_out, right) = (features(reader, part, model.vocabulary) for part in parts)
    said = linear_probes.fit(x, y).predict(held_out)
    return float((said == right).sum() / _size(parts[1]))


def features(
    reader: Embeddings, part: Texts | list[Tagged], vocabulary: Vocabulary
) -> tuple[np.ndarray, np.ndarray]:
    """Features, float32 [N, F], and labels, str [N], of texts or of words."""
    if isinstance(part, Texts):
        return text_states(reader, part.texts), np.array(part.labels)
    states, numbers = word_states(reader, part, vocabulary)
    return states, np.array(_labels(part))[numbers]


def _labels(part: Texts | list[Tagged]) -> list[str]:
    if isinstance(part, Texts):
        return part.labels
    return [tag for sentence in part for tag in sentence.tags]


def _size(part: Texts | list[Tagged]) -> int:
    return len(_labels(part))


def _floors(train: Texts | list[Tagged], held_out: Texts | list[Tagged]) -> dict[str, float]:
    """The accuracies of the commonest label and, of tags, of the commonest of each word."""
    right = _labels(held_out)
    commonest = _commonest(_labels(train))
    floors = {"commonest label": float(np.mean([label == commonest for label in right]))}
    if isinstance(train, Texts) or isinstance(held_out, Texts):
        return floors
    tags_of: dict[str, list[str]] = collections.defaultdict(list)
    for sentence in train:
        for word, tag in zip(sentence.words, sentence.tags, strict=True):
            tags_of[word.lower()].append(tag)

    words = [word.lower() for sentence in held_out for word in sentence.words]
    said = {w: _commonest(tags_of.get(w, [commonest])) for w in {*words}}
    pairs = zip(words, right, strict=True)
    floors["commonest tag of the word"] = float(np.mean([said[w] == tag for w, tag in pairs]))
    return floors


def _commonest(labels: Sequence[str]) -> str:
    return collections.Counter(labels).most_common(1)[0][0]
