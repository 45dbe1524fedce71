"""What bags of words and plain rules reach on the tasks of `finetuning_study.py`."""

from __future__ import annotations

import collections
import csv
import io
import itertools
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import sacrebleu
import scipy.sparse
import scipy.stats
from finetuning_data import questions, text_of
from seqeval.metrics import f1_score as entity_f1
from sklearn.feature_extraction import DictVectorizer
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef
from sklearn.pipeline import make_pipeline

from t5x_like.evaluation import span_metrics

Metrics = dict[str, float]


def tabs(path: Path) -> list[list[str]]:
    """The rows of a table without quotes, without its header."""
    return [line.rstrip("\r").split("\t") for line in text_of(path).split("\n")[1:] if line.strip()]


def pairs(vectorizer: TfidfVectorizer, first: Sequence[str], second: Sequence[str]) -> Any:
    """Words of both texts and words of one, [n, 2 * words]."""
    left, right = vectorizer.transform(first), vectorizer.transform(second)
    return scipy.sparse.hstack([left.multiply(right), abs(left - right)]).tocsr()


def _of_one_text(train: Sequence[Sequence[str]], dev: Sequence[str]) -> Any:
    """The classes that a regression on words and two words says; rows are (text, class)."""
    model = make_pipeline(
        TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True),
        LogisticRegression(C=10, max_iter=1000),
    )
    return model.fit([text for text, _ in train], [label for _, label in train]).predict(dev)


def sst2(folder: Path) -> Metrics:
    """Classes of one text."""
    train, dev = (tabs(folder / f"{part}.tsv") for part in ("train", "dev"))
    said = _of_one_text(train, [text for text, _ in dev])
    return {"accuracy": accuracy_score([label for _, label in dev], said)}


def cola(folder: Path) -> Metrics:
    """Classes of one text, of files without a header."""
    train, dev = (
        [line.split("\t") for line in text_of(folder / f"in_domain_{part}.tsv").split("\n") if line]
        for part in ("train", "dev")
    )
    said = _of_one_text([(row[3], row[1]) for row in train], [row[3] for row in dev])
    return {"matthews_correlation": float(matthews_corrcoef([row[1] for row in dev], said))}


def rte(folder: Path) -> Metrics:
    """Classes of two texts."""
    train, dev = (tabs(folder / f"{part}.tsv") for part in ("train", "dev"))
    vectorizer = TfidfVectorizer(sublinear_tf=True)
    vectorizer.fit([text for row in train for text in row[1:3]])
    x, held_out = (
        pairs(vectorizer, [row[1] for row in rows], [row[2] for row in rows])
        for rows in (train, dev)
    )
    model = LogisticRegression(max_iter=1000).fit(x, [row[3] for row in train])
    return {"accuracy": accuracy_score([row[3] for row in dev], model.predict(held_out))}


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


def _tagged(path: Path, word: int, tag: int) -> list[list[tuple[str, str]]]:
    """The words and tags of each sentence; what has no whole number in CoNLL-U is left out."""
    sentences: list[list[tuple[str, str]]] = [[]]
    for line in text_of(path).split("\n"):
        cells = line.split("\t")
        if not line.strip():
            sentences.append([])
        elif not (line.startswith("#") and len(cells) == 1) and not (
            word and not cells[0].isdigit()
        ):
            sentences[-1].append((cells[word], cells[tag]))
    return [sentence for sentence in sentences if sentence]


def ud(folder: Path) -> Metrics:
    """The commonest tag of each word; of a new word that of its last three letters, or of all."""
    train, dev = (_tagged(folder / f"en_ewt-ud-{part}.conllu", 1, 3) for part in ("train", "dev"))
    keys: Sequence[Callable[[str], str]] = (str.lower, lambda word: word.lower()[-3:], lambda _: "")
    counts: list[dict[str, collections.Counter[str]]] = [{} for _ in keys]
    for word, tag in itertools.chain(*train):
        for key, of_key in zip(keys, counts, strict=True):
            of_key.setdefault(key(word), collections.Counter())[tag] += 1

    def said(word: str) -> str:
        known = (of_key.get(key(word)) for key, of_key in zip(keys, counts, strict=True))
        return next(counter for counter in known if counter).most_common(1)[0][0]

    words = [*itertools.chain(*dev)]
    return {"accuracy": sum(said(word) == tag for word, tag in words) / len(words)}


