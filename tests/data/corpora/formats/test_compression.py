import gzip

import pytest
import zstandard

from t5x_like.data.corpora.corpus import CorpusError, ReadReport
from t5x_like.data.corpora.formats import compression

CONTENT = b"".join(b"line %d\n" % i for i in range(60_000))


def _read(path):
    report = ReadReport()
    with compression.open_stream(path, report) as stream:
        return stream.read(), report.bytes_read


@pytest.mark.parametrize(
    ("name", "pack"),
    [
        ("a.txt", bytes),
        ("a.txt.gz", gzip.compress),
        ("b.gz", lambda content: gzip.compress(content[:99]) + gzip.compress(content[99:])),
        ("a.txt.zst", zstandard.compress),
        (
            "b.zst",
            lambda content: zstandard.compress(content[:99]) + zstandard.compress(content[99:]),
        ),
    ],
)
def test_content_and_the_bytes_on_disk_that_it_took(name, pack, tmp_path):
    path = tmp_path / name
    path.write_bytes(pack(CONTENT))
    assert _read(path) == (CONTENT, path.stat().st_size)


@pytest.mark.parametrize("name", ["a.txt", "a.gz", "a.zst"])
def test_empty_files_are_empty(name, tmp_path):
    (tmp_path / name).touch()
    assert _read(tmp_path / name) == (b"", 0)


def test_a_byte_order_mark_is_no_text(tmp_path):
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"\xef\xbb\xbfabc"))
    assert _read(tmp_path / "a.txt.gz")[0] == b"abc"


@pytest.mark.parametrize(("suffix", "pack"), [("gz", gzip.compress), ("zst", zstandard.compress)])
@pytest.mark.parametrize("damage", [lambda packed: packed[:-20], lambda packed: b"abcdef" * 9])
def test_damaged_files_are_named(suffix, pack, damage, tmp_path):
    path = tmp_path / f"a.txt.{suffix}"
    path.write_bytes(damage(pack(CONTENT)))
    with pytest.raises(CorpusError, match=f"a.txt.{suffix} is damaged or truncated"):
        _read(path)


def test_little_that_becomes_much_is_decompressed_a_part_at_a_time(tmp_path):
    packer = zstandard.ZstdCompressor(level=19).compressobj()
    zeros = b"".join(packer.compress(bytes(1 << 20)) for _ in range(200)) + packer.flush()
    (tmp_path / "a.zst").write_bytes(zeros)
    with compression.open_stream(tmp_path / "a.zst", ReadReport()) as stream:
        assert len(stream.read(1)) == 1
        assert len(stream.raw._ready) < 100 << 20


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf16_is_refused(tmp_path, encoding):
    (tmp_path / "a.txt").write_bytes("\ufeffwords".encode(encoding))
    with pytest.raises(CorpusError, match=r"a\.txt is UTF-16, not UTF-8: convert it"):
        _read(tmp_path / "a.txt")
