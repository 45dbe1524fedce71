"""What bags of words reach on the tasks of `finetuning_study.py`, with scikit-learn."""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import sacrebleu
import scipy.sparse
import scipy.stats
from seqeval.metrics import f1_score as entity_f1
from sklearn.feature_extraction import DictVectorizer
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import accuracy_score, f1_score
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline

Metrics = dict[str, float]


def all_of(data: Path) -> Iterator[tuple[str, Metrics]]:
    """The metrics of each task, by name, as shares; BLEU from 0 to 100."""
    yield "mrpc", mrpc(data / "glue_mrpc")
    yield "stsb", stsb(data / "glue_stsb")
    yield "wnut17", wnut17(data / "wnut17_germeval")
    yield "sst2", sst2(data / "glue_sst2")
    yield "squad2", squad2(data / "squad")
    yield "e2e", e2e(data / "e2e_nlg")


def text_of(path: Path) -> str:
    """The text of a file, or of that file with .gz after its name."""
    packed = path.with_name(path.name + ".gz")
    content = path.read_bytes() if path.exists() else gzip.decompress(packed.read_bytes())
    return content.decode("utf-8")


def tabs(path: Path) -> list[list[str]]:
    """The rows of a table without quotes, without its header."""
    return [line.rstrip("\r").split("\t") for line in text_of(path).split("\n")[1:] if line.strip()]


def pairs(vectorizer: TfidfVectorizer, first: Sequence[str], second: Sequence[str]) -> Any:
    """Words of both texts and words of one, [n, 2 * words]."""
    left, right = vectorizer.transform(first), vectorizer.transform(second)
    return scipy.sparse.hstack([left.multiply(right), abs(left - right)]).tocsr()


def sst2(folder: Path) -> Metrics:
    """Classes of one text."""
    (texts, labels), (held_out, right) = (
        zip(*tabs(folder / f"{part}.tsv"), strict=True) for part in ("train", "dev")
    )
    model = make_pipeline(
        TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True),
        LogisticRegression(C=10, max_iter=1000),
    )
    return {"accuracy": accuracy_score(right, model.fit(texts, labels).predict(held_out))}


def mrpc(folder: Path) -> Metrics:
    """Classes of two texts."""
    train, dev = (tabs(folder / f"{part}.tsv") for part in ("train", "dev"))
    vectorizer = TfidfVectorizer(sublinear_tf=True).fit([text for row in train for text in row[3:]])
    parts = [
        (pairs(vectorizer, [row[3] for row in rows], [row[4] for row in rows]), rows)
        for rows in (train, dev)
    ]
    (x, rows), (held_out, right_rows) = parts
    model = LogisticRegression(max_iter=1000).fit(x, [int(row[0]) for row in rows])
    right, said = [int(row[0]) for row in right_rows], model.predict(held_out)
    return {"f1": f1_score(right, said), "accuracy": accuracy_score(right, said)}


def stsb(folder: Path) -> Metrics:
    """Numbers of two texts."""
    train, dev = (
        list(csv.reader(io.StringIO(text_of(folder / f"en-{part}.csv"))))
        for part in ("train", "dev")
    )
    vectorizer = TfidfVectorizer(sublinear_tf=True).fit([text for row in train for text in row[:2]])
    x, held_out = (
        pairs(vectorizer, [row[0] for row in rows], [row[1] for row in rows])
        for rows in (train, dev)
    )
    said = Ridge().fit(x, [float(row[2]) for row in train]).predict(held_out)
    right = [float(row[2]) for row in dev]
    return {
        "pearson": float(scipy.stats.pearsonr(said, right)[0]),
        "spearman": float(scipy.stats.spearmanr(said, right)[0]),
    }


def wnut17(folder: Path) -> Metrics:
    """Tags of words, by the word, its neighbours and its shape."""
    sentences: list[list[list[str]]] = [[]]
    for line in text_of(folder / "wnut17train.conll").split("\n"):
        if line.strip():
            sentences[-1].append(line.split("\t"))
        elif sentences[-1]:
            sentences.append([])
    train, dev = train_test_split([one for one in sentences if one], test_size=0.1, random_state=0)

    def features(sentence: Sequence[Sequence[str]]) -> Iterator[dict[str, str | bool]]:
        words = ["", *(word for word, _ in sentence), ""]
        for before, word, after in zip(words, words[1:], words[2:], strict=False):
            yield {
                "word": word.lower(),
                "before": before.lower(),
                "after": after.lower(),
                "title": word.istitle(),
                "upper": word.isupper(),
                "end": word[-3:],
            }

    model = make_pipeline(DictVectorizer(), LogisticRegression(C=10, max_iter=1000))
    model.fit(
        [one for sentence in train for one in features(sentence)],
        [tag for sentence in train for _, tag in sentence],
    )
    said = [list(model.predict(list(features(sentence)))) for sentence in dev]
    return {"entity_f1": float(entity_f1([[tag for _, tag in sentence] for sentence in dev], said))}


def squad2(folder: Path) -> Metrics:
    """No answer to any question."""
    questions = [
        question
        for article in json.loads(text_of(folder / "dev_half.json"))["data"]
        for paragraph in article["paragraphs"]
        for question in paragraph["qas"]
    ]
    share = sum(not question["answers"] for question in questions) / len(questions)
    return {"f1": share, "exact": share}


def e2e(folder: Path) -> Metrics:
    """The text of the most similar input of the training rows; BLEU with all references."""
    rows = [json.loads(line) for line in text_of(folder / "train.jsonl").splitlines()]
    train = {row["mr"]: row["ref"] for row in rows}
    dev = list(csv.DictReader(io.StringIO(text_of(folder / "devset.csv"))))
    vectorizer = TfidfVectorizer().fit(train)
    references: dict[str, list[str]] = {}
    for row in dev:
        references.setdefault(row["mr"], []).append(row["ref"])
    nearest = (vectorizer.transform(references) @ vectorizer.transform(train).T).argmax(axis=1)
    texts = list(train.values())
    said = [texts[int(n)] for n in nearest.flat]
    several = [*map(list, itertools.zip_longest(*references.values()))]
    return {"bleu": sacrebleu.corpus_bleu(said, several, force=True).score}
