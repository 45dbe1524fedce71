"""The forms in which benchmarks publish their files, read as rows."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from t5x_like.data.corpora.corpus import CorpusError, ReadReport
from t5x_like.data.corpora.formats import compression, text_formats

Row = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Table:
    """Tables, JSON lines or Parquet, as their extension says.

    Attributes:
      header: the names of the columns, where the first line does not have them.
    """

    header: tuple[str, ...] = ()

    def rows(self, paths: Sequence[Path]) -> Iterator[Row]:
        """The rows of all files."""
        for path in paths:
            yield from text_formats.rows(path, header=self.header)


@dataclasses.dataclass(frozen=True)
class TornTable:
    """A TSV some of whose rows the publication itself has torn: those are left out."""

    def rows(self, paths: Sequence[Path]) -> Iterator[Row]:
        """The rows with as many cells as the first line, none of them empty."""
        return (row for row in self._read(paths) if row is not None)

    def left_out(self, paths: Sequence[Path]) -> tuple[int, int]:
        """The number of torn rows, and of all."""
        torn = [row is None for row in self._read(paths)]
        return sum(torn), len(torn)

    def _read(self, paths: Sequence[Path]) -> Iterator[Row | None]:
        """The rows, None for a torn one."""
        for path in paths:
            lines = (line.split("\t") for line in _lines(path))
            header = next(lines, [])
            for cells in lines:
                whole = len(cells) == len(header) and all(cells)
                yield dict(zip(header, cells, strict=True)) if whole else None


@dataclasses.dataclass(frozen=True)
class Words:
    """A word a line, with its tags beside it; an empty line after each sentence.

    Comments begin with `#` and a blank or a tab. Multiword tokens ("3-4") and empty nodes ("5.1")
    of CoNLL-U are left out.

    Attributes:
      word: the column of the word.
      tag: that of its tag.
      separator: what is between columns; None for blanks.
      numbered: whether the first column is the number of the word, as in CoNLL-U.
    """

    word: int = 0
    tag: int = -1
    separator: str | None = None
    numbered: bool = False

    def rows(self, paths: Sequence[Path]) -> Iterator[Row]:
        """A row of `words` and `tags` for each sentence."""
        for path in paths:
            yield from self._sentences(path)

    def _sentences(self, path: Path) -> Iterator[Row]:
        words: list[str] = []
        tags: list[str] = []
        for number, line in enumerate(itertools.chain(_lines(path), [""]), start=1):
            if not line.strip():
                if words:
                    yield {"words": words, "tags": tags}
                words, tags = [], []
                continue
            cells = line.split(self.separator)
            if cells[0] == "-DOCSTART-" or (self.numbered and not cells[0].isdecimal()):
                continue
            if len(cells) <= max(self.word, self.tag, 1):
                raise CorpusError(f"{path}:{number} has no tag beside its word: {line!r:.60}")
            words.append(cells[self.word])
            tags.append(cells[self.tag])


@dataclasses.dataclass(frozen=True)
class Parallel:
    """Two files with a sentence a line, of which the n-th lines mean the same."""

    def rows(self, paths: Sequence[Path]) -> Iterator[Row]:
        """A row with `source` and `target` for each line.

        Raises:
          CorpusError: there are other than two files, or they have other numbers of lines.
        """
        if len(paths) != 2:
            raise CorpusError(
                f"{' and '.join(map(str, paths))}: sentences and their translations are two files"
            )
        pairs = itertools.zip_longest(*map(_lines, paths))
        for number, (source, target) in enumerate(pairs, start=1):
            if source is None or target is None:
                raise CorpusError(
                    f"{paths[0]} and {paths[1]} have other numbers of lines: one ends before line "
                    f"{number:,}"
                )
            yield {"source": source, "target": target}


@dataclasses.dataclass(frozen=True)
class Folders:
    """A folder for each class, with a file for each text."""

    def rows(self, paths: Sequence[Path]) -> Iterator[Row]:
        """A row with `text` and `label`, the name of the folder, for each file."""
        for path in paths:
            yield {"text": path.read_text(encoding="utf-8"), "label": path.parent.name}


@dataclasses.dataclass(frozen=True)
class Objects:
    """Files of one JSON object each."""

    def rows(self, paths: Sequence[Path]) -> Iterator[Row]:
        """The objects.

        Raises:
          CorpusError: a file is something else.
        """
        for path in paths:
            try:
                row = json.loads(path.read_bytes())
            except ValueError as error:
                raise CorpusError(f"{path} is not JSON: {error}") from error
            if not isinstance(row, dict):
                raise CorpusError(f"{path} is not a JSON object: {row!s:.60}")
            yield row


@dataclasses.dataclass(frozen=True)
class AsTheyAre:
    """Files that `t5x_like finetune --train` reads as they are."""


@dataclasses.dataclass(frozen=True)
class Files:
    """One way in which the files of a task are published.

    Attributes:
      train: glob patterns below the directory. All that match one are the training files: the
        first pattern that matches any. Several patterns in one, for files that go together, have
        blanks between them. ("",) where there are none.
      dev: patterns of the held-out files; ("",) where there are none.
      form: how they are read.
    """

    train: Sequence[str]
    dev: Sequence[str] = ("",)
    form: Table | TornTable | Words | Parallel | Folders | Objects | AsTheyAre = Table()

    def matching(self, directory: Path) -> dict[str, list[Path]]:
        """The files of "train" and of "dev" below a directory."""
        return {"train": _first(directory, self.train), "dev": _first(directory, self.dev)}


def _first(directory: Path, patterns: Sequence[str]) -> list[Path]:
    for pattern in patterns:
        parts = [sorted(directory.glob(part)) for part in pattern.split()]
        if parts and all(parts):
            return [path for several in parts for path in several]
    return []


def _lines(path: Path) -> Iterator[str]:
    with compression.open_stream(path, ReadReport()) as stream:
        for line in stream:
            yield line.decode(errors="surrogateescape").removesuffix("\n").removesuffix("\r")
