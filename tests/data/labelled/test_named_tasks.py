"""Tasks by name read the files of their authors, and write T5's prompts and words."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from t5x_like.data.corpora.corpus import CorpusError
from t5x_like.data.labelled import named_tasks, online_rows, task_files
from t5x_like.data.labelled.labelled_files import KINDS

MRPC = (
    "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
    '1\t1\t2\tHe said "no.\t"No, he said.\n0\t3\t4\tIt rained.\tIt "snowed".\n'
)
STS = ("index genre filename year old_index source1 source2 sentence1 sentence2 score", "7 main")
CONLLU = (
    "# text = don't go\n1-2\tdon't\t_\t_\t_\n1\tdo\tdo\tAUX\t_\n2\tn't\tnot\tPART\t_\n"
    "3\tgo\tgo\tVERB\t_\n3.1\tthere\tthere\tADV\t_\n\n"
)
MULTIRC = {
    "passage": {
        "text": "<b>Sent 1: </b>Ada sings.<br>",
        "questions": [
            {"question": "Who?", "answers": [{"text": "Ada", "label": 1}]},
            {"question": "What?", "answers": [{"text": "a car", "label": 0}]},
        ],
    }
}
TSV = {
    "cola": "gj04\t1\t\tShe ran.\ngj04\t0\t*\tRan she it.\n",
    "mrpc": MRPC,
    "sst2": "sentence\tlabel\na fine film \t1\nso dull \t0\n",
    "stsb": "\n".join(
        "\t".join(words)
        for words in (STS[0].split(), [*"1234567", "A cat.", "The cat.", "3.799"], [*"1234567xy4"])
    ),
    "mnli": (
        "index\tsentence1\tsentence2\tlabel1\tgold_label\n0\tIt rains.\tIt is dry.\tneutral\t"
        "contradiction\n"
    ),
    "qqp": "id\tquestion1\tquestion2\tis_duplicate\n0\tWho?\tWho is it?\t1\n1\tWho? torn\n",
    "rte": "index\tsentence1\tsentence2\tlabel\n0\tIt rains.\tIt is wet.\tentailment\n",
}
FOLDERS = {"cola": "CoLA", "mrpc": "MRPC", "sst2": "SST-2", "stsb": "STS-B", "mnli": "MNLI"}
FOLDERS |= {"qqp": "QQP", "rte": "RTE"}


def first_row(name: str, folder: Path, *, as_texts: bool) -> dict[str, object]:
    return rows(name, folder, as_texts=as_texts)[0]


def rows(
    name: str, folder: Path, *, as_texts: bool, held_out: bool = False
) -> list[dict[str, object]]:
    if held_out:
        file = task_files.held_out(name, str(folder), as_texts=as_texts, root=folder / "cache")
    else:
        of_task = task_files.labelled(name, str(folder), as_texts=as_texts, root=folder / "cache")
        file = of_task.train  # type: ignore[assignment]
    assert isinstance(file, str)
    return [json.loads(line) for line in Path(file).read_text().splitlines()]


def put(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_DOT_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


@pytest.mark.parametrize(
    ("name", "inputs", "targets"),
    [
        ("cola", "cola sentence: She ran.", "acceptable"),
        ("mrpc", 'mrpc sentence1: He said "no. sentence2: "No, he said.', "equivalent"),
        ("sst2", "sst2 sentence: a fine film ", "positive"),
        ("stsb", "stsb sentence1: A cat. sentence2: The cat.", "3.8"),
        ("mnli", "mnli hypothesis: It is dry. premise: It rains.", "contradiction"),
        ("qqp", "qqp question1: Who? question2: Who is it?", "duplicate"),
        ("rte", "rte sentence1: It rains. sentence2: It is wet.", "entailment"),
    ],
)
def test_t5_reads_and_writes_glue_as_its_authors_do(
    name: str, inputs: str, targets: str, tmp_path: Path
) -> None:
    folder = tmp_path / FOLDERS[name]
    folder.mkdir()
    (folder / "train.tsv.gz").write_bytes(gzip.compress(TSV[name].encode()))
    assert first_row(name, tmp_path, as_texts=True) == {"inputs": inputs, "targets": targets}
    # The folder of the task will do, too.
    assert first_row(name, folder, as_texts=True) == {"inputs": inputs, "targets": targets}


def test_encoders_read_texts_and_names_of_classes_in_the_order_of_the_authors(
    tmp_path: Path,
) -> None:
    put(tmp_path, train_DOT_tsv=MRPC, dev_DOT_tsv=MRPC)
    labelled = task_files.labelled("mrpc", str(tmp_path), as_texts=False, root=tmp_path / "cache")
    assert labelled.best_metric == "f1"
    assert labelled.understood().labels == {"not_equivalent": 1, "equivalent": 1}
    assert [*labelled.understood().fields.values()] == ["sentence1", "sentence2", "label"]
    assert labelled.understood().held_out == 2


def test_nested_rows_and_other_benchmarks(tmp_path: Path) -> None:
    put(tmp_path, **{"train.jsonl": json.dumps(MULTIRC)})
    assert first_row("multirc", tmp_path, as_texts=True) == {
        "inputs": "multirc question: Who? answer: Ada paragraph: Sent 1: Ada sings. ",
        "targets": "True",
    }
    boolq = {"question": "is it wet", "passage": "It rains.", "label": True}
    put(tmp_path / "b", **{"BoolQ/train.jsonl": json.dumps(boolq)})
    boolq_text = "boolq passage: It rains. question: is it wet"
    assert first_row("boolq", tmp_path / "b", as_texts=True)["inputs"] == boolq_text
    put(tmp_path / "u", **{"en-ud-train.conllu": CONLLU})
    assert first_row("ud", tmp_path / "u", as_texts=False) == {
        "words": ["do", "n't", "go"],
        "tags": ["AUX", "PART", "VERB"],
    }
    german = "# a source\n1\tBerlin\tB-LOC\tO\n2\truht\tO\tO\n"
    put(tmp_path / "g", **{"NER-de-train.tsv": german.replace("# a", "#\ta")})
    assert first_row("germeval2014", tmp_path / "g", as_texts=False)["tags"] == ["B-LOC", "O"]
    put(tmp_path / "w", **{"train.en": "A cat.\n", "train.de": "Eine Katze.\n"})
    assert first_row("multi30k_en_de", tmp_path / "w", as_texts=True) == {
        "inputs": "translate English to German: A cat.",
        "targets": "Eine Katze.",
    }
    assert first_row("multi30k_de_en", tmp_path / "w", as_texts=False) == {
        "inputs": "Eine Katze.",
        "targets": "A cat.",
    }
    paper = {"source": ["We try.", "It works."], "target": ["It works.", "Good."]}
    put(tmp_path / "s", **{"SciTLDR-A/train.jsonl": json.dumps(paper)})
    assert first_row("scitldr", tmp_path / "s", as_texts=True) == {
        "inputs": "summarize: We try. It works.",
        "targets": "It works.",
    }
    put(tmp_path / "i", **{"train/pos/1.txt": "Fine.", "train/neg/1.txt": "Dull."})
    assert first_row("imdb", tmp_path / "i", as_texts=False) == {"text": "Dull.", "label": "neg"}


def test_rows_of_another_file_of_a_name_are_not_taken(tmp_path: Path) -> None:
    put(tmp_path, train_DOT_tsv=TSV["sst2"])
    assert first_row("sst2", tmp_path, as_texts=False)["sentence"] == "a fine film "
    put(tmp_path, train_DOT_tsv=TSV["sst2"].replace("fine", "good one"))
    assert first_row("sst2", tmp_path, as_texts=False)["sentence"] == "a good one film "


@pytest.mark.parametrize(
    ("name", "files", "error"),
    [
        ("sst3", {}, "no task 'sst3'; nearest: sst2"),
        ("ax", {}, "ax has no rows to learn from: learn mnli, and give its run to `t5x_like eval"),
        ("sst2", {}, r"put SST-2/train.tsv\* and SST-2/dev.tsv\* into the directory"),
        ("mrpc", {"train.tsv": TSV["sst2"]}, "row 1 has no 'sentence1' or '#1 String'"),
        ("sst2", {"train.tsv": "sentence\tlabel\na\t-1\n"}, "label of sst2 is '-1', and not one"),
        ("multi30k_en_de", {"train.en": "a\nb\n", "train.de": "a\n"}, "one ends before line 2"),
        ("wnut17", {"wnut17train.conll": "Ada B-person\n"}, "conll:1 has no tag beside its word"),
    ],
)
def test_files_that_are_not_those_of_a_task(
    name: str, files: dict[str, str], error: str, tmp_path: Path
) -> None:
    put(tmp_path, **files)
    with pytest.raises(CorpusError, match=error):
        task_files.labelled(name, str(tmp_path), as_texts=False, root=tmp_path / "cache")


def test_rows_of_hugging_face_have_the_names_of_their_classes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Feature:
        names = ("negative", "positive")

    class Rows(list[dict[str, object]]):
        features = {"sentence": object(), "label": Feature()}  # noqa: RUF012

    class Datasets:
        @staticmethod
        def load_dataset(name: str, config: str | None) -> dict[str, Rows]:
            assert (name, config) == ("nyu-mll/glue", "sst2")
            rows = Rows([{"sentence": "fine", "label": 1}, {"sentence": "dull", "label": 0}])
            return {"train": rows, "validation": rows}

    monkeypatch.setattr(online_rows.importlib.util, "find_spec", lambda name: name == "datasets")
    monkeypatch.setattr(online_rows.extras, "require", lambda *_, **__: Datasets)
    labelled = task_files.labelled("sst2", None, as_texts=False, root=tmp_path)
    assert labelled.understood().labels == {"negative": 1, "positive": 1}
    monkeypatch.setattr(online_rows.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(CorpusError, match="datasets is not installed; tensorflow_datasets is not"):
        task_files.labelled("mrpc", None, as_texts=False, root=tmp_path)


def test_every_task_is_whole() -> None:
    for name, task in named_tasks.tasks().items():
        assert task.kind in {*KINDS, "spans", "choices"}, name
        assert task.files, name
        if task.prompt:
            row = dict.fromkeys(task.columns, "1")
            assert "{" not in " ".join(task.pair(row, prompted=True).values()), name


def test_rows_that_the_publication_has_torn_are_counted_each_time(tmp_path: Path) -> None:
    whole = "0\tWho?\tWho is it?\t1\n"
    head = TSV["qqp"].partition("\n")[0]
    torn = "1\tWho? torn\n2\t\tWho?\t0\n"
    put(tmp_path, train_DOT_tsv=f"{head}\n{whole}{torn}{whole}", dev_DOT_tsv=f"{head}\n{whole}")
    for _ in range(2):
        labelled = task_files.labelled("qqp", str(tmp_path), as_texts=False, root=tmp_path / "c")
        assert labelled.notes == (
            "2 of 4 rows of train.tsv are left out: they lack a cell, or have another number of "
            "cells than the first line.",
        )


def test_wsc_marks_the_pronoun_and_a_t5_learns_from_right_candidates(tmp_path: Path) -> None:
    text = "Ann asked Mary what time the library closes, because she had forgotten."
    places = {"span1_index": 0, "span2_index": 9, "span2_text": "she"}
    candidates = [
        {"text": text, "label": label, "target": {**places, "span1_text": name}}
        for name, label in (("Mary", False), ("Ann", True))
    ]
    put(tmp_path, **{f"WSC/{name}.jsonl": json_lines(candidates) for name in ("train", "val")})
    marked = text.replace("she", "*she*")
    assert rows("wsc", tmp_path, as_texts=False) == [
        {"text": marked, "candidate": "Mary", "label": "False"},
        {"text": marked, "candidate": "Ann", "label": "True"},
    ]
    pairs = [{"inputs": f"wsc: {marked}", "targets": name} for name in ("not: Mary", "Ann")]
    assert rows("wsc", tmp_path, as_texts=True) == pairs[1:]
    assert rows("wsc", tmp_path, as_texts=True, held_out=True) == pairs
    labelled = task_files.labelled("wsc", str(tmp_path), as_texts=True, root=tmp_path / "cache")
    assert "1 of 2 training rows are learned" in labelled.notes[0]
    candidates[0]["target"]["span2_index"] = 3  # type: ignore[index]
    put(tmp_path / "b", **{"train.jsonl": json_lines(candidates)})
    with pytest.raises(CorpusError, match="word 3 is 'what', not the pronoun 'she'"):
        rows("wsc", tmp_path / "b", as_texts=False)


def test_record_is_spans_for_an_encoder_and_a_row_for_each_answer_for_a_t5(tmp_path: Path) -> None:
    passage = "Ada met Bert.\n@highlight\nBert is from Bern"
    spans = [{"start": 0, "end": 2}, {"start": 8, "end": 11}, {"start": 38, "end": 41}]
    answers = [{**spans[1], "text": "Bert"}, {**spans[2], "text": "Bern"}]
    query = {"query": "@placeholder was there", "answers": answers}
    row = {"passage": {"text": passage, "entities": spans}, "qas": [query]}
    put(tmp_path, **{"ReCoRD/train.jsonl": json.dumps(row)})
    labelled = task_files.labelled("record", str(tmp_path), as_texts=False, root=tmp_path / "c")
    files = labelled.understood()  # every answer is at its place
    assert (files.kind, files.train) == ("spans", 1)
    inputs = (
        "record query: @placeholder was there entities: Ada, Bern, Bert "
        "passage: Ada met Bert. Bert is from Bern"
    )
    assert rows("record", tmp_path, as_texts=True) == [
        {"inputs": inputs, "targets": name} for name in ("Bert", "Bern")
    ]
    flat = {"passage": passage, "query": "@placeholder was there", "answers": ["Bern", "Bert"]}
    put(tmp_path / "f", **{"train.jsonl": json.dumps({**flat, "entities": ["Ada"]})})
    labelled = task_files.labelled("record", str(tmp_path / "f"), as_texts=False, root=tmp_path)
    assert labelled.understood().kind == "spans"


def test_a_t5_reads_squad_with_spaces_around_punctuation(tmp_path: Path) -> None:
    question = {"id": "1", "question": "Who's Ada?", "answers": []}
    question["answers"] = [{"text": t, "answer_start": 0} for t in ("Ada", "Ada, a", "Ada")]
    paragraphs = [{"context": "Ada, a poet.", "qas": [question]}]
    text = json.dumps({"data": [{"title": "Ada", "paragraphs": paragraphs}]})
    put(tmp_path, **{"train-v1.1.json": text, "dev-v1.1.json": text})
    inputs = "question: Who ' s Ada ? context: Ada , a poet ."
    assert rows("squad", tmp_path, as_texts=True) == [
        {"inputs": inputs, "targets": name} for name in ("Ada", "Ada, a")
    ]
    labelled = task_files.labelled("squad", str(tmp_path), as_texts=True, root=tmp_path / "cache")
    assert labelled.several_targets
    assert labelled.metrics == ("written_spans",)


def test_a_t5_names_the_choice_of_copa(tmp_path: Path) -> None:
    row = {"premise": "It rained.", "choice1": "It is wet.", "choice2": "It is dry."}
    put(tmp_path, **{"COPA/train.jsonl": json.dumps({**row, "question": "effect", "label": 0})})
    text = "copa choice1: It is wet. choice2: It is dry. premise: It rained. question: effect"
    assert rows("copa", tmp_path, as_texts=True) == [{"inputs": text, "targets": "choice1"}]


ONLINE: dict[str, list[dict[str, object]]] = {
    "squad": [
        {
            "question": f"Who is {n}?",
            "context": "It is Ada.",
            "answers": {"text": ["Ada"], "answer_start": [6]},
        }
        for n in range(2)
    ],
    "swag": [
        {"sent1": f"Ada {n}.", "sent2": "She", "label": n}
        | {f"ending{number}": f"sings {number}." for number in range(4)}
        for n in range(4)
    ],
    "copa": [
        {"premise": f"It rained {n}.", "choice1": "wet", "choice2": "dry"}
        | {"question": "effect", "label": n}
        for n in range(2)
    ],
}


@pytest.mark.parametrize("name", ONLINE)
def test_rows_of_a_data_set_are_understood_as_files_are(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    published = {"train": ONLINE[name], "dev": ONLINE[name]}
    monkeypatch.setattr(online_rows, "splits", lambda task: published)
    files = task_files.labelled(name, None, as_texts=False, root=tmp_path).understood()
    assert (files.kind, files.train) == (named_tasks.task(name).kind, len(ONLINE[name]))
    if name == "swag":
        assert [*files.some_texts[0]] == ["Ada 0.", "She sings 0."]
        assert files.labels == {"0": 1, "1": 1, "2": 1, "3": 1}


def test_diagnostics_are_held_out_rows_of_another_task(tmp_path: Path) -> None:
    head = "Lexical Semantics\tLogic\tPremise\tHypothesis\tLabel\n"
    put(tmp_path, **{"diagnostic-full.tsv": f"{head}\t\tIt rains.\tIt is wet.\tentailment\n"})
    assert rows("ax", tmp_path, as_texts=False, held_out=True) == [
        {"premise": "It rains.", "hypothesis": "It is wet.", "label": "entailment"}
    ]
    row = {"sentence1": "It rains.", "sentence2": "It is wet.", "label": "entailment"}
    put(tmp_path, **{"AX-b.jsonl": json.dumps(row)})
    (pair,) = rows("axb", tmp_path, as_texts=True, held_out=True)
    assert pair["inputs"] == "rte hypothesis: It is wet. premise: It rains."


def json_lines(of: list[dict[str, object]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in of)


def test_choices_of_race_are_questions_with_an_option(tmp_path: Path) -> None:
    article = {
        "article": "Ada sings. Bert walks.",
        "questions": ["Ada  _  .", "Who walks?"],
        "options": [["sings", "walks", "sits", "runs"], ["Ada", "Bert", "Cleo", "Dora"]],
        "answers": ["A", "B"],
    }
    for place in ("train/middle", "train/high", "dev/high"):
        put(tmp_path, **{f"RACE/{place}/1.txt": json.dumps(article)})
    labelled = task_files.labelled("race", str(tmp_path), as_texts=False, root=tmp_path / "cache")
    files = labelled.understood()
    assert (files.kind, files.train, files.held_out) == ("choices", 4, 2)
    assert files.labels == {"A": 2, "B": 2, "C": 0, "D": 0}
    assert first_row("race_middle", tmp_path / "RACE", as_texts=False) == {
        "article": "Ada sings. Bert walks.",
        "choices": ["Ada  sings  .", "Ada  walks  .", "Ada  sits  .", "Ada  runs  ."],
        "answer": "A",
    }
    assert [*map(list, files.some_texts[4:6])] == [
        ["Ada sings. Bert walks.", "Who walks? Ada"],
        ["Ada sings. Bert walks.", "Who walks? Bert"],
    ]
    put(tmp_path, **{"RACE/train/high/2.txt": "[]"})
    with pytest.raises(CorpusError, match=r"2\.txt is not a JSON object"):
        first_row("race_high", tmp_path, as_texts=False)
