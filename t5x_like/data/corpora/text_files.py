"""A corpus of the user's files: plain text, JSON lines, TSV, CSV or Parquet."""

from __future__ import annotations

import functools
import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from t5x_like.core.protocols.data import PAIRS, PLAIN_TEXT
from t5x_like.data.corpora import matching_files, registry, text_formats
from t5x_like.data.corpora.matching_files import File, identity
from t5x_like.data.corpora.registry import CorpusError, ReadReport

_DOCUMENTS = 3
"""A number in fingerprints. Raise it when the same files would give other documents or splits: then
no cache of the old ones is read."""


class TextFiles(registry.Corpus):
    """The documents of all files that match, in the order of the patterns and then of the paths.

    The extension decides the format; `.gz` and `.zst` are decompressed. Plain text is divided by
    `separator`, and its documents may have any length. In the other formats a row is a document.

    Args:
      files: a path or glob pattern, or several, on a disk or in a bucket (`gs://`, `s3://`);
        `**` crosses directories.
      name: the name of the corpus; None to derive it from the files.
      features: `("targets",)` for text, `("inputs", "targets")` for text-to-text; None for
        text-to-text if the first file has both fields and `field` is None, otherwise for text.
      field: the field of a row that holds the text; None for `text`.
      separator: the separator of documents in plain text: `line`, `blank_line` or `file`.
      validation: the fraction of documents to hold out, chosen by their content.
      validation_files: patterns of files to hold out instead; they are never trained on.

    Raises:
      ValueError: an argument is invalid. Files are not opened before they are needed.
    """

    def __init__(
        self,
        files: str | Path | Sequence[str | Path],
        *,
        name: str | None = None,
        features: Sequence[str] | None = None,
        field: str | None = None,
        separator: str = "blank_line",
        validation: float = 0.01,
        validation_files: str | Path | Sequence[str | Path] | None = None,
    ) -> None:
        allowed = (None, PLAIN_TEXT, PAIRS)
        features = None if features is None else tuple(features)
        if features not in allowed:
            raise ValueError(f"features are {features}, not one of {allowed[1]} and {allowed[2]}")
        if field is not None and features == PAIRS:
            raise ValueError(
                f"field={field!r} has no meaning for features {features}: leave it out"
            )
        if separator not in text_formats.SEPARATORS:
            raise ValueError(f"separator {separator!r} is not one of {text_formats.SEPARATORS}")
        if not 0 <= validation < 1:
            raise ValueError(f"validation is a fraction from 0 to below 1, not {validation}")
        self._patterns = _patterns(files)
        self._validation_patterns = _patterns(validation_files or [])
        self._features = features
        self._field = field
        self._separator = separator
        self.name = name or _name_from(self._patterns)
        self._validation = float(validation)

    def __repr__(self) -> str:
        return f"TextFiles({self._patterns}, name={self.name!r})"

    @property
    def held_out(self) -> float | None:
        return None if self._validation_patterns else self._validation

    @functools.cached_property
    def features(self) -> tuple[str, ...]:
        if self._features:
            return self._features
        text_to_text = self._field is None and set(PAIRS) <= set(
            text_formats.columns(self.files("train")[0])
        )
        return PAIRS if text_to_text else PLAIN_TEXT

    @property
    def options_read(self) -> set[str]:
        """The options among `field`, `separator` and `validation` that apply to these formats."""
        plain = {text_formats.is_plain(path) for path in self.files("train")}
        read = {"separator"} if True in plain else set()
        read |= {"field"} if False in plain else set()
        return read | ({"validation"} if self.held_out is not None else set())

    @property
    def unread(self) -> tuple[str, ...]:
        present = text_formats.columns(self.files("train")[0])
        return tuple(name for name in present if name not in self._fields.values())

    @property
    def layout(self) -> text_formats.Layout:
        """The place of documents in each file."""
        return text_formats.Layout(self._fields, self._separator)

    @property
    def _fields(self) -> dict[str, str]:
        if self.features == PAIRS:
            return {feature: feature for feature in self.features}
        return {"targets": self._field or "text"}

    def read(self, split: str, report: ReadReport) -> Iterator[dict[str, str]]:
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
        options = [self._fields, self._separator, self.held_out, _DOCUMENTS]
        return hashlib.sha256(json.dumps([options, content]).encode()).hexdigest()

    def description(self) -> str:
        return f"{self.name}: {', '.join(self._patterns)}"

    def files(self, split: str) -> list[File]:
        """The files of a split, or all files where documents are held out, in order.

        Raises:
          CorpusError: a pattern matches no file, or no file is left for training.
        """
        held_out = matching_files.matching(self._validation_patterns)
        if split == "validation" and self.held_out is None:
            return held_out
        withheld = set(map(identity, held_out))
        found = matching_files.matching(self._patterns)
        paths = [path for path in found if identity(path) not in withheld]
        if not paths:
            raise CorpusError(
                f"corpus {self.name!r}: every file of {', '.join(self._patterns)} is also one of "
                f"validation_files ({', '.join(self._validation_patterns)}): none is left for "
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
