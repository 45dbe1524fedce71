"""Text files as streams of bytes, decompressed by their last extension."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from t5x_like.core.buckets.storage import RemoteFile
from t5x_like.data.corpora.corpus import CorpusError, ReadReport

if TYPE_CHECKING:
    import zstandard

COMPRESSED = (".gz", ".zst")

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
_CHUNK = 1 << 17
_FRAME_PART = 1 << 11
"""The number of bytes to decompress at once.

At zstandard's best compression they become 64 MiB, and 128 KiB would become gigabytes.
"""


class _Counted(io.RawIOBase):
    """A file that adds the number of bytes read, before decompression, to a report."""

    def __init__(self, file: Any, report: ReadReport) -> None:
        self._file = file
        self._report = report

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        count = self._file.readinto(buffer) or 0
        self._report.bytes_read += count
        return count


class _Zstandard(io.RawIOBase):
    """A reader of concatenated frames that raises at a truncated one. zstandard's does not."""

    def __init__(self, source: io.RawIOBase, decompressor: zstandard.ZstdDecompressor) -> None:
        self._source = source
        self._decompressor = decompressor
        self._frame = self._decompressor.decompressobj()
        self._begun = False
        self._compressed = memoryview(b"")
        self._ready = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        while not self._ready and self._advance():
            pass
        target = memoryview(buffer)
        count = min(len(target), len(self._ready))
        target[:count] = self._ready[:count]
        self._ready = self._ready[count:]
        return count

    def _advance(self) -> bool:
        """Decompresses another chunk. Returns False at the end of the file."""
        if self._frame.eof and self._frame.unused_data:
            self._compressed = memoryview(self._frame.unused_data + bytes(self._compressed))
        elif not self._compressed:
            self._compressed = memoryview(self._source.read(_CHUNK) or b"")
        chunk, self._compressed = self._compressed[:_FRAME_PART], self._compressed[_FRAME_PART:]
        if not chunk:
            if self._begun and not self._frame.eof:
                raise EOFError("the file ends inside a compressed frame")
            return False
        if self._frame.eof:
            self._frame = self._decompressor.decompressobj()
        self._begun = True
        self._ready = memoryview(self._frame.decompress(chunk))
        return True


@contextmanager
def open_stream(path: Path | RemoteFile, report: ReadReport) -> Iterator[io.BufferedReader]:
    """The file's bytes, decompressed and without a UTF-8 byte order mark.

    Raises:
      CorpusError: the file is UTF-16, or reading shows that it is damaged or truncated.
    """
    import zstandard

    with path.open("rb", buffering=0) if isinstance(path, Path) else path.open() as raw:
        source: Any = _Counted(raw, report)
        if path.suffix == ".gz":
            source = gzip.GzipFile(fileobj=io.BufferedReader(source, _CHUNK))
        elif path.suffix == ".zst":
            source = _Zstandard(source, zstandard.ZstdDecompressor(max_window_size=1 << 31))
        stream: io.BufferedReader = io.BufferedReader(source, _CHUNK)
        try:
            begins = stream.peek(3)
            if begins.startswith(_UTF_16):
                raise CorpusError(
                    f"{path} is UTF-16, not UTF-8: convert it (iconv -f UTF-16 -t UTF-8)"
                )
            if begins.startswith(_BYTE_ORDER_MARK):
                stream.read(len(_BYTE_ORDER_MARK))
            yield stream
        except (EOFError, gzip.BadGzipFile, zlib.error, zstandard.ZstdError) as error:
            raise CorpusError(f"{path} is damaged or truncated ({error}): copy it again") from error
