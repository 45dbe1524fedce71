import gzip
import json
import tempfile
from pathlib import Path

import hypothesis
import hypothesis.strategies as st
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from t5x_like.core.protocols.data import Column
from t5x_like.data.corpora.corpus import CorpusError, ReadReport
from t5x_like.data.corpora.formats import text_formats

TEXT = {Column("targets"): "text"}
PAIRS = {Column("inputs"): "inputs", Column("targets"): "targets"}


def _documents(path: Path, fields=TEXT, separator="blank_line"):
    layout = text_formats.Layout(fields, separator)
    return list(text_formats.documents(path, layout, report=ReadReport()))


def _texts(path: Path, **options):
    return [document["targets"] for document in _documents(path, **options)]


def _written(path: Path, content: bytes | str) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize(
    ("separator", "texts"),
    [
        ("line", ["one", "  two", "three", "four"]),
        ("blank_line", ["one\n  two", "three\nfour"]),
        ("file", ["one\n  two\n\n \n\nthree\nfour"]),
    ],
)
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_plain_text_by_separator(separator, texts, newline, tmp_path):
    content = "\n\none\n  two  \n\n \n\nthree\nfour\n\n".replace("\n", newline)
    found = _texts(_written(tmp_path / "a.txt", content), separator=separator)
    assert [text.replace("two  ", "two") for text in found] == texts


@hypothesis.given(
    documents=st.lists(
        st.lists(st.text("aé b\u2028\x85", min_size=1, max_size=5).filter(str.strip), min_size=1),
        max_size=5,
    ),
    separator=st.sampled_from(["line", "blank_line"]),
)
def test_plain_text_loses_no_line(documents, separator):
    with tempfile.TemporaryDirectory() as directory:
        path = _written(Path(directory) / "a", "\n\n".join(map("\n".join, documents)))
        found = _texts(path, separator=separator)
    lines = [line for text in found for line in text.split("\n")]
    expected = [line for document in documents for line in document]
    assert [line.rstrip() for line in lines] == [line.rstrip() for line in expected]
    assert len(found) == (len(documents) if separator == "blank_line" else len(expected))


def test_an_invalid_byte_spoils_its_own_document_alone(tmp_path):
    path = _written(tmp_path / "a.txt", b"good\n\nb\xffd\n\nalso good")
    assert _texts(path) == ["good", "b\udcffd", "also good"]
    path = _written(tmp_path / "a.jsonl", b'{"text": "b\xffd", "x": 1}\n{"text": "good"}\n')
    assert _texts(path) == ["b\udcffd", "good"]
    path = _written(tmp_path / "a.csv", b'text\n"b\xffd, b"\ngood\n')
    assert _texts(path) == ["b\udcffd, b", "good"]


def test_json_lines(tmp_path):
    rows = [
        {"text": "a\nb", "inputs": "i", "targets": "t"},
        {"text": None, "inputs": "", "targets": "ü"},
    ]
    path = _written(tmp_path / "a.jsonl", "\n\n".join(map(json.dumps, rows)))
    assert _texts(path) == ["a\nb", ""]
    assert _texts(path, fields={Column("targets"): "inputs"}) == ["i", ""]
    assert _documents(path, fields=PAIRS) == [
        {"inputs": "i", "targets": "t"},
        {"inputs": "", "targets": "ü"},
    ]
    assert text_formats.columns(path) == ("text", "inputs", "targets")


def test_tsv_takes_quotes_as_text_and_csv_does_not(tmp_path):
    path = _written(tmp_path / "a.tsv", 'n\ttargets\tinputs\r\n1\t"t, u\ti\r\n\r\n2\t \t"j"\r\n')
    assert _documents(path, fields=PAIRS) == [
        {"inputs": "i", "targets": '"t, u'},
        {"inputs": '"j"', "targets": " "},
    ]
    assert text_formats.columns(path) == ("n", "targets", "inputs")
    path = _written(tmp_path / "a.csv", 'n,targets,inputs\n1,"t, u\n\nv",i\n')
    assert _documents(path, fields=PAIRS) == [{"inputs": "i", "targets": "t, u\n\nv"}]
    assert text_formats.columns(path) == ("n", "targets", "inputs")