def wnut17(folder: Path) -> Metrics:
    """Tags of words, by the word, its neighbours and its shape."""
    train, dev = (_tagged(folder / f"{part}.conll", 0, 1) for part in ("train", "dev"))

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


def squad(folder: Path) -> Metrics:
    """The sentence of the text that has most of the question's words, by their rarity."""
    squads = [json.loads(text_of(folder / f"{part}-v1.1.json")) for part in ("train", "dev")]
    vectorizer = TfidfVectorizer().fit(
        paragraph["context"] for article in squads[0]["data"] for paragraph in article["paragraphs"]
    )
    totals = dict.fromkeys(("f1", "exact"), 0.0)
    for article in squads[1]["data"]:
        for paragraph in article["paragraphs"]:
            sentences = re.split(r"(?<=[.?!])\s+", paragraph["context"])
            known = vectorizer.transform(sentences)
            for question in paragraph["qas"]:
                asked = vectorizer.transform([question["question"]])
                said = sentences[int((known @ asked.T).toarray().argmax())]
                golds = [answer["text"] for answer in question["answers"]]
                for name, score in (("f1", span_metrics.f1), ("exact", span_metrics.exact)):
                    totals[name] += span_metrics.nearest(score, said, golds)
    count = len(questions(squads[1]))
    return {name: total / count for name, total in totals.items()}


def _nearest(train: Sequence[str], dev: Sequence[str]) -> list[int]:
    """For each text the number of the most similar training text."""
    vectorizer = TfidfVectorizer().fit(train)
    similar = vectorizer.transform(dev) @ vectorizer.transform(train).T
    return [int(n) for n in similar.argmax(axis=1).flat]


def multi30k(folder: Path) -> Metrics:
    """The translation of the most similar training text."""
    train, targets, dev, references = (
        text_of(folder / name).strip("\n").split("\n")
        for name in ("train.en", "train.de", "val.en", "val.de")
    )
    said = [targets[n] for n in _nearest(train, dev)]
    return {"bleu": sacrebleu.corpus_bleu(said, [references], force=True).score}


def e2e(folder: Path) -> Metrics:
    """The text of the most similar input of the training rows; BLEU with all references."""
    rows = [json.loads(line) for line in text_of(folder / "train.jsonl").splitlines()]
    train = {row["mr"]: row["ref"] for row in rows}
    dev = list(csv.DictReader(io.StringIO(text_of(folder / "devset.csv"))))
    references: dict[str, list[str]] = {}
    for row in dev:
        references.setdefault(row["mr"], []).append(row["ref"])
    texts = list(train.values())
    said = [texts[n] for n in _nearest([*train], [*references])]
    several = [*map(list, itertools.zip_longest(*references.values()))]
    return {"bleu": sacrebleu.corpus_bleu(said, several, force=True).score}


FLOORS: Mapping[str, tuple[Callable[[Path], Metrics], str]] = {
    "sst2": (sst2, "glue_sst2"),
    "cola": (cola, "glue_cola"),
    "mrpc": (mrpc, "glue_mrpc"),
    "rte": (rte, "glue_rte"),
    "stsb": (stsb, "glue_stsb"),
    "wnut17": (wnut17, "wnut17"),
    "ud": (ud, "ud_english_ewt"),
    "squad": (squad, "squad"),
    "multi30k": (multi30k, "multi30k"),
    "e2e": (e2e, "e2e_nlg"),
}
"""{task: (what gives its metrics, the folder of its prepared files)}; BLEU is from 0 to 100."""
