"""Words with tags, from CoNLL and CoNLL-U files, and where they are among a sentence's tokens."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np

from t5x_like.core.protocols.data import Vocabulary
from t5x_like.data.corpora.matching_files import File
from t5x_like.evaluation.language import reading

CONLLU = "CoNLL-U (universaldependencies.org): ten columns, an empty line after each sentence"


@dataclasses.dataclass
class Tagged:
    """The words of one sentence, their tags, and which follow the last without a space.

    The words of a contraction such as "don't" are "do" and "n't", joined.
    """

    words: list[str] = dataclasses.field(default_factory=list)
    tags: list[str] = dataclasses.field(default_factory=list)
    joined: list[bool] = dataclasses.field(default_factory=list)


def is_tagged(path: File) -> bool:
    """Whether a file has a word and its tag on each line, by its name."""
    return {".conll", ".conllu"} & {*path.suffixes} != set()


def read(files: str | Sequence[str]) -> list[Tagged]:
    """The sentences of files: universal parts of speech of `.conllu`, else the last column.

    Raises:
      ValueError, OSError: a file is missing or of another format.
    """
    return [sentence for path in reading.files(files) for sentence in _of_file(path)]


def _of_file(path: File) -> Iterator[Tagged]:
    if ".conllu" in path.suffixes:
        yield from (sentence for sentence in _universal(path) if sentence.words)
        return
    for row in reading.rows(path):
        yield Tagged(row["words"], row["tags"], [False] * len(row["words"]))


def _universal(path: File) -> Iterator[Tagged]:
    sentence, joined, contraction = Tagged(), False, (0, False)
    last_line = 0
    for number, line in reading.lines(path):
        if number > last_line + 1:  # blank lines are between them
            yield sentence
            sentence, joined, contraction = Tagged(), False, (0, False)
        last_line = number
        if line.startswith("#"):
            continue
        fields = line.split("\t")
        if len(fields) != 10:
            raise ValueError(f"{path}:{number} is not of {CONLLU}")
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


def some_words(sentences: Sequence[Tagged], words: int, *, seed: int = 0) -> list[Tagged]:
    """Whole sentences, drawn with `seed`, with `words` words in all or a few more."""
    chosen: list[Tagged] = []
    count = 0
    for i in np.random.default_rng(seed).permutation(len(sentences)):
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
                start = (
                    reading.shared(self._encode(before + "".join(chunk[:i])), encoded) if i else 0
                )
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
