"""Corpora: documents of text by split, in a fixed order, and the names they are found by."""

from __future__ import annotations

import abc
import dataclasses
import functools
import hashlib
import importlib
import itertools
import pkgutil
from collections.abc import Callable, Iterator, Sequence

from t5x_like.core.spelling import nearest
from t5x_like.data.corpora import text_pieces

TARGETS = ("targets",)
"""Features of plain text."""
TEXT_TO_TEXT = ("inputs", "targets")


class CorpusError(ValueError):
    """A corpus cannot be read as asked."""


class NothingHeldOutError(CorpusError):
    """A corpus has documents, and too few of them to hold some out."""


@dataclasses.dataclass
class ReadReport:
    """What reading a split has come to so far; filled in while its documents are iterated.

    `documents` and `skipped` (those of them with invalid UTF-8) are of the whole corpus where one
    reading decides the split; `skipped_pieces` are of documents too long to be skipped whole. Bytes
    are of files as they lie on disk; 0 where there are none.
    """

    documents: int = 0
    skipped: int = 0
    skipped_pieces: int = 0
    bytes_read: int = 0
    bytes_total: int = 0

    def __str__(self) -> str:
        skipped = f"skipped {self.skipped:,} of {self.documents:,} documents"
        if self.skipped_pieces:
            skipped += f" and {self.skipped_pieces:,} pieces of long ones"
        return f"{skipped}: invalid UTF-8"


class Corpus(abc.ABC):
    """Documents are dicts from feature name to text, non-empty and encodable as UTF-8.

    A subclass says how its documents are read; this class skips and counts undecodable ones,
    and splits by content: a document stays in its split whatever is added around it.

    A document of plain text that is longer than `text_pieces.MAX_PIECE` characters comes as several
    `text_pieces.Piece`s, one after the other. It is one document: the first piece decides the split
    of all, so that copies are in the same one. An undecodable piece alone is left out of it, and
    what follows is a document by itself, in the same split.
    """

    name: str

    @property
    @abc.abstractmethod
    def features(self) -> tuple[str, ...]:
        """`("targets",)` for plain text, `("inputs", "targets")` for text-to-text."""

    @property
    @abc.abstractmethod
    def held_out(self) -> float | None:
        """Fraction of documents for `validation`; None where `read` itself knows the splits."""

    @property
    def splits(self) -> tuple[str, ...]:
        return ("train",) if self.held_out == 0.0 else ("train", "validation")

    @abc.abstractmethod
    def read(self, split: str, report: ReadReport) -> Iterator[dict[str, str]]:
        """All documents, or those of `split` where `held_out` is None, in a fixed order.

        Long ones may come whole or as `text_pieces.Piece`s.

        Undecodable bytes come as lone surrogates (`errors="surrogateescape"`); only the byte
        counts of the report are filled in here.
        """

    @abc.abstractmethod
    def fingerprint(self) -> str:
        """Hex digest of what is read and how; cheap, so of files their size, head and tail."""

    @abc.abstractmethod
    def description(self) -> str:
        """One line for people."""

    @property
    def readings(self) -> tuple[tuple[str, ...], ...]:
        """The splits, those together that one reading of the text gives."""
        return tuple((split,) for split in self.splits) if self.held_out is None else (self.splits,)

    def documents(
        self, split: str, *, report: ReadReport | None = None
    ) -> Iterator[dict[str, str]]:
        """The documents of a split, in the same order each time, in bounded memory.

        Raises:
          CorpusError: there is no such split, or nothing in it.
        """
        if split not in self.splits:
            raise CorpusError(
                f"corpus {self.name!r} has no split {split!r}, only {', '.join(self.splits)}"
            )
        report = ReadReport() if report is None else report
        for _, document in self.sorted_documents((split,), report=report):
            yield document

    def training_texts(self) -> Iterator[str]:
        """What a vocabulary is trained on: the training split, whatever the feature."""
        for document in self.documents("train"):
            yield from document.values()

    def sorted_documents(
        self, splits: Sequence[str], *, report: ReadReport
    ) -> Iterator[tuple[str, dict[str, str]]]:
        """Documents with their splits, in the order of the text: read once for all the splits.

        Args:
          splits: of one of `readings`.
          report: filled in meanwhile.

        Raises:
          CorpusError: in the end, a split got nothing; the first such split.
        """
        found = set()
        for split, document in self._decodable(self._chooser(splits[0]), splits[0], report=report):
            if split in splits:
                found.add(split)
                yield split, document
        for split in splits:
            if split not in found:
                raise self._nothing(split, report, found)

    def _decodable(
        self, split_of: Callable[[bytes], str], split: str, *, report: ReadReport
    ) -> Iterator[tuple[str, dict[str, str]]]:
        """All documents that are not empty, the long ones in pieces, with their splits."""
        chosen: str | None = None
        gap = False
        whole = (document for document in self.read(split, report) if any(document.values()))
        for document in itertools.chain.from_iterable(map(text_pieces.cut_if_long, whole)):
            if not text_pieces.continues(document):
                report.documents += 1
                chosen, gap = None, False
            try:
                first, *_ = [text.encode() for text in document.values()]
            except UnicodeEncodeError:
                gap = isinstance(document, text_pieces.Piece)
                report.skipped += not gap
                report.skipped_pieces += gap
                continue
            if gap:
                document = text_pieces.Piece(document["targets"], first=True)
                gap = False
            # References of the same input must not be divided between the splits.
            chosen = chosen or split_of(first)
            yield chosen, document

    def _chooser(self, split: str) -> Callable[[bytes], str]:
        """Which split a document with this first feature is in: `split`, if none are held out."""
        if not self.held_out:
            return lambda content: split
        held_out = HeldOut(self.held_out)
        return lambda content: "validation" if held_out(content) else "train"

    def _nothing(self, split: str, report: ReadReport, found: set[str]) -> CorpusError:
        where = f"corpus {self.name!r} ({self.description()})"
        if not found and (report.skipped or report.skipped_pieces):
            return CorpusError(f"{where} has no text: {report}")
        if report.documents and split == "validation":
            return NothingHeldOutError(
                f"{where} has too few documents ({report.documents}) to hold some out: separate "
                "them otherwise, name files for validation, or hold out nothing (validation=0)"
            )
        return CorpusError(f"{where} has no text in split {split!r}: every document is empty")


