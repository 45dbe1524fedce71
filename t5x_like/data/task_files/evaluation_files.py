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
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from t5x_like.core import whole_files
from t5x_like.data.cache.format import CacheError
from t5x_like.data.samples.order import spread

_FORMAT = 1
_TEXT = "bytes"
MOST_LINE = 1 << 26
"""The bytes of a line. A small file may hold a long one: DEFLATE packs zeros a thousandfold."""
MOST_TIMES = 200
"""How many times as large as its file the content may be, beyond `MOST_LINE`.

Rows of text become a tenth, those that repeat each other a fiftieth.
"""
_DAMAGE = (
    *(OSError, EOFError, KeyError, ValueError, StopIteration, zlib.error),
    *(AttributeError, IndexError, OverflowError, RecursionError, TypeError),
)
"""The errors that are raised on reading a damaged file, or one of other JSON."""

_NUMBERS = frozenset(["bfloat16", *(np.dtype(code).name for code in "?bhilqBHILQefd")])
"""The dtypes of features that are numbers."""

Example = Mapping[str, Any]


class NoExamplesError(CacheError):
    """There is no file of evaluation examples, and SeqIO does not have the task to make one."""


@dataclasses.dataclass(frozen=True)
class EvaluationExamples:
    """Examples of a split.

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
        header = json.loads(next(_lines(file)))
        return header["fingerprint"] if header["format"] == _FORMAT else None
    except _DAMAGE:
        return None


def read(file: Path, *, at_most: int | None = None) -> EvaluationExamples:
    """At most so many examples of a file, spread evenly over it; None for all.

    Raises:
      CacheError: the file is damaged or of another format.
    """
    try:
        lines = _lines(file)
        header = json.loads(next(lines))
        if header["format"] != _FORMAT:
            raise ValueError(f"format {header['format']}, not {_FORMAT}")
        dtypes = {name: _dtype(dtype) for name, dtype in header["dtypes"].items()}
        total = int(header["examples"])
        examples = [
            {name: _from_json(value, dtypes[name]) for name, value in json.loads(line).items()}
            for line in _chosen(lines, spread(total, at_most))
        ]
    except _DAMAGE as error:
        raise CacheError(
            f"{file} cannot be read ({error!r}): delete it, and it is made again"
        ) from error
    return EvaluationExamples(examples, total)


def _chosen(lines: Iterator[bytes], numbers: Iterable[int]) -> Iterator[bytes]:
    """The lines of these numbers, which rise; raises ValueError where there are fewer lines."""
    following = 0
    for number in numbers:
        line = next(itertools.islice(lines, number - following, None), None)
        if line is None:
            raise ValueError(f"example {number} is missing")
        following = number + 1
        yield line


def _lines(file: Path) -> Iterator[bytes]:
    """The lines of a compressed file.

    Raises:
      ValueError: a line is longer, or all are, than `MOST_LINE` and `MOST_TIMES` allow.
    """
    left = MOST_LINE + MOST_TIMES * file.stat().st_size
    with gzip.open(file, "rb") as packed:
        while line := packed.readline(min(MOST_LINE, left) + 1):
            left -= len(line)
            if len(line) > MOST_LINE or left < 0:
                raise ValueError(f"a line, or the whole, is larger than {file.name} may be")
            yield line


def _dtype(name: Any) -> str:
    """The name of a dtype; raises ValueError unless it is of numbers, or `_TEXT`."""
    if name != _TEXT and name not in _NUMBERS:
        raise ValueError(f"{name!r} is not a dtype of numbers")
    return str(name)


def _to_json(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode(errors="surrogateescape")
    array = np.asarray(value)
    if array.ndim > 1:  # lists alone do not say how long an empty one's items are
        return {"shape": array.shape, "values": _to_json(array.ravel())}
    if array.dtype == object:
        return [_to_json(item) for item in array]
    return array.tolist()


def _from_json(value: Any, dtype: str) -> Any:
    if isinstance(value, dict):
        return _from_json(value["values"], dtype).reshape(value["shape"])
    if dtype != _TEXT:
        return np.array(value, dtype) if isinstance(value, list) else np.dtype(dtype).type(value)
    if isinstance(value, list):
        return np.array([item.encode(errors="surrogateescape") for item in value], object)
    return value.encode(errors="surrogateescape")
