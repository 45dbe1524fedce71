"""A long document is one document in every way of reading."""

import io
import random

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from t5x_like.core.protocols.data import Column
from t5x_like.data.cache import tokenization, writer
from t5x_like.data.cache.reader import Cache
from t5x_like.data.corpora import text_pieces
from t5x_like.data.corpora.corpus import Chooser, ReadReport, decodable
from t5x_like.data.corpora.formats import text_formats
from t5x_like.data.corpora.text_files import TextFiles
from t5x_like.data.corpora.text_pieces import Piece
from t5x_like.data.samples.segments import Segments
from t5x_like.data.samples.token_stream import TokenStream
from t5x_like.vocabularies.byte import ByteVocabulary

MIB = 1 << 20


def written(path, text, separator="file"):
    path.write_bytes(text.encode())
    layout = text_formats.Layout({Column("targets"): "text"}, separator)
    return list(text_formats.documents(path, layout, report=ReadReport()))


def prose(characters, seed=0):
    """Lines of words, no two alike."""
    rng = random.Random(seed)
    words = ["".join(rng.choices("abcdé", k=rng.randint(1, 9))) for _ in range(300)]
    body = " ".join(words)
    lines = (f"{seed} {n} {body}." for n in range(characters // len(body) + 1))
    return "\n".join(lines)


@hypothesis.settings(deadline=None)
@hypothesis.given(
    text=st.text("ab c\n\r", max_size=120).map(str.rstrip),
    line=st.integers(4, 12),
    piece=st.integers(12, 40),
)
@hypothesis.example(text=" aaaaa aaaa\ra", line=5, piece=12)
@hypothesis.example(text="aa aaaaa a\r\r\na", line=7, piece=12)
def test_segments_of_pieces_are_those_of_the_text(text, line, piece):
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(text_pieces, "MAX_LINE", line)
        patched.setattr(text_pieces, "MAX_PIECE", piece)
        found = [one["targets"] for one in text_pieces.cut_if_long({"targets": text})]
        segments = [s for one in found for s in tokenization.split_segments(one)]
        whole = tokenization.split_segments(text)
    assert "".join(found) == text
    assert segments == whole
    assert all(len(one.rstrip()) <= max(piece, line) for one in found)


def test_a_long_file_is_one_document_in_pieces(tmp_path):
    text = prose(5 * MIB)
    pieces = written(tmp_path / "a.txt", text + "\n\n")
    assert "".join(piece["targets"] for piece in pieces) == text
    assert [piece.first for piece in pieces] == [True] + [False] * (len(pieces) - 1)
    # The size of a piece in memory is bounded.
    assert max(len(piece["targets"]) for piece in pieces) <= MIB
    (short,) = written(tmp_path / "b.txt", "some text", "line")
    assert short == {"targets": "some text"}
    assert not isinstance(short, Piece)


def test_no_more_is_read_than_a_piece_and_a_line(tmp_path):
    class Counted(io.StringIO):
        read_so_far = 0

        def readline(self, size=-1):
            line = super().readline(size)
            self.read_so_far += len(line)
            return line

    stream = Counted(prose(3 * MIB))
    given = 0
    parts = ((i == 0, part) for i, part in enumerate(text_pieces.parts(stream)))
    for piece in text_pieces.pieces(parts):
        given += len(piece["targets"])
        assert stream.read_so_far - given <= text_pieces.MAX_LINE


@pytest.mark.parametrize("separator", ["line", "blank_line", "file"])
def test_a_line_without_spaces_is_one_document_with_all_separators(tmp_path, separator):
    texts = ["é" * 3_000_000, "short"]
    pieces = written(tmp_path / "a.txt", "\n\n".join(texts), separator)
    documents = []
    for piece in pieces:
        if text_pieces.continues(piece):
            documents[-1] += piece["targets"]
        else:
            documents.append(piece["targets"])
    assert documents == (["\n\n".join(texts)] if separator == "file" else texts)


def cached(tmp_path, corpus, **options):
    writer.write_cache(
        tmp_path / "cache", corpus, ByteVocabulary(), progress=False, workers=1, **options
    )
    return Cache.open(tmp_path / "cache")


@pytest.mark.slow
def test_a_long_document_is_whole_in_one_split_as_is_its_copy(tmp_path, capsys):
    """The copies also agree across shards, and where one copy is a row of JSON."""
    texts = [prose(MIB + MIB // 2, seed) for seed in range(4)]
    small = [f"document {i}" for i in range(200)]
    (tmp_path / "a.txt").write_text("\n\n".join([*small, *texts]))
    rows = (f'{{"text": "{text}"}}\n'.replace("\n", "\\n")[:-2] + "\n" for text in texts)
    (tmp_path / "b.jsonl").write_text("".join(rows))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(writer, "BLOCK_BYTES", MIB)
        files = [tmp_path / "a.txt", tmp_path / "b.jsonl"]
        cache = cached(tmp_path, TextFiles(files, validation=0.3))
    vocabulary = cache.vocabulary
    found = {}
    for name in ("train", "validation"):
        stream = TokenStream(cache.split(name))
        documents = [
            vocabulary.decode(stream.read(begin, end).tolist())
            for bounds in stream.documents()
            for begin, end in bounds.tolist()
        ]
        assert cache.manifest.splits[name].documents == len(documents)
        assert len(Segments(stream)) == len(documents)
        found[name] = documents
    assert not set(found["train"]) & set(found["validation"])
    assert sorted(found["train"] + found["validation"]) == sorted([*small, *texts, *texts])


def test_the_share_held_out_is_that_of_documents(tmp_path):
    """About five of a hundred documents, some of them long, are held out: pieces do not count."""
    texts = [prose(MIB + 99_000 if i % 20 == 0 else 500, i) for i in range(100)]
    (tmp_path / "a.txt").write_text("\n\n".join(texts))
    corpus = TextFiles(tmp_path / "a.txt", validation=0.05)
    train, validation = (
        [d for d in corpus.documents(split) if not text_pieces.continues(d)]
        for split in corpus.splits
    )
    assert len(train) + len(validation) == 100
    assert 1 <= len(validation) <= 12  # binomial, mean 5


def test_an_odd_share_held_out_is_said(tmp_path, capsys):
    (tmp_path / "a.txt").write_text("\n\n".join(["short", prose(9999), *map(str, range(40))]))
    cached(tmp_path, TextFiles(tmp_path / "a.txt", validation=0.05))
    assert "holds 9" in capsys.readouterr().err
    (tmp_path / "a.txt").write_text("\n\n".join(map(str, range(1000, 3000))))
    cached(tmp_path, TextFiles(tmp_path / "a.txt", validation=0.05), overwrite=True)
    assert "holds" not in capsys.readouterr().err


def test_tokens_are_those_of_the_document_read_at_once(tmp_path, monkeypatch):
    text = prose(3 * MIB)
    (tmp_path / "a.txt").write_text(text)
    split = cached(tmp_path, TextFiles(tmp_path / "a.txt", validation=0, separator="file")).split(
        "train"
    )
    monkeypatch.setattr(text_pieces, "MAX_PIECE", len(text))
    whole = list(tokenization.plain_records([{"targets": text}], ByteVocabulary()))
    tokens = np.concatenate([record.features["targets"] for record in whole])
    assert np.array_equal(TokenStream(split).read(0, len(tokens)), tokens)
    assert split.new_document.sum() == 1
    at = np.cumsum([0, *(len(record.features["targets"]) for record in whole)])
    starts = np.concatenate([r.segments + b for r, b in zip(whole, at, strict=False)])
    assert np.array_equal(Segments(TokenStream(split))[0][:-1], starts)


@pytest.mark.parametrize("at", [0, 3 * MIB // 2, 3 * MIB - 2])
def test_an_undecodable_line_of_a_long_document_is_left_out_alone(at, tmp_path):
    text = prose(3 * MIB).encode()
    (tmp_path / "a.txt").write_bytes(text[:at] + b"\xff" + text[at:])
    corpus = TextFiles(tmp_path / "a.txt", validation=0, separator="file")
    report = ReadReport()
    pieces = list(corpus.documents("train", report=report))
    assert [text_pieces.continues(piece) for piece in pieces] == [False, *[True] * 3]
    (whole,) = text_pieces.join(pieces)
    begin, end = text.rfind(b"\n", 0, at) + 1, text.find(b"\n", at) + 1 or len(text)
    assert whole["targets"].strip() == (text[:begin] + text[end:]).decode().strip()
    lost = f"{end - begin + 1:,} of {len(text) + 1:,} bytes"
    assert str(report) == f"skipped 1 lines: invalid UTF-8 ({lost})"


def test_a_document_begins_with_the_first_piece_of_which_something_is_left(monkeypatch):
    monkeypatch.setattr(text_pieces, "MAX_PIECE", 8)
    report = ReadReport()
    found = [
        document
        for _, document in decodable(
            [{"targets": "before"}, {"targets": "\udcff" * 8 + "\nmiddle\nend"}],
            Chooser("train", None),
            texts=["targets"],
            report=report,
        )
    ]
    assert [one["targets"] for one in found] == ["before", "middle\n", "end"]
    assert [text_pieces.continues(one) for one in found] == [False, False, True]
    assert (report.documents, report.skipped, report.skipped_lines) == (2, 0, 1)


def test_a_long_document_whose_beginning_has_no_tokens_is_none_of_the_one_before():
    class Deaf(ByteVocabulary):
        def encode(self, text):
            return [] if text.startswith("-") else super().encode(text)

    pieces = [Piece("-" * 9, first=True), Piece("after", first=False)]
    documents = [{"targets": "before"}, *pieces]
    records = list(tokenization.plain_records(documents, Deaf()))
    assert [record.new_document for record in records] == [True, True, False]