def test_parquet(tmp_path):
    path = tmp_path / "a.parquet"
    texts = [f"text {i}" for i in range(200)]
    invalid = pa.array([b"a\xff", *(b"b" for _ in texts[1:])]).view(pa.string())
    table = pa.table(
        {"text": texts, "invalid": invalid, "n": list(range(200)), "null": [None] * 200}
    )
    pq.write_table(table.set_column(3, "null", pa.array([None] * 200, pa.string())), path)
    assert _texts(path) == texts
    assert _texts(path, fields={Column("targets"): "invalid"})[:2] == ["a\udcff", "b"]
    assert set(_texts(path, fields={Column("targets"): "null"})) == {""}
    assert text_formats.columns(path) == ("text", "invalid", "n", "null")
    pq.write_table(pa.table({"text": [["a"], ["b"]]}), tmp_path / "list.parquet")
    with pytest.raises(CorpusError, match=r"list\.parquet: column 'text' holds list<.*>, not text"):
        _texts(tmp_path / "list.parquet")
    pq.write_table(pa.table({"text": pa.array(texts).dictionary_encode()}), tmp_path / "d.parquet")
    assert _texts(tmp_path / "d.parquet") == texts
    with pytest.raises(CorpusError, match="column 'n' holds int64, not text"):
        _texts(path, fields={Column("targets"): "n"})
    with pytest.raises(CorpusError, match=r"a\.parquet has no field 'txt'; nearest: text"):
        _texts(path, fields={Column("targets"): "txt"})
    with pytest.raises(CorpusError, match="not a whole Parquet file"):
        _texts(_written(tmp_path / "b.parquet", path.read_bytes()[:-9]))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "a.jsonl",
            '{"text": "a"}\n{"txet": "b"}',
            r"a\.jsonl:2 has no field 'text'; nearest: txet",
        ),
        ("a.jsonl", '{"text": 3}', r"a\.jsonl:1: field 'text' is a int, not a string"),
        ("a.jsonl", '\n{"text": ', r"a\.jsonl:2 is not one JSON object"),
        ("a.jsonl", f'{{"text": "a", "b": {"[" * 10**5}}}', r"a\.jsonl:1 is not one JSON object"),
        ("a.json", '["text"]', r"a\.json:1 holds a list: write one JSON object"),
        ("a.tsv", "text\tb\n1\t2\n3\n", r"a\.tsv:3 has 1 columns, its header 2 \(text, b\)"),
        ("a.tsv", "texts\n1\n", r"a\.tsv:2 has no field 'text'; nearest: texts"),
        ("a.csv", 'text\n"a" "b\n', r"a\.csv:2 is not CSV"),
        ("a.csv", 'text\n"never closed\n\n', r"a\.csv:3 is not CSV"),
        ("a.zip", "PK", r"a\.zip: \.zip files cannot be read"),
        ("a.jsonl.gz", "not gzip", r"a\.jsonl\.gz is damaged"),
    ],
)
def test_what_cannot_be_read_is_named_with_its_place(name, content, message, tmp_path):
    with pytest.raises(CorpusError, match=message):
        _texts(_written(tmp_path / name, content))


def test_a_row_without_end_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(text_formats, "MAX_LINE", 20)
    path = _written(tmp_path / "a.jsonl", '{"text": "a"}\n{"text": "aaaaaaaaaaaaaaaaaaaaaa"}')
    with pytest.raises(CorpusError, match=r"a\.jsonl:2 is a line of more than"):
        _texts(path)
    # Each line ends inside quotes, and each field is short.
    path = _written(tmp_path / "a.csv", 'text\n"a\n' + '","b\n' * 9)
    with pytest.raises(CorpusError, match=r"a\.csv:\d+ ends a row of more than"):
        _texts(path)


def test_plain_text_has_no_fields(tmp_path):
    path = _written(tmp_path / "a.txt", "text")
    assert text_formats.columns(path) == ()
    with pytest.raises(CorpusError, match="plain text, which has no inputs and targets"):
        _documents(path, fields=PAIRS)


