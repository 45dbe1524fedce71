"""A corpus of the user's files: plain text, JSON lines, TSV, CSV or Parquet."""

from __future__ import annotations

import functools
import glob
import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from t5x_like.data.corpora import registry, text_formats
from t5x_like.data.corpora.registry import CorpusError, ReadReport

_DOCUMENTS = 2
"""A number in fingerprints. Raise it when the same files would give other documents or splits: then
no cache of the old ones is read."""
_CHUNK = 1 << 16
_CHUNKS = 16


class TextFiles(registry.Corpus):
    """The documents of all files that match, in the order of the patterns and then of the paths.

    The extension decides the format; `.gz` and `.zst` are decompressed. Plain text is divided by
    `separator`, and its documents may have any length. In the other formats a row is a document.

    Args:
      files: a path or glob pattern, or several; `**` crosses directories.
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
        allowed = (None, registry.TARGETS, registry.TEXT_TO_TEXT)
        features = None if features is None else tuple(features)
        if features not in allowed:
            raise ValueError(f"features are {features}, not one of {allowed[1]} and {allowed[2]}")
        if field is not None and features == registry.TEXT_TO_TEXT:
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
        text_to_text = self._field is None and set(registry.TEXT_TO_TEXT) <= set(
            text_formats.columns(self._files("train")[0])
        )
        return registry.TEXT_TO_TEXT if text_to_text else registry.TARGETS

    @property
    def options_read(self) -> set[str]:
        """The options among `field`, `separator` and `validation` that apply to these formats."""
        plain = {text_formats.is_plain(path) for path in self._files("train")}
        read = {"separator"} if True in plain else set()
        read |= {"field"} if False in plain else set()
        return read | ({"validation"} if self.held_out is not None else set())

    @property
    def _fields(self) -> dict[str, str]:
        if self.features == registry.TEXT_TO_TEXT:
            return {feature: feature for feature in self.features}
        return {"targets": self._field or "text"}

    def read(self, split: str, report: ReadReport) -> Iterator[dict[str, str]]:
        paths = self._files(split)
        layout = text_formats.Layout(self._fields, self._separator)
        report.bytes_total = sum(path.stat().st_size for path in paths)
        done = 0
        for path in paths:
            yield from text_formats.documents(path, layout, report=report)
            done += path.stat().st_size
            report.bytes_read = done

    def fingerprint(self) -> str:
        """A digest of the reading options and of each file's extensions, size and a sample of it.

        The sample is 16 pieces of 64 KiB, evenly spread, which cover a file of up to 1 MiB.
        """
        content = [
            [split, "".join(path.suffixes[-2:]), path.stat().st_size, _sample_digest(path)]
            for split in ("train", "validation")
            for path in (self._files(split) if split == "train" or self.held_out is None else ())
        ]
        options = [self._fields, self._separator, self.held_out, _DOCUMENTS]
        return hashlib.sha256(json.dumps([options, content]).encode()).hexdigest()

    def description(self) -> str:
        return f"{self.name}: {', '.join(self._patterns)}"

    def _files(self, split: str) -> list[Path]:
        held_out = _matching_files(self._validation_patterns)
        if split == "validation" and self.held_out is None:
            return held_out
        withheld = {path.resolve() for path in held_out}
        paths = [path for path in _matching_files(self._patterns) if path.resolve() not in withheld]
        if not paths:
            raise CorpusError(
                f"corpus {self.name!r}: every file of {', '.join(self._patterns)} is also one of "
                f"validation_files ({', '.join(self._validation_patterns)}): none is left for "
                "training"
            )
        return paths


def _patterns(files: str | Path | Sequence[str | Path]) -> tuple[str, ...]:
    several = [files] if isinstance(files, str | Path) else files
    return tuple(str(Path(pattern).expanduser()) for pattern in several)


def _matching_files(patterns: Sequence[str]) -> list[Path]:
    """The files that match, in the order of the patterns, each file once.

    Raises:
      CorpusError: a pattern matches no file.
    """
    found: dict[Path, Path] = {}
    for pattern in patterns:
        # A name with brackets may be the literal name of a file.
        matches = [pattern] if Path(pattern).is_file() else glob.glob(pattern, recursive=True)
        paths = sorted(path for path in map(Path, matches) if path.is_file())
        if not paths:
            raise CorpusError(f"no file matches {pattern!r} in {Path.cwd()}{_hint(pattern)}")
        for path in paths:
            found.setdefault(path.resolve(), path)
    return list(found.values())


def _hint(pattern: str) -> str:
    """Advice for a directory, a path in a missing one, or the name of a corpus; otherwise empty."""
    path = Path(pattern)
    if pattern in registry.names():
        return f": it is the name of a corpus; give it as the task, --task {pattern}"
    if path.is_dir():
        return f": it is a directory; write {pattern.rstrip('/')}/*"
    fixed = next(parent for parent in path.parents if not glob.has_magic(str(parent)))
    return "" if fixed.is_dir() else f": there is no directory {fixed}"


def _name_from(patterns: Sequence[str]) -> str:
    """A name from that of the first file or its directory, without wildcards and extensions."""
    for part in reversed(Path(patterns[0]).parts if patterns else ()):
        stem = part.split(".")[0]
        if name := re.sub(r"[^0-9A-Za-z]+", "_", re.sub(r"\[.*?\]|[*?]", "_", stem)).strip("_"):
            return name
    return "text"


def _sample_digest(path: Path) -> str:
    size = path.stat().st_size
    digest = hashlib.sha256()
    with path.open("rb") as file:
        for i in range(_CHUNKS):
            file.seek(max(size - _CHUNK, 0) * i // (_CHUNKS - 1))
            digest.update(file.read(_CHUNK))
    return digest.hexdigest()
