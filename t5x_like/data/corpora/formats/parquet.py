"""The rows of Parquet files as documents."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from t5x_like.core.buckets.storage import RemoteFile
from t5x_like.data import extras
from t5x_like.data.corpora.corpus import CorpusError
from t5x_like.data.corpora.formats import field_paths
from t5x_like.data.corpora.formats.layout import Layout, check_fields, document


def documents(path: Path | RemoteFile, layout: Layout) -> Iterator[dict[str, Any]]:
    """The documents of a file in order; raises CorpusError where it is damaged or lacks a field."""
    file = open_file(path)
    arrow = extras.require("pyarrow", "data")
    schema = file.schema_arrow
    check_fields(schema.names, layout.fields.values(), place=str(path))
    fields = {
        column: field_paths.base(field, schema.names) for column, field in layout.fields.items()
    }
    for column, field in fields.items():
        if schema.names.count(field) > 1:
            raise CorpusError(f"{path} has several columns {field!r}")
        kind = schema.field(field).type
        whole = field == layout.fields[column] and column.holds in ("text", "passage")
        if whole and not _holds_text(arrow, kind):
            raise CorpusError(f"{path}: column {field!r} holds {kind}, not text")
    batches = file.iter_batches(batch_size=64, columns=(read := layout.read(schema.names)))
    number = 0
    while True:
        try:
            if (batch := next(batches, None)) is None:
                return
            cells_of = [_cells(arrow, batch.column(field)) for field in read]
        except (arrow.ArrowException, OSError) as error:
            raise CorpusError(f"{path} cannot be read: {error}") from error
        for row in zip(*cells_of, strict=True):
            number += 1
            values = dict(zip(read, row, strict=True))
            yield document(values, layout, place=f"{path}: row {number}")


def _cells(arrow: Any, column: Any) -> list[Any]:
    """The cells of a column; texts are read as bytes, as pyarrow stops at the first invalid one."""
    if not _holds_text(arrow, column.type):
        values: list[Any] = column.to_pylist()
        return values
    texts = column.cast(arrow.large_binary()).to_pylist()
    return [text and text.decode(errors="surrogateescape") for text in texts]


def _holds_text(arrow: Any, kind: Any) -> bool:
    """Whether a type of Arrow is text or bytes, or a dictionary of these."""
    inside = kind.value_type if arrow.types.is_dictionary(kind) else kind
    tests = ("string", "large_string", "binary", "large_binary", "fixed_size_binary")
    return any(getattr(arrow.types, f"is_{name}")(inside) for name in tests)


def open_file(path: Path | RemoteFile) -> Any:
    """pyarrow's ParquetFile; raises CorpusError where it is not a whole file."""
    arrow = extras.require("pyarrow", "data", purpose="reading Parquet")
    parquet = extras.require("pyarrow.parquet", "data", purpose="reading Parquet")
    try:
        return parquet.ParquetFile(path if isinstance(path, Path) else path.open())
    except (arrow.ArrowException, OSError) as error:
        raise CorpusError(f"{path} is not a whole Parquet file: {error}") from error
