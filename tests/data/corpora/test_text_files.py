import functools
import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from t5x_like.core.protocols.data import PAIRS, PLAIN_TEXT, Column
from t5x_like.data.corpora.corpus import CorpusError, ReadReport
from t5x_like.data.corpora.text_files import TextFiles
from t5x_like.data.corpora.user_corpus import user_corpus
from t5x_like.data.dataset_names import DataNames


@pytest.fixture(autouse=True)
def _in_empty_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def _write(path, texts):
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))


def _texts(corpus, split="train"):
    return [document["targets"] for document in corpus.documents(split)]


def test_files_come_in_the_order_of_patterns_then_paths_each_once(tmp_path):
    for name in ("b/2.jsonl", "b/1.jsonl", "a.jsonl", "c/deep/3.jsonl"):
        _write(tmp_path / name, [name])
    patterns = ["b/*.jsonl", tmp_path / "c/**/*.jsonl", tmp_path / "b/1.jsonl"]
    corpus = TextFiles(patterns, validation=0)
    assert _texts(corpus) == ["b/1.jsonl", "b/2.jsonl", "c/deep/3.jsonl"]


def test_formats_and_compressions_mix(tmp_path):
    (tmp_path / "a.txt").write_text("one\n\ntwo")
    (tmp_path / "b.tsv.gz").write_bytes(gzip.compress(b"n\ttext\n1\tthree\n"))
    _write(tmp_path / "c.jsonl", ["four"])
    assert _texts(TextFiles("*.*", validation=0)) == ["one", "two", "three", "four"]


def test_options_reach_the_reading(tmp_path):
    (tmp_path / "a.txt").write_text("one\ntwo\n\nthree")
    assert _texts(TextFiles("a.txt", separator="line", validation=0)) == ["one", "two", "three"]
    (tmp_path / "a.jsonl").write_text('{"body": "b"}')
    assert _texts(TextFiles("a.jsonl", field="body", validation=0)) == ["b"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.tsv", "inputs\ttargets\ni1\tt1\ni2\tt2\n"),
        ("a.csv", "x,inputs,targets\n0,i1,t1\n0,i2,t2\n"),
        ("a.jsonl", '{"inputs": "i1", "targets": "t1"}\n{"targets": "t2", "inputs": "i2"}\n'),
    ],
)
def test_pairs_are_recognised_by_their_columns(name, content, tmp_path):
    (tmp_path / name).write_text(content)
    expected = [{"inputs": "i1", "targets": "t1"}, {"inputs": "i2", "targets": "t2"}]
    for columns in (None, PAIRS, [*PAIRS]):
        corpus = TextFiles(name, columns=columns, validation=0)
        assert corpus.columns == PAIRS
        assert list(corpus.documents("train")) == expected
    one = TextFiles(name, field="targets", validation=0)
    assert one.columns == PLAIN_TEXT
    assert _texts(one) == ["t1", "t2"]


def test_columns_of_any_kind_are_read_from_the_fields_that_hold_them(tmp_path):
    """A label is a name, a number, true or false; numbers have their shape in every format."""
    wanted = (Column("inputs"), Column("label", "label"), Column("at", "numbers", (None, 2)))
    rows = [("fine", 1, [[1, 2]]), ("bad", 0, [[3, 4], [5, 6.5]])]
    named = {"inputs": "sentence", "at": "places"}
    lines = [{"sentence": a, "label": bool(b), "places": c, "x": 0} for a, b, c in rows]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    cells = "".join(f"{a}\t{b}\t{c}\n" for a, b, c in rows)
    (tmp_path / "a.tsv").write_text(f"sentence\tlabel\tplaces\n{cells}")
    table = pa.table({name: [line[name] for line in lines] for name in ("sentence", "places")})
    classes = pa.array(["no", "yes"]).dictionary_encode()
    pq.write_table(table.append_column("label", classes), tmp_path / "a.parquet")
    names = {"jsonl": ("false", "true"), "tsv": ("0", "1"), "parquet": ("no", "yes")}
    of_rows = {"jsonl": ["true", "false"], "tsv": ["1", "0"], "parquet": ["no", "yes"]}
    for kind, known in names.items():
        corpus = TextFiles(f"a.{kind}", field=named, validation=0)
        assert corpus.with_columns((*wanted, Column("absent"))) is None
        found = corpus.with_columns(wanted)
        assert found.columns == wanted
        assert found.label_names == {"label": known}
        documents = list(found.documents("train"))
        assert [one["inputs"] for one in documents] == ["fine", "bad"]
        assert [one["label"] for one in documents] == of_rows[kind]
        assert [one["at"].tolist() for one in documents] == [c for _, _, c in rows]
        assert found.unread == (("x",) if kind == "jsonl" else ())
        assert found.fingerprint() != corpus.with_columns(wanted[:2]).fingerprint()


