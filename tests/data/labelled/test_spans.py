"""Answers in texts are read from SQuAD's files and from flat rows, or refused with a reason."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from t5x_like.core.protocols.data import TokenIds
from t5x_like.data.cache.reader import Cache
from t5x_like.data.cache.writer import write_cache
from t5x_like.data.corpora import passages
from t5x_like.data.corpora.corpus import CorpusError
from t5x_like.data.corpora.text_files import TextFiles
from t5x_like.data.labelled.labelled_files import understand
from t5x_like.data.samples.samples import make_samples
from t5x_like.objectives.supervised.searched_spans import SearchedSpans
from t5x_like.objectives.supervised.spans import Spans
from t5x_like.vocabularies.characters import CharacterVocabulary

CONTEXT = "Ada lived in Paris, not in Rome."
FIELDS = {"inputs": "question", "context": "context", "answers": "answers"}


def answer(text: str, start: int) -> dict[str, Any]:
    return {"text": text, "answer_start": start}


def squad(*questions: dict[str, Any]) -> dict[str, Any]:
    qas = [{"id": f"q{n}", "question": "where?", **of} for n, of in enumerate(questions)]
    return {
        "version": "v2.0",
        "data": [{"title": "Ada", "paragraphs": [{"context": CONTEXT, "qas": qas}]}],
    }


TWO = squad(
    {"answers": [answer("Paris", 13), answer("in Paris", 10)], "is_impossible": False},
    {"answers": [], "is_impossible": True, "plausible_answers": [answer("Rome", 27)]},
)


def test_files_of_squad(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(TWO, indent=1))
    (tmp_path / "b.json.gz").write_bytes(gzip.compress(json.dumps(TWO).encode()))
    for name in ("a.json", "b.json.gz"):
        files = understand(str(tmp_path / name))
        assert (files.kind, files.train, files.fields) == ("spans", 2, FIELDS)
        assert [*files.lines()] == [
            "Learns answers to 'question' as spans of 'context', and that 1 of the questions have "
            "no answer (2 rows)."
        ]


def test_flat_rows(tmp_path: Path) -> None:
    lists = [{"text": ["Paris"], "answer_start": [13]}, {"text": [], "answer_start": []}]
    columns = {"question": ["where?", "why?"], "context": [CONTEXT] * 2}
    pq.write_table(pa.table({**columns, "answers": lists}), tmp_path / "a.parquet")
    beside = {"answer": ["Paris", None], "answer_start": [13, None]}
    pq.write_table(pa.table({**columns, **beside}), tmp_path / "b.parquet")
    quoted = f'"{CONTEXT}"'
    (tmp_path / "c.csv").write_text(
        f"query,passage,answer_text,answer_start\nwhere?,{quoted},Paris,13\nwhy?,{quoted},,\n"
    )
    kept = []
    for name in ("a.parquet", "b.parquet", "c.csv"):
        files = understand(str(tmp_path / name))
        assert files.kind == "spans", name
        assert "1 of the questions have no answer" in files.learns
        corpus = TextFiles(
            str(tmp_path / name), columns=Spans.reads, field=files.fields, validation=0
        )
        kept.append([*corpus.documents("train")])
    assert kept[0][0]["answers"] == '[[13, "Paris"]]'
    assert kept[0] == kept[1]
    assert [row["answers"] for row in kept[0]] == [row["answers"] for row in kept[2]]


def test_windows_of_a_cache_have_the_answers_at_their_tokens(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(TWO))
    vocabulary = CharacterVocabulary("".join(sorted(set(CONTEXT + "where?"))))
    corpus = TextFiles(
        str(tmp_path / "a.json"), columns=Spans.reads, field=FIELDS, validation=0, name="a"
    )
    write_cache(tmp_path / "cache", corpus, vocabulary, progress=False, workers=1)
    cache = Cache.open(tmp_path / "cache")
    assert cache.manifest.columns == Spans.reads
    split = cache.split("train")
    record = split.record(0)
    assert passages.text(record["characters"]) == CONTEXT
    assert record["answers"].tolist() == [[13, 17, 13, 18], [10, 17, 10, 18]]
    objective = Spans(template="A:0 sep:0 B:1 sep:1 cls:2", context_first=True, stride=4)
    samples = make_samples(objective.geometry({"inputs": 19}), split)
    # Of 16 places the question has 6, and 10 are left for windows 4 apart.
    assert len(samples) == 2 * 7
    ids = TokenIds(100, cls=98, sep=99)
    rng = np.random.default_rng(0)
    rows = [objective(samples[n][0], rng, ids) for n in range(7)]
    positions = [[int(r["start_positions"]), int(r["end_positions"])] for r in rows]
    assert positions == [[18, 18]] * 2 + [[5, 9], [1, 5]] + [[18, 18]] * 2 + [[16, 16]]
    for row in rows[2:4]:
        found = row["inputs"][row["start_positions"] : row["end_positions"] + 1]
        assert vocabulary.decode(found.tolist()) == "Paris"
    impossible = objective(samples[9][0], rng, ids)
    assert impossible["start_positions"] == impossible["null_position"] == 18
    assert impossible["inputs"][18] == 98
    searched = SearchedSpans(stride=4)
    for n, row in enumerate(rows):
        more = searched(samples[n][0], rng, ids)
        assert more["inputs"].tolist() == row["inputs"].tolist()
        window = len(samples[n][0]["context"])
        assert more["answer_mask"].tolist() == [1] * window + [0] * 8 + [1]
        assert more["is_impossible"] == (row["start_positions"] == row["null_position"])
        assert more.keys() | {"token_type_ids"} == searched.features({"inputs": 19}).keys()


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (
            squad({"answers": [answer("Paris", 12)]}),
            "a.json: row 1 (id q0): the answer 'Paris' is not at character 12 of the text that it "
            "answers from, where ' Pari' is: it is at 13",
        ),
        (squad({"answers": [answer("London", 3)]}), "it is not in this text"),
        (
            squad({"answers": [answer("Paris", 13)], "is_impossible": True}),
            "is impossible, and has",
        ),
        (squad({"answers": [], "is_impossible": False}), "has no answer, and is not impossible"),
        (squad({"answers": [answer("Paris", 13)]}, {}), "row 2 (id q1) has no 'answers'"),
        (squad({"answers": [answer(" ", 3)]}), "has the answer ' '"),
        (squad({"answers": [{"text": "Paris"}]}), "the answer 'Paris' has the place None"),
        (squad({"answers": [], "is_impossible": True}), "no question has an answer"),
        ({"data": [{"title": "x"}]}, "data[0] has no 'paragraphs' as in SQuAD"),
        (
            {"data": [{"paragraphs": [{"context": "c", "qas": [{"id": 1}]}]}]},
            "data[0].paragraphs[0].qas[0] has no 'question' as in SQuAD",
        ),
    ],
)
def test_what_is_wrong_is_said(content: Any, error: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(content))
    with pytest.raises(CorpusError) as raised:
        understand(str(tmp_path / "a.json"))
    assert error in str(raised.value)


def test_no_paragraph_is_in_both_splits(tmp_path: Path) -> None:
    rows = [
        {"question": f"where {n}?", "context": f"Ada {n % 20}.", "answers": []} for n in range(200)
    ]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    corpus = TextFiles(str(tmp_path / "a.jsonl"), columns=Spans.reads, field=FIELDS, validation=0.3)
    contexts = {
        split: {document["context"] for document in corpus.documents(split)}
        for split in ("train", "validation")
    }
    assert len(contexts["train"] | contexts["validation"]) == 20
    assert not contexts["train"] & contexts["validation"]
    assert len([*corpus.documents("validation")]) == 10 * len(contexts["validation"])
