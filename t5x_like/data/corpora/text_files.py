"""A corpus of the user's files: plain text, JSON lines, TSV, CSV or Parquet."""

from __future__ import annotations

import functools
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from t5x_like.core.protocols.data import Column
from t5x_like.data.corpora import matching_files
from t5x_like.data.corpora.corpus import CorpusError, Document, ReadReport
from t5x_like.data.corpora.formats import text_formats
from t5x_like.data.corpora.matching_files import File, identity
from t5x_like.data.corpora.named_fields import NamedFields

_DOCUMENTS = 3
"""A number in fingerprints. Raise it when the same files would give other documents or splits: then
no cache of the old ones is read."""


class TextFiles(NamedFields):
    """The documents of all files that match, in the order of the patterns and then of the paths.

    The extension decides the format; `.gz` and `.zst` are decompressed. Plain text is divided by
    `separator`, and its documents may have any length. In the other formats a row is a document.

    Args:
      files: a path or glob pattern, or several, on a disk or in a bucket (`gs://`, `s3://`);
        `**` crosses directories.
      name: the name of the corpus; None to derive it from the files.
      columns, field: as for `NamedFields`; the first file decides.
      separator: the separator of documents in plain text: `line`, `blank_line` or `file`.
      validation: the fraction of documents to hold out, chosen by their content.
      validation_files: patterns of files to hold out instead; they are never trained on.
      header: the names of the columns of tables whose first line does not have them.

    Raises:
      ValueError: an argument is invalid. Files are not opened before they are needed.
    """

    def __init__(
        self,
        files: str | Path | Sequence[str | Path],
        *,
        name: str | None = None,
        columns: Sequence[Column] | None = None,
        field: str | Mapping[str, str] | None = None,
        separator: str = "blank_line",
        validation: float = 0.01,
        validation_files: str | Path | Sequence[str | Path] | None = None,
        header: Sequence[str] = (),
    ) -> None:
        super().__init__(columns, field)
        if separator not in text_formats.SEPARATORS:
            raise ValueError(f"separator {separator!r} is not one of {text_formats.SEPARATORS}")
        if not 0 <= validation < 1:
            raise ValueError(f"validation is a fraction from 0 to below 1, not {validation}")
        self._patterns = _patterns(files)
        self.held_out_names = _patterns(validation_files or [])
        self._separator = separator
        self._header = tuple(header)
        self.name = name or _name_from(self._patterns)
        self._validation = float(validation)

    def __repr__(self) -> str:
        return f"TextFiles({self._patterns}, name={self.name!r})"

    @property
    def held_out(self) -> float | None:
        return None if self.held_out_names else self._validation

    @property
    def options_read(self) -> set[str]:
        """The options of how files are read that apply to these formats."""
        plain = {text_formats.is_plain(path) for path in self.files("train")}
        read = {"separator"} if True in plain else set()
        read |= {"field", "header", "labels"} if False in plain else set()
        return read | ({"validation"} if self.held_out is not None else set())

    @functools.cached_property
    def present(self) -> tuple[str, ...]:
        return text_formats.columns(self.files("train")[0], header=self._header)

    @property
    def layout(self) -> text_formats.Layout:
        """The place of documents in each file."""
        return text_formats.Layout(self.fields, self._separator, self._header)

    def read(self, split: str, report: ReadReport) -> Iterator[Document]:
        paths, layout = self.files(split), self.layout
        report.bytes_total = sum(map(matching_files.size, paths))
        done = 0
        for path in paths:
            yield from text_formats.documents(path, layout, report=report)
            done += matching_files.size(path)
            report.bytes_read = done

    def fingerprint(self) -> str:
        """A digest of the reading options and of each file's extensions, size and a sample of it.

        The sample is 16 pieces of 64 KiB, evenly spread, which cover a file of up to 1 MiB.
        """
        splits = ("train",) if self.held_out is not None else ("train", "validation")
        content = []
        for split in splits:
            files = self.files(split)
            content += [
                [split, "".join(file.suffixes[-2:]), matching_files.size(file), digest]
                for file, digest in zip(files, matching_files.sample_digests(files), strict=True)
            ]
        options = [*self.reading, self._separator, self.held_out, _DOCUMENTS]
        options += [self._header] if self._header else []
        if self.held_out and any(column.holds == "passage" for column in self.columns):
            options += ["by passage"]
        return hashlib.sha256(json.dumps([options, content]).encode()).hexdigest()

    def description(self) -> str:
        return f"{self.name}: {', '.join(self._patterns)}"

    def files(self, split: str) -> list[File]:
        """The files of a split, or all files where documents are held out, in order.

        Raises:
          CorpusError: a pattern matches no file, or no file is left for training.
        """
        held_out = matching_files.matching(self.held_out_names)
        if split == "validation" and self.held_out is None:
            return held_out
        withheld = set(map(identity, held_out))
        matches = matching_files.matching(self._patterns)
        paths = [path for path in matches if identity(path) not in withheld]
        if not paths:
            raise CorpusError(
                f"corpus {self.name!r}: every file of {', '.join(self._patterns)} is also one of "
                f"validation_files ({', '.join(self.held_out_names)}): none is left for "
                "training"
            )
        return paths


def _patterns(files: str | Path | Sequence[str | Path]) -> tuple[str, ...]:
    several = [files] if isinstance(files, str | Path) else files
    return tuple(map(matching_files.pattern, several))


def _name_from(patterns: Sequence[str]) -> str:
    """A name from that of the first file or its directory, without wildcards and extensions."""
    for part in reversed(Path(patterns[0]).parts if patterns else ()):
        stem = part.split(".")[0]
        if name := re.sub(r"[^0-9A-Za-z]+", "_", re.sub(r"\[.*?\]|[*?]", "_", stem)).strip("_"):
            return name
    return "text"