@pytest.mark.parametrize(
    ("row", "error"),
    [
        ({"inputs": "a", "label": None, "at": [0, 0]}, "no label: leave its row out"),
        ({"inputs": "a", "label": 0.5, "at": [0, 0]}, "0.5, a float: a label is a text or a whole"),
        ({"inputs": "a", "label": "x", "at": [0]}, r"the shape \[1\], not \[2\]"),
        ({"inputs": "a", "label": "x", "at": ["b", 0]}, "does not hold numbers of the shape"),
        ({"inputs": "a", "label": "x", "at": [None, 0]}, "not finite, or is null"),
        ({"inputs": 5, "label": "x", "at": [0, 0]}, "'inputs' is a int, not a string"),
    ],
)
def test_a_cell_of_another_kind_is_named_with_its_place(row, error, tmp_path):
    (tmp_path / "a.jsonl").write_text(json.dumps(row) + "\n")
    wanted = (Column("inputs"), Column("label", "label"), Column("at", "numbers", (2,)))
    with pytest.raises(CorpusError, match=error) as caught:
        list(TextFiles("a.jsonl", columns=wanted, validation=0).documents("train"))
    assert "a.jsonl:1: field '" in str(caught.value)


def test_one_class_cannot_be_learned(tmp_path):
    (tmp_path / "a.tsv").write_text("inputs\tlabel\na\tx\nb\tx\n")
    corpus = TextFiles("a.tsv", columns=(Column("inputs"), Column("label", "label")))
    with pytest.raises(CorpusError, match="column 'label' holds labels, but all rows have 'x'"):
        _ = corpus.label_names


def test_one_column_is_plain_text(tmp_path):
    (tmp_path / "a.tsv").write_text("text\ttargets\na\tb\n")
    corpus = TextFiles("a.tsv", validation=0)
    assert corpus.columns == PLAIN_TEXT
    assert _texts(corpus) == ["a"]


def test_files_for_validation_are_never_trained_on(tmp_path):
    _write(tmp_path / "train.jsonl", ["a", "b"])
    _write(tmp_path / "valid.jsonl", ["c"])
    corpus = TextFiles("*.jsonl", validation_files="valid.jsonl")
    assert corpus.splits == ("train", "validation")
    assert _texts(corpus) == ["a", "b"]
    assert _texts(corpus, "validation") == ["c"]
    absolute = TextFiles("*.jsonl", validation_files=tmp_path / "valid.jsonl")
    assert _texts(absolute) == ["a", "b"]
    with pytest.raises(CorpusError, match="none is left for training"):
        _texts(TextFiles("valid.jsonl", validation_files="*.jsonl"))


def test_a_part_is_held_out_by_default(tmp_path):
    _write(tmp_path / "a.jsonl", [f"text {i}" for i in range(1000)])
    corpus = TextFiles("a.jsonl")
    train, validation = _texts(corpus), _texts(corpus, "validation")
    assert 1 <= len(validation) <= 30
    assert sorted(train + validation) == sorted(f"text {i}" for i in range(1000))


def test_progress_is_counted_in_bytes_on_disk(tmp_path):
    for name in ("a.jsonl", "b.jsonl"):
        _write(tmp_path / name, ["x" * 1000] * 1000)
    report = ReadReport()
    documents = TextFiles("*.jsonl", validation=0).documents("train", report=report)
    next(documents)
    size = (tmp_path / "a.jsonl").stat().st_size
    assert report.bytes_total == 2 * size
    assert 0 < report.bytes_read < size
    list(documents)
    assert report.bytes_read == report.bytes_total
    assert str(report) == ""


