"""A corpus: documents of text by split, in a fixed order."""

from __future__ import annotations

import abc
import copy
import dataclasses
import hashlib
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

from t5x_like.core.protocols.data import Column, text_columns
from t5x_like.data.corpora import text_pieces
from t5x_like.data.corpora.label_order import in_order

Document = Mapping[str, Any]
"""{column: value}"""


class CorpusError(ValueError):
    """A corpus cannot be read."""


class NothingHeldOutError(CorpusError):
    """A corpus has too few documents to hold some out."""


@dataclasses.dataclass
class ReadReport:
    """The progress of reading a split, updated while its documents are iterated.

    `documents` counts the documents, and `skipped` those of which nothing is left without lines of
    invalid UTF-8; `skipped_lines` are the lines that other documents lost. `skipped_bytes` are the
    bytes of both, `text_bytes` those of all documents. `empty` counts rows without text, which are
    no documents: null, empty, or nothing but white space. Where one reading gives several splits,
    all counts cover the whole corpus. `bytes_read` and `bytes_total` are bytes of files on disk; 0
    where there are no files.
    """

    documents: int = 0
    skipped: int = 0
    skipped_lines: int = 0
    skipped_bytes: int = 0
    text_bytes: int = 0
    empty: int = 0
    bytes_read: int = 0
    bytes_total: int = 0

    def __str__(self) -> str:
        """The parts that were left out, and why; "" if there are none."""
        skipped, parts = [], []
        if self.skipped:
            skipped.append(f"{self.skipped:,} of {self.documents:,} documents")
        if self.skipped_lines:
            skipped.append(f"{self.skipped_lines:,} lines{' of others' if skipped else ''}")
        if skipped:
            parts.append(
                f"skipped {' and '.join(skipped)}: invalid UTF-8 "
                f"({self.skipped_bytes:,} of {self.text_bytes:,} bytes)"
            )
        if self.empty:
            parts.append(f"rows without text, null, empty or white space: {self.empty:,}")
        return "; ".join(parts)

    def add(self, other: ReadReport) -> None:
        """Adds all counts of another part of the same reading."""
        for name, count in dataclasses.asdict(other).items():
            setattr(self, name, getattr(self, name) + count)


