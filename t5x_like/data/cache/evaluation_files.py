"""Files of evaluation examples: the features of a SeqIO task after its last step, and its texts.

The first line is a header, every other an example, all in JSON. Values are those that SeqIO gives:
a text is bytes, a number has its dtype, so that a metric cannot tell the two apart.
"""

from __future__ import annotations

import dataclasses
import gzip
import itertools
import json
import shutil
import tempfile
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from t5x_like.core import whole_files
from t5x_like.data.cache.format import CacheError

_FORMAT = 1
_TEXT = "bytes"
_DAMAGE = (
    *(OSError, EOFError, KeyError, ValueError, StopIteration, zlib.error),
    *(AttributeError, IndexError, OverflowError, RecursionError, TypeError),
)
"""What reading a damaged file raises, or one of other JSON."""

Example = Mapping[str, Any]


class NoExamplesError(CacheError):
    """There is no file of evaluation examples, and SeqIO does not have the task to make one."""


@dataclasses.dataclass(frozen=True)
class EvaluationExamples:
    """The first examples of a split.

    Attributes:
      examples: {feature: array, NumPy scalar or bytes}, with int32 [n] `targets`.
      total: the number of examples of the whole split.
    """

    examples: list[dict[str, Any]]
    total: int


def write(
    file: Path, examples: Iterable[Example], *, dtypes: Mapping[str, str], fingerprint: str
) -> None:
    """Writes a file whole.

    Args:
      file: the file, whose folder is made.
      examples: the examples; features that `dtypes` lacks are left out.
      dtypes: the NumPy dtype of each feature; "bytes" for texts.
      fingerprint: a digest of the task, for `fingerprint_of`.

    Raises:
      OSError: it cannot be written.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    total = 0
    with tempfile.TemporaryFile() as body:
        for example in examples:
            line = {name: _to_json(example[name]) for name in dtypes}
            body.write(json.dumps(line).encode() + b"\n")
            total += 1
        body.seek(0)
        header = {
            "format": _FORMAT,
            "fingerprint": fingerprint,
            "examples": total,
            "dtypes": dict(dtypes),
        }
        with whole_files.writing(file) as out, gzip.open(out, "wb") as packed:
            packed.write(json.dumps(header).encode() + b"\n")
            shutil.copyfileobj(body, packed)


def fingerprint_of(file: Path) -> str | None:
    """The fingerprint of the task that wrote a file; None if there is no file that can be read."""
    if not file.is_file():
        return None
    try:
        with gzip.open(file, "rt", encoding="utf-8") as lines:
            header = json.loads(next(lines))
            return header["fingerprint"] if header["format"] == _FORMAT else None
    except _DAMAGE:
        return None


def read(file: Path, *, at_most: int | None = None) -> EvaluationExamples:
    """The first examples of a file; None for all.

    Raises:
      CacheError: the file is damaged or of another format.
    """
    try:
        with gzip.open(file, "rt", encoding="utf-8") as lines:
            header = json.loads(next(lines))
            if header["format"] != _FORMAT:
                raise ValueError(f"format {header['format']}, not {_FORMAT}")
            dtypes = header["dtypes"]
            found = [
                {name: _from_json(value, dtypes[name]) for name, value in json.loads(line).items()}
                for line in itertools.islice(lines, at_most)
            ]
    except _DAMAGE as error:
        raise CacheError(
            f"{file} cannot be read ({error!r}): delete it, and it is made again"
        ) from error
    return EvaluationExamples(found, header["examples"])


def _to_json(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode(errors="surrogateescape")
    array = np.asarray(value)
    if array.ndim > 1:  # lists alone do not say how long an empty one's items are
        return {"shape": array.shape, "values": _to_json(array.ravel())}
    if array.dtype == object:
        return [_to_json(one) for one in array]
    return array.tolist()


def _from_json(value: Any, dtype: str) -> Any:
    if isinstance(value, dict):
        return _from_json(value["values"], dtype).reshape(value["shape"])
    if dtype != _TEXT:
        return np.array(value, dtype) if isinstance(value, list) else np.dtype(dtype).type(value)
    if isinstance(value, list):
        return np.array([one.encode(errors="surrogateescape") for one in value], object)
    return value.encode(errors="surrogateescape")
