"""Files of labels are understood from their columns and cells, or refused with a reason."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from t5x_like.core.protocols.data import Column
from t5x_like.data.corpora.corpus import CorpusError, ReadReport
from t5x_like.data.corpora.user_corpus import user_corpus
from t5x_like.data.labelled.columns import Named
from t5x_like.data.labelled.labelled_files import understand

ROWS = [
    {"id": "a1", "premise": "A man eats.", "hypothesis": "He sleeps.", "gold_label": "no"},
    {"id": "a2", "premise": "A man eats bread.", "hypothesis": "He eats.", "gold_label": "yes"},
]


def written(path: Path, rows: list[dict[str, Any]]) -> str:
    names = [*rows[0]]
    if path.suffix == ".jsonl":
        text = "".join(json.dumps(row) + "\n" for row in rows)
    else:
        between = "\t" if ".tsv" in path.suffixes else ","
        quote = '"' if between == "," else ""
        lines = [[f"{quote}{row[name]}{quote}" for name in names] for row in rows]
        text = "".join(between.join(line) + "\n" for line in [names, *lines])
    data = text.encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return str(path)


@pytest.mark.parametrize("name", ["a.jsonl", "a.tsv", "a.csv", "a.tsv.gz"])
def test_a_pair_and_its_class(name: str, tmp_path: Path) -> None:
    files = understand(written(tmp_path / name, ROWS))
    assert (files.kind, files.train, files.labels) == ("classes", 2, {"no": 1, "yes": 1})
    assert files.fields == {"inputs": "premise", "inputs2": "hypothesis", "label": "gold_label"}


def test_the_longest_text_and_the_column_that_is_left(tmp_path: Path) -> None:
    rows = [{"remark": "so so, in all", "stars": 3}, {"remark": "a dull\nevening", "stars": 1}]
    files = understand(written(tmp_path / "a.csv", rows))
    assert files.fields == {"inputs": "remark", "label": "stars"}
    assert files.labels == {"3": 1, "1": 1}


def test_the_only_column_whose_values_repeat_is_the_label(tmp_path: Path) -> None:
    rows = [{"no": n, "remark": f"it is {n}", "mood": "gs"[n % 2]} for n in range(8)]
    files = understand(written(tmp_path / "a.csv", rows))
    assert files.fields == {"inputs": "remark", "label": "mood"}
    with pytest.raises(CorpusError, match="name that of the label"):
        understand(written(tmp_path / "b.csv", [{**row, "place": row["mood"]} for row in rows]))


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (
            "spam\tbuy it\nham\thello there\nspam\tbuy two\n",
            "first line looks like a row.*Name the",
        ),
        ("0.5\tso so\n0.9\tall fine\n", "the first line looks like a row"),
        ("remark;mood\nfine;g\n", "separated by ';', and .csv files are read with commas"),
    ],
)
def test_a_table_of_another_form_is_not_taken_for_one_with_names(
    text: str, error: str, tmp_path: Path
) -> None:
    (tmp_path / "a.tsv").write_text(text)
    with pytest.raises(CorpusError, match=error):
        understand(str(tmp_path / "a.tsv"))


def test_names_of_classes_in_parquet(tmp_path: Path) -> None:
    labels = pa.array(["bad", "good", "bad"]).dictionary_encode()
    table = pa.table({"text": ["dull", "fine", "poor"], "label": labels})
    pq.write_table(table, tmp_path / "a.parquet")
    assert understand(str(tmp_path / "a.parquet")).labels == {"bad": 2, "good": 1}


def test_numbers_and_tags(tmp_path: Path) -> None:
    rows = [{"text": "one", "score": 0.5}, {"text": "two", "score": 3}]
    assert understand(written(tmp_path / "a.jsonl", rows)).kind == "numbers"
    (tmp_path / "a.conll").write_text("# a comment\nAda NNP B-NP B-PER\nsings VBZ B-VP O\n\n")
    files = understand(str(tmp_path / "a.conll"))
    assert (files.kind, files.labels) == ("tags", {"B-PER": 1, "O": 1})


def test_choices_and_several_classes(tmp_path: Path) -> None:
    fields = {"inputs": "sent1", "choice_0": "ending0", "choice_1": "ending1", "label": "label"}
    rows = [{"sent1": "He", "ending0": "sings.", "ending1": "is a tree.", "label": 0}]
    files = understand(written(tmp_path / "a.csv", rows))
    assert (files.kind, files.fields, files.labels) == ("choices", fields, {"0": 1, "1": 0})
    answers = {"article": "Ada ran.", "question": "Who?", "options": ["Ada", "Bert"], "answer": "A"}
    files = understand(written(tmp_path / "b.jsonl", [answers]))
    assert files.fields["inputs2"] == "question"
    assert files.fields["choice_1"] == "options[1]"
    assert files.some_texts == [["Ada ran.", "Who?", "Ada"], ["Ada ran.", "Who?", "Bert"]]
    rows = [{"text": "a", "labels": ["x", "y"]}, {"text": "b", "labels": []}]
    files = understand(written(tmp_path / "c.jsonl", rows))
    assert (files.kind, files.labels) == ("several", {"x": 1, "y": 1})


@pytest.mark.parametrize(
    ("rows", "dev", "options", "error"),
    [
        (ROWS, [{**ROWS[0], "gold_label": "maybe"}], {}, "holds 'maybe', which the training files"),
        (ROWS[:1], None, {}, "is 'no' in all rows: there is nothing to learn"),
        ([ROWS[0], {**ROWS[1], "premise": " "}], None, {}, "the text 'premise' of row 2 is empty"),
        (ROWS, [{"premise": "x"}], {}, "has no column 'hypothesis'"),
        (ROWS, None, {"named": Named(label="gold")}, "no column 'gold'"),
        (
            ROWS,
            None,
            {"kind": "names"},
            "kind must be one of choices, classes, numbers, ordered, several, spans, tags",
        ),
        (ROWS, None, {"kind": "tags"}, "tags of words are read from .conll files"),
        (
            [{"text": "a", "label": "1.0"}, {"text": "b", "label": "0.0"}],
            None,
            {},
            "holds 0.0, 1.0: say whether these are names of classes (--kind classes) or numbers",
        ),
        (
            [{"text": "a", "label": ["x", "y"]}, {"text": "b", "label": "x"}],
            None,
            {},
            "a label is a text or a whole number",
        ),
        ([{"text": "a", "label": ["x"]}], None, {}, "is 'x' in all rows: there is nothing"),
        (
            [{"question": "a", "choices": ["bread", "cat"], "answer": "cat"}],
            None,
            {},
            "name the right one of 2 choices by its number",
        ),
        (
            [{"question": "a", "choice1": "b", "choice2": "c", "label": 1}],
            None,
            {},
            "whether it counts 2 choices from 0 or from 1 is not clear",
        ),
        ([{"n": 1, "m": 2}], None, {}, "no text is among them: name its column (--text)"),
    ],
)
def test_what_cannot_be_learned_is_said(
    rows: Any, dev: Any, options: dict[str, Any], error: str, tmp_path: Path
) -> None:
    train = written(tmp_path / "train.jsonl", rows)
    held_out = None if dev is None else written(tmp_path / "dev.jsonl", dev)
    with pytest.raises(CorpusError) as raised:
        understand(train, held_out, **options)
    assert error in str(raised.value)


def test_a_table_without_a_header_gets_one_here_and_in_its_cache(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text('gj04\t1\t\tShe "ran.\ngj04\t0\t*\tRan she it.\n')
    header = ("source", "label", "mark", "sentence")
    files = understand(str(path), header=header, order=["0", "1", "2"])
    assert (files.train, files.labels) == (2, {"0": 1, "1": 1, "2": 0})
    assert files.fields == {"inputs": "sentence", "label": "label"}
    corpus = user_corpus(
        str(path), field=dict(files.fields), header=header, labels=["0", "1", "2"]
    ).with_columns((Column("inputs"), Column("label", "label")))
    assert corpus is not None
    assert corpus.label_names == {"label": ("0", "1", "2")}
    texts = [document["inputs"] for document in corpus.read("train", ReadReport())]
    assert texts == ['She "ran.', "Ran she it."]
    with pytest.raises(CorpusError, match="which is none of those named: 0, 2"):
        understand(str(path), header=header, order=["0", "2"])


def test_a_column_of_weights_is_neither_a_text_nor_a_label(tmp_path: Path) -> None:
    rows = [{"remark": "so so", "stars": 3, "w": 2}, {"remark": "dull", "stars": 1, "w": 0.5}]
    path = written(tmp_path / "a.csv", rows)
    files = understand(path, path, weight="w")
    assert files.fields == {"inputs": "remark", "label": "stars", "weight": "w"}
    tagged = [{"words": ["a", "b"], "tags": ["x", "y"], "w": 1}]
    files = understand(written(tmp_path / "b.jsonl", tagged), weight="w")
    assert (files.kind, files.fields["weight"]) == ("tags", "w")


@pytest.mark.parametrize(
    ("weights", "error"),
    [
        ((1, "much"), "'w' of row 2 is 'much': the weight of a row is a number, 0 or more"),
        ((-1, 1), "'w' of row 1 is -1"),
        ((1, None), "'w' of row 2 is None"),
        ((1, float("nan")), "'w' of row 2 is nan"),
        ((True, 1), "'w' of row 1 is True"),
        ((0, 0), "all weights in the column 'w' are 0"),
    ],
)
def test_bad_weights_are_refused(weights: tuple[Any, ...], error: str, tmp_path: Path) -> None:
    rows = [{"text": f"a {w}", "label": n, "w": w} for n, w in enumerate(weights)]
    good = written(tmp_path / "a.jsonl", [{**row, "w": 1} for row in rows])
    bad = written(tmp_path / "b.jsonl", rows)
    for files in ((bad, None), (good, bad)):
        with pytest.raises(CorpusError, match=error):
            understand(*files, weight="w")
    with pytest.raises(CorpusError, match="no column 'wt'"):
        understand(good, weight="wt")


def test_answers_and_texts_to_write_have_no_weights(tmp_path: Path) -> None:
    pairs = written(tmp_path / "a.jsonl", [{"inputs": "a", "targets": "b", "w": 1}])
    with pytest.raises(CorpusError, match="not for texts: leave out the column 'w'"):
        understand(pairs, weight="w")


def test_ordered_classes_are_numbers_or_in_a_given_order(tmp_path: Path) -> None:
    def ordered(*labels: str, order: list[str] | None = None) -> dict[str, int]:
        path = written(tmp_path / "a.csv", [{"text": f"a {x}", "label": x} for x in labels])
        return dict(understand(path, kind="ordered", order=order).labels)

    assert [*ordered("10", "9", "-1")] == ["-1", "9", "10"]
    assert [*ordered("10.5", "9.5", "9.5")] == ["9.5", "10.5"]
    with pytest.raises(CorpusError, match=r"order of 'bad', 'good' is not known.*CORPUS_LABELS"):
        ordered("good", "bad")
    with pytest.raises(CorpusError, match="'nan' is not known"):
        ordered("1", "nan")
    with pytest.raises(CorpusError, match=r"'1' and '1.0', which are the same number"):
        ordered("1", "1.0", "2")
    with pytest.raises(CorpusError, match="label 'good', which is none of those named"):
        ordered("good", "bad", order=["bad", "fair"])
    assert ordered("good", "bad", order=["bad", "fair", "good"]) == {"bad": 1, "fair": 0, "good": 1}