class Corpus(abc.ABC):
    """A corpus. Its documents are dicts from the name of a column to its value.

    A text is valid UTF-8, and some text of a document is not empty. Words and tags are texts of one
    a line. A label is the name of a class, a text. Numbers are float32, of the column's shape.

    A subclass implements how its documents are read. This class skips and counts the lines of plain
    text that are not UTF-8, and whole examples of several features. It chooses the split by
    content: a document stays in its split when others are added.

    A document of plain text that is longer than `text_pieces.MAX_PIECE` characters comes as several
    `text_pieces.Piece`s, one after the other. It is one document: the first piece decides the split
    of all, so that copies of a document have the same split.
    """

    name: str
    held_out_names: Sequence[str] = ()  # of files; where there are none, part of the text is

    @property
    @abc.abstractmethod
    def columns(self) -> tuple[Column, ...]:
        """The columns of its documents, such as `PLAIN_TEXT`, `PAIRS`; at least one holds text."""

    def with_columns(self, columns: Sequence[Column]) -> Corpus | None:
        """The corpus whose documents have these columns; None where its text has others."""
        return self if {*columns} == {*self.columns} else None

    _given_names: Mapping[str, Sequence[str]] | None = None

    def with_label_names(self, given: Mapping[str, Sequence[str]]) -> Self:
        """The same text with labels that are numbered as in `given`, {column: names of classes}.

        A model has learned them so; other text may have fewer.
        """
        other = copy.copy(self)
        other._given_names = given
        return other

    @property
    def label_names(self) -> dict[str, tuple[str, ...]]:
        """{column: the names of its classes}, in their order, for each column of labels.

        Raises:
          CorpusError: a column has one class only.
        """
        if self._given_names is not None:
            return {name: tuple(of) for name, of in self._given_names.items()}
        return self._own_label_names()

    def _own_label_names(self) -> dict[str, tuple[str, ...]]:
        """Those of all splits: by value where all are whole numbers, else by the alphabet."""
        wanted = [column for column in self.columns if column.has_names]
        classes: dict[str, set[str]] = {column.name: set() for column in wanted}
        for splits in self.readings if wanted else ():
            for document in self.read(splits[0], ReadReport()):
                for column in wanted:
                    classes[column.name].update(column.parts(document[column.name]))
        return {c.name: c.names or _ordered(self, c.name, classes[c.name]) for c in wanted}

    @property
    @abc.abstractmethod
    def held_out(self) -> float | None:
        """The fraction of documents in `validation`; None where `read` itself has the splits."""

    @property
    def splits(self) -> tuple[str, ...]:
        return ("train",) if self.held_out == 0.0 else ("train", "validation")

    @abc.abstractmethod
    def read(self, split: str, report: ReadReport) -> Iterator[Document]:
        """All documents, or those of `split` where `held_out` is None, in a fixed order.

        Long documents may come whole or as `text_pieces.Piece`s.

        Undecodable bytes come as lone surrogates (`errors="surrogateescape"`). This method updates
        only the byte counts of the report.
        """

    @abc.abstractmethod
    def fingerprint(self) -> str:
        """A hex digest of the text and of how it is read, quick to compute.

        For files, it covers their size, head and tail.
        """

    @abc.abstractmethod
    def description(self) -> str:
        """A description in one line, for messages."""

    @property
    def present(self) -> Sequence[str]:
        """The names of the fields of a row; empty for plain text, which has none."""
        return ()

    @property
    def reading(self) -> list[Any]:
        """JSON that decides its documents besides the text."""
        return [dataclasses.astuple(column) for column in self.columns]

    @property
    def unread(self) -> tuple[str, ...]:
        """The names of the fields of a row that are not a column; empty without fields."""
        return ()

    @property
    def readings(self) -> tuple[tuple[str, ...], ...]:
        """The splits in groups, each of which needs one reading of the text."""
        return tuple((split,) for split in self.splits) if self.held_out is None else (self.splits,)

    def documents(self, split: str, *, report: ReadReport | None = None) -> Iterator[Document]:
        """The documents of a split, in the same order each time, in bounded memory.

        Raises:
          CorpusError: there is no such split, or it is empty.
        """
        if split not in self.splits:
            raise CorpusError(
                f"corpus {self.name!r} has no split {split!r}, only {', '.join(self.splits)}"
            )
        report = ReadReport() if report is None else report
        for _, document in self.sorted_documents((split,), report=report):
            yield document

    def training_texts(self) -> Iterator[str]:
        """The texts to train a vocabulary on: the training split, all columns of text."""
        texts = [column for column in self.columns if column.name in self.text_columns]
        for document in self.documents("train"):
            yield from (" ".join(column.parts(document[column.name])) for column in texts)

    @property
    def text_columns(self) -> tuple[str, ...]:
        """The names of the columns that hold text or words, as `text_columns` of them."""
        return text_columns(self.columns)

    def sorted_documents(
        self, splits: Sequence[str], *, report: ReadReport
    ) -> Iterator[tuple[str, Document]]:
        """Documents with their splits, in the order of the text, which is read once.

        Args:
          splits: splits that are in one group of `readings`.
          report: updated during the reading.

        Raises:
          CorpusError: a split is empty. The error comes at the end, for the first such split.
        """
        splits_read = set()
        choose = self.chooser(splits[0])
        read = self.read(splits[0], report)
        for split, document in decodable(read, choose, texts=self.text_columns, report=report):
            if split in splits:
                splits_read.add(split)
                yield split, document
        self.check_found(splits_read, splits, report=report)

    def chooser(self, split: str) -> Chooser:
        """The choice of the splits of the documents that `read(split)` gives."""
        return Chooser(split, HeldOut(self.held_out) if self.held_out else None)

    def check_found(
        self, found: Collection[str], splits: Sequence[str], *, report: ReadReport
    ) -> None:
        """Raises CorpusError for the first of `splits` that is not among those found."""
        for split in splits:
            if split not in found:
                raise self._nothing(split, report, found)

    def _nothing(self, split: str, report: ReadReport, splits_read: Collection[str]) -> CorpusError:
        where = f"corpus {self.name!r} ({self.description()})"
        if not splits_read and (report.skipped_bytes):
            return CorpusError(f"{where} has no text: {report}")
        if report.documents and split == "validation":
            return NothingHeldOutError(
                f"{where} has too few documents ({report.documents}) to hold some out: choose "
                "another separator (CORPUS_SEPARATOR of a run, --separator of other commands), or "
                "hold out nothing (CORPUS_VALIDATION=0, --validation 0)"
            )
        return CorpusError(f"{where} has no text in split {split!r}: every document is empty")


