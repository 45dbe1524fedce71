"""Labelled sentences and tagged words for linear probes, and the tokens of the words."""

from __future__ import annotations

import dataclasses
import gzip
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from t5x_like.core.protocols.data import Vocabulary

SST2 = "SST-2 as GLUE distributes it (gluebenchmark.com): a header, then sentence and label by tabs"
COLA = "CoLA's public release (nyu-mll.github.io/CoLA): source, label, mark and sentence by tabs"
EWT = "Universal Dependencies' English Web Treebank (universaldependencies.org): CoNLL-U"


class Labelled(NamedTuple):
    """Sentences and the class of each, int [n]."""

    texts: list[str]
    labels: np.ndarray


@dataclasses.dataclass
class Tagged:
    """The words of one sentence, their universal tags, and which follow the last without a space.

    The words of a contraction such as "don't" are "do" and "n't", joined.
    """

    words: list[str] = dataclasses.field(default_factory=list)
    tags: list[str] = dataclasses.field(default_factory=list)
    joined: list[bool] = dataclasses.field(default_factory=list)


def lines(path: Path, source: str) -> list[str]:
    """The lines of a text file, or of that file with .gz after its name.

    Raises:
      FileNotFoundError: there is neither; `source` says what it should be.
    """
    if path.exists():
        return path.read_text(encoding="utf-8").split("\n")
    packed = path.with_name(path.name + ".gz")
    if packed.exists():
        with gzip.open(packed, "rt", encoding="utf-8", newline="\n") as file:
            return file.read().split("\n")
    raise FileNotFoundError(f"{path} is missing (also with .gz): it is of {source}")


def _labelled(path: Path, source: str, *, header: int, columns: tuple[int, int]) -> Labelled:
    """The texts and labels of a file, in `columns`, after `header` lines of header."""
    text, label = columns
    rows = [line.rstrip("\r").split("\t") for line in lines(path, source)[header:] if line.strip()]
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
    return [sentence for sentence in _sentences(path) if sentence.words]


def _sentences(path: Path) -> Iterator[Tagged]:
    sentence, joined, contraction = Tagged(), False, (0, False)
    for number, line in enumerate(lines(path, EWT), 1):
        if not line.strip():
            yield sentence
            sentence, joined, contraction = Tagged(), False, (0, False)
            continue
        if line.startswith("#"):
            continue
        fields = line.rstrip("\r").split("\t")
        if len(fields) != 10:
            raise ValueError(f"{path}:{number} is not of {EWT}")
        place, attached = fields[0], "SpaceAfter=No" in fields[9]
        if "-" in place:
            contraction = int(place.split("-")[1]), attached
        elif "." not in place:  # 8.1 is a word that the text leaves out
            sentence.words.append(fields[1])
            sentence.tags.append(fields[3])
            sentence.joined.append(joined)
            last, attached_last = contraction
            joined = attached if int(place) > last else int(place) < last or attached_last
    yield sentence


def subsample(labelled: Labelled, size: int) -> Labelled:
    """`size` of the sentences, always the same ones, or all where there are fewer."""
    chosen = np.random.default_rng(0).permutation(len(labelled.texts))[:size]
    return Labelled([labelled.texts[i] for i in chosen], labelled.labels[chosen])


def some_words(sentences: Sequence[Tagged], words: int) -> list[Tagged]:
    """Whole sentences, always the same ones, with `words` words in all or a few more."""
    chosen: list[Tagged] = []
    count = 0
    for i in np.random.default_rng(0).permutation(len(sentences)):
        if count >= words:
            break
        chosen.append(sentences[i])
        count += len(sentences[i].words)
    return chosen


class Aligner:
    """Encodes a sentence in chunks between spaces, and finds its words' tokens."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        # GPT-2's and RoBERTa's vocabularies see a space only where the text has one.
        one = list(vocabulary.encode("a"))
        self._space = "" if list(vocabulary.encode("a a")) == one + one else " "
        self._known: dict[str, list[int]] = {}

    def __call__(self, sentence: Tagged) -> tuple[np.ndarray, np.ndarray]:
        """A sentence's tokens, int32 [n], and the first token of each word, int64 [W].

        A word that begins inside a token, as "n't" may in "don't", gets that token.
        """
        tokens: list[int] = []
        firsts: list[int] = []
        for chunk in _chunks(sentence):
            before = self._space if tokens else ""
            encoded = self._encode(before + "".join(chunk))
            for i in range(len(chunk)):
                start = _shared(self._encode(before + "".join(chunk[:i])), encoded) if i else 0
                firsts.append(len(tokens) + min(start, max(0, len(encoded) - 1)))
            tokens += encoded
        return np.array(tokens, np.int32), np.array(firsts, np.int64)

    def _encode(self, text: str) -> list[int]:
        if text not in self._known:
            self._known[text] = list(self._vocabulary.encode(text))
        return self._known[text]


def _chunks(sentence: Tagged) -> list[list[str]]:
    """Groups of words with spaces between the groups."""
    chunks: list[list[str]] = []
    for word, joined in zip(sentence.words, sentence.joined, strict=True):
        if joined and chunks:
            chunks[-1].append(word)
        else:
            chunks.append([word])
    return chunks


def _shared(one: Sequence[int], other: Sequence[int]) -> int:
    """The number of first elements that two sequences have in common."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(one), len(other)))