class HeldOut:
    """Decides by content which documents are held out; ask for each of them in order.

    The first document never is and the second different one always is, so that both splits of
    even a tiny corpus have something. Documents with equal content are never divided.
    """

    def __init__(self, fraction: float) -> None:
        if not 0 <= fraction < 1:
            raise CorpusError(f"validation is a fraction from 0 to below 1, not {fraction}")
        self._below = int(fraction * 2**64)
        self._first: bytes | None = None
        self._second: bytes | None = None

    def __call__(self, content: bytes) -> bool:
        digest = hashlib.blake2b(content, digest_size=8).digest()
        if self._first is None:
            self._first = digest
        if digest == self._first:
            return False
        if self._second is None:
            self._second = digest
        return digest == self._second or int.from_bytes(digest) < self._below


_REGISTERED: dict[str, Corpus] = {}


def add(corpus: Corpus) -> Corpus:
    """Makes a corpus known by its name, as modules of `tasks` do when they are imported.

    Raises:
      ValueError: the name is taken.
    """
    if corpus.name in _REGISTERED:
        raise ValueError(
            f"there is a corpus {corpus.name!r} already "
            f"({_REGISTERED[corpus.name].description()}): choose another name"
        )
    _REGISTERED[corpus.name] = corpus
    return corpus


def get(name: str) -> Corpus:
    """The corpus of this name.

    Raises:
      CorpusError: there is none; says the nearest names.
    """
    known = names()
    if name not in known:
        raise CorpusError(f"no corpus {name!r}" + nearest(name, known, of="corpora"))
    return _REGISTERED[name]


def names() -> tuple[str, ...]:
    """Names of all corpora: those of `t5x_like.tasks` and those added since."""
    _import_tasks()
    return tuple(sorted(_REGISTERED))


@functools.cache
def _import_tasks() -> None:
    tasks = importlib.import_module("t5x_like.tasks")
    for module in pkgutil.iter_modules(tasks.__path__):
        importlib.import_module(f"{tasks.__name__}.{module.name}")