TAGGED = {Column("words", "words"): "words", Column("tags", "tags"): "tags"}


@pytest.mark.parametrize("name", ["a.conll", "a.conll.gz"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_tagged_words_by_sentence(name, newline, tmp_path):
    """Comments and marks of documents are no words; the word # is one, also as the first."""
    content = (
        "-DOCSTART- -X- O\n\n\n# id = 1\n# a b c\nEU NNP B-ORG\n# NN O\n. . O\n\n"
        "# text\nNew York\tB-LOC\n\n#\tO\n1\t0\n\n# the end\n"
    ).replace("\n", newline)
    data = content.encode()
    path = _written(tmp_path / name, gzip.compress(data) if name.endswith("gz") else data)
    assert text_formats.columns(path) == ("words", "tags")
    assert _documents(path, fields=TAGGED) == [
        {"words": "EU\n#\n.", "tags": "B-ORG\nO\nO"},
        {"words": "New York", "tags": "B-LOC"},
        {"words": "#\n1", "tags": "O\n0"},
    ]
    with pytest.raises(CorpusError, match="field 'words' is a list, not a string"):
        _documents(path, fields={Column("targets"): "words"})


def test_lists_are_words_and_tags(tmp_path):
    rows = [{"tokens": ["New York", "!"], "ner": [3, "O"]}, {"tokens": [], "ner": []}]
    fields = {Column("words", "words"): "tokens", Column("tags", "tags"): "ner"}
    found = [{"words": "New York\n!", "tags": "3\nO"}, {"words": "", "tags": ""}]
    lines = [json.dumps(row) for row in rows]
    path = _written(tmp_path / "a.jsonl", "\n".join(lines))
    assert _documents(path, fields=fields) == found
    cells = "\n".join(f"{json.dumps(row['tokens'])}\t{json.dumps(row['ner'])}" for row in rows)
    assert _documents(_written(tmp_path / "a.tsv", f"tokens\tner\n{cells}"), fields=fields) == found
    pq.write_table(pa.table({"tokens": [["a", "b"]], "ner": [[0, 1]]}), tmp_path / "a.parquet")
    assert _documents(tmp_path / "a.parquet", fields=fields) == [{"words": "a\nb", "tags": "0\n1"}]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.conll", "EU B-ORG\n\nin\nParis B-LOC\n", r"a\.conll:3 has one column: write a word"),
        ("a.conll", "EU\t\n", r"a\.conll:1: field 'tags', number 1, has no label"),
        ("a.jsonl", '{"words": ["a", "b"], "tags": ["O"]}', r":1 has 2 words and 1 tags"),
        ("a.jsonl", '{"words": [], "tags": ["O"]}', r":1 has 0 words and 1 tags"),
        ("a.jsonl", '{"words": "a b", "tags": ["O"]}', "does not hold a list of words"),
        (
            "a.jsonl",
            '{"words": ["a", 3], "tags": ["O"]}',
            "'words', number 2, is a int, not a word",
        ),
        ("a.jsonl", '{"words": ["a\\nb"], "tags": ["O"]}', "number 1, has a line end in it"),
        ("a.jsonl", '{"words": ["a"], "tags": [0.5]}', "a float: a label is a text or a whole"),
    ],
)
def test_words_that_cannot_be_read_are_named_with_their_place(name, content, message, tmp_path):
    with pytest.raises(CorpusError, match=message):
        _documents(_written(tmp_path / name, content), fields=TAGGED)


def test_a_file_without_ends_of_sentences_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(text_formats, "_LONGEST_SENTENCE", 3)
    path = _written(tmp_path / "a.conll", "a O\n" * 4)
    with pytest.raises(CorpusError, match=r"a\.conll:4 is in a sentence of more than 3 lines"):
        _documents(path, fields=TAGGED)


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "a.tsv", "a.csv"])
def test_empty_files_have_no_documents_and_no_columns(name, tmp_path):
    path = _written(tmp_path / name, "")
    assert _texts(path) == []
    assert text_formats.columns(path) == ()