def decodable(
    documents: Iterable[Document],
    choose: Callable[[bytes], str],
    *,
    texts: Sequence[str],
    report: ReadReport,
) -> Iterator[tuple[str, Document]]:
    """The decodable text of all documents that are not empty, with splits; long ones in pieces.

    Args:
      documents: documents as `Corpus.read` gives them.
      choose: gives the split of a document whose first text has these bytes.
      texts: the columns that hold text.
      report: its counts of documents are updated.
    """
    chosen: str | None = None
    begun = False
    whole = _with_text(documents, texts, report)
    for document in itertools.chain.from_iterable(map(text_pieces.cut_if_long, whole)):
        if not text_pieces.continues(document):
            report.documents += 1
            chosen, begun = None, False
        if (pair := _readable(document, texts, report)) is None:
            continue
        readable, first = pair
        if not begun and text_pieces.continues(readable):
            readable = text_pieces.Piece(readable["targets"], first=True)
        begun = True
        # Several references for one input must not be divided between the splits.
        chosen = chosen or choose(first)
        yield chosen, readable


def _with_text(
    documents: Iterable[Document], texts: Sequence[str], report: ReadReport
) -> Iterator[Document]:
    for document in documents:
        # A piece may be white space inside its document.
        if isinstance(document, text_pieces.Piece) or any(document[n].strip() for n in texts):
            yield document
        else:
            report.empty += 1


def _readable(
    document: Document, texts: Sequence[str], report: ReadReport
) -> tuple[Document, bytes] | None:
    """The document without lines of invalid UTF-8, and its first text; None if nothing is left.

    An example of several columns is whole or nothing.
    """
    try:
        first, *others = [document[name].encode() for name in texts]
        report.text_bytes += len(first) + sum(map(len, others))
        return document, first
    except UnicodeEncodeError:
        size = sum(_size(document[name]) for name in texts)
    report.text_bytes += size
    is_piece = isinstance(document, text_pieces.Piece)
    lines = [*text_pieces.lines(document["targets"])] if len(document) == 1 else []
    good = [line for line in lines if _decodable(line)]
    text = "".join(good)
    if not text.strip():
        report.skipped_bytes += size
        report.skipped += not is_piece
        report.skipped_lines += len(lines) * is_piece
        return None
    report.skipped_bytes += size - _size(text)
    report.skipped_lines += len(lines) - len(good)
    if is_piece:
        document = text_pieces.Piece(text, first=not text_pieces.continues(document))
    else:
        document = {"targets": text.rstrip()}
    return document, document["targets"].encode()


def _ordered(corpus: Corpus, column: str, labels: Collection[str]) -> tuple[str, ...]:
    if len(labels) < 2:
        only = f"all rows have {min(labels)!r}" if labels else "no row has one"
        raise CorpusError(
            f"corpus {corpus.name!r} ({corpus.description()}): column {column!r} holds labels, but "
            f"{only}: a model learns to tell classes apart only from rows of two or more"
        )
    return in_order(labels)


def _decodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _size(text: str) -> int:
    """The bytes of a text, in which a byte that is not UTF-8 is one character."""
    return len(text.encode(errors="replace"))


class HeldOut:
    """A decision by content whether a document is held out. Call it for all documents in order.

    The first document is never held out and the second different document always is, so that both
    splits of a tiny corpus have a document. Documents with equal content have the same split.
    """

    def __init__(self, fraction: float) -> None:
        if not 0 <= fraction < 1:
            raise CorpusError(f"validation is a fraction from 0 to below 1, not {fraction}")
        self._below = int(fraction * 2**64)
        self._first_two: list[bytes] = []  # different ones

    def __call__(self, content: bytes) -> bool:
        digest = hashlib.blake2b(content, digest_size=8).digest()
        if not self.settled and digest not in self._first_two:
            self._first_two.append(digest)
        if digest in self._first_two:
            return digest != self._first_two[0]
        return int.from_bytes(digest) < self._below

    @property
    def settled(self) -> bool:
        """Whether two different documents were seen. The order of all others does not matter."""
        return len(self._first_two) == 2


@dataclasses.dataclass(frozen=True)
class Chooser:
    """The choice of a document's split by its first feature; call it for all documents in order.

    Attributes:
      split: the split of all documents if `held_out` is None.
      held_out: the decision which documents are in `validation`; the others are in `train`.
    """

    split: str
    held_out: HeldOut | None

    def __call__(self, content: bytes) -> str:
        if self.held_out is None:
            return self.split
        return "validation" if self.held_out(content) else "train"

    @property
    def settled(self) -> bool:
        """Whether the choice no longer depends on the order of the documents."""
        return self.held_out is None or self.held_out.settled