def test_fingerprint_is_of_content_and_reading_not_of_place(tmp_path):
    _write(tmp_path / "a/x.jsonl", ["text"])
    _write(tmp_path / "b/y.jsonl", ["text"])
    reference = TextFiles("a/*.jsonl").fingerprint()
    assert reference == TextFiles(tmp_path / "b/y.jsonl", name="other").fingerprint()
    others = [
        TextFiles("a/*.jsonl", field="title").fingerprint(),
        TextFiles("a/*.jsonl", separator="line").fingerprint(),
        TextFiles("a/*.jsonl", validation=0.02).fingerprint(),
        TextFiles("a/*.jsonl", validation_files="b/*").fingerprint(),
        TextFiles("[ab]/*.jsonl").fingerprint(),
    ]
    _write(tmp_path / "a/x.jsonl", ["tent"])
    others.append(TextFiles("a/*.jsonl").fingerprint())
    assert len({reference, *others}) == 7


def test_fingerprint_covers_the_size_both_ends_and_all_of_a_file_up_to_a_mebibyte(tmp_path):
    path = tmp_path / "a.txt"
    seen = set()
    for size in (1_000_000, 1_000_001, 30_000_000):
        for changed in (None, 0, size - 1, *((123_456, 777_777) if size < 1 << 20 else ())):
            content = bytearray(b"a") * size
            if changed is not None:
                content[changed] = ord("b")
            path.write_bytes(content)
            seen.add(TextFiles("a.txt").fingerprint())
    assert len(seen) == 5 + 5 + 3


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("data/*.jsonl.gz", "data"),
        ("data/train-*-of-[0-9].txt", "train_of"),
        ("books.txt", "books"),
        ("/*.txt", "text"),
    ],
)
def test_names_are_derived_from_patterns(pattern, name):
    assert TextFiles(pattern).name == name
    assert TextFiles(pattern, name="mine").name == "mine"


@pytest.mark.parametrize(
    "options",
    [
        {"separator": "paragraph"},
        {"validation": 1.0},
        {"validation": -0.1},
        {"field": "text", "columns": PAIRS},
    ],
)
def test_options_that_cannot_be_meant_are_refused_at_once(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        TextFiles("a.txt", **options)


def test_missing_files_are_named_with_the_directory_searched(tmp_path):
    (tmp_path / "here").mkdir()
    for pattern, hint in [
        ("*.jsonl", ""),
        ("here", "it is a directory; write here/*"),
        ("there/*.txt", "there is no directory there"),
    ]:
        with pytest.raises(CorpusError) as caught:
            _texts(TextFiles(pattern))
        assert repr(pattern) in str(caught.value)
        assert str(tmp_path) in str(caught.value)
        assert hint in str(caught.value)


def test_names_with_brackets_can_be_literal(tmp_path):
    (tmp_path / "a[1].txt").write_text("literal")
    assert _texts(TextFiles("a[1].txt", validation=0)) == ["literal"]


def test_an_empty_corpus_is_an_error(tmp_path):
    (tmp_path / "a.txt").write_text("\n\n")
    with pytest.raises(CorpusError, match=r"a\.txt.*has no text"):
        _texts(TextFiles("a.txt"))


def test_rows_without_text_are_counted(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text(
        '{"text": "one"}\n{"text": null}\n{"text": " \\n"}\n{"text": "two"}\n'
    )
    (tmp_path / "lines.txt").write_text("\n\none\n\n\n\ntwo\n  \n\n")
    said = {}
    for file in tmp_path.iterdir():
        report = ReadReport()
        corpus = TextFiles(str(file), name="rows", validation=0)
        assert len(list(corpus.documents("train", report=report))) == 2
        said[file.name] = str(report)
    assert said == {
        "rows.jsonl": "rows without text, null, empty or white space: 2",
        "lines.txt": "",
    }


def test_labels_of_one_file_have_caches_of_their_own(tmp_path):
    (tmp_path / "a.tsv").write_text("text\tmood\tstars\nx\tgood\t5\ny\tbad\t1\n")

    def cached_as(field, objective="classes"):
        read = functools.partial(user_corpus, field=field)
        named = DataNames(corpus="a.tsv", objective=objective, read_corpus=read)
        return named.find_tasks()[0].label

    moods = cached_as({"inputs": "text", "label": "mood"})
    stars = cached_as({"inputs": "text", "label": "stars"})
    assert len({moods, stars, cached_as(None, "mlm")}) == 3
    assert moods == cached_as({"inputs": "text", "label": "mood"})
