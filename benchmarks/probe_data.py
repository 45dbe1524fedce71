"""Labelled sentences and tagged words for linear probes."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import NamedTuple

import numpy as np

from t5x_like.evaluation.language import tagged_words
from t5x_like.evaluation.language.tagged_words import Tagged

SST2 = "SST-2 as GLUE distributes it (gluebenchmark.com): a header, then sentence and label by tabs"
COLA = "CoLA's public release (nyu-mll.github.io/CoLA): source, label, mark and sentence by tabs"
EWT = "Universal Dependencies' English Web Treebank (universaldependencies.org): CoNLL-U"


class Labelled(NamedTuple):
    """Sentences and the class of each, int [n]."""

    texts: list[str]
    labels: np.ndarray


def _there(path: Path, source: str) -> Path:
    """The file, or the same with .gz after its name.

    Raises:
      FileNotFoundError: there is neither; `source` says what it should be.
    """
    for file in (path, path.with_name(path.name + ".gz")):
        if file.exists():
            return file
    raise FileNotFoundError(f"{path} is missing (also with .gz): it is of {source}")


def _lines(path: Path, source: str) -> list[str]:
    file = _there(path, source)
    opened = gzip.open if file.suffix == ".gz" else open
    with opened(file, "rt", encoding="utf-8", newline="\n") as text:
        return text.read().split("\n")


def _labelled(path: Path, source: str, *, header: int, columns: tuple[int, int]) -> Labelled:
    """The texts and labels of a file, in `columns`, after `header` lines of header."""
    text, label = columns
    rows = [line.rstrip("\r").split("\t") for line in _lines(path, source)[header:] if line.strip()]
    for number, row in enumerate(rows, 1):
        if len(row) <= max(columns) or row[label] not in ("0", "1"):
            raise ValueError(f"{path}, row {number}: {row[:5]} is not of {source}")
    return Labelled([row[text] for row in rows], np.array([int(row[label]) for row in rows]))


def load_sst2(folder: Path, split: str) -> Labelled:
    """Sentiment, 1 for positive: `split` "train" (phrases) or "dev" of `glue_sst2/`.

    Raises:
      OSError, ValueError: the file is missing or of another format.
    """
    return _labelled(folder / f"glue_sst2/{split}.tsv", SST2, header=1, columns=(0, 1))


def load_cola(folder: Path, split: str) -> Labelled:
    """Acceptability, 1 for acceptable: `split` "train", or "dev" in and out of domain.

    Raises:
      OSError, ValueError: a file of `glue_cola/` is missing or of another format.
    """
    names = {"train": ["in_domain_train"], "dev": ["in_domain_dev", "out_of_domain_dev"]}[split]
    paths = [folder / f"glue_cola/{name}.tsv" for name in names]
    parts = [_labelled(path, COLA, header=0, columns=(3, 1)) for path in paths]
    texts = [text for part in parts for text in part.texts]
    return Labelled(texts, np.concatenate([part.labels for part in parts]))


def load_tagged(folder: Path, split: str) -> list[Tagged]:
    """Universal parts of speech: `split` "train" or "dev" of `ud_english_ewt/`.

    Raises:
      OSError, ValueError: the file is missing or of another format.
    """
    path = folder / f"ud_english_ewt/en_ewt-ud-{split}.conllu"
    return tagged_words.read(str(_there(path, EWT)))


def subsample(labelled: Labelled, size: int) -> Labelled:
    """`size` of the sentences, always the same ones, or all where there are fewer."""
    chosen = np.random.default_rng(0).permutation(len(labelled.texts))[:size]
    return Labelled([labelled.texts[i] for i in chosen], labelled.labels[chosen])
