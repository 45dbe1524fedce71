"""Predictions keep the order of the inputs, whatever is killed on the way."""

import json
import re

import numpy as np
import pytest

from t5x_like.inference import input_files, predictions

RECORDS = [{"inputs": "x" * (7 * n % 30), "id": n} for n in range(100)]


class Echo:
    """Predicts the length of an input; ends like a killed program after `most` calls."""

    batch_size = 3

    def __init__(self, most=None):
        self.calls, self.most = [], most

    def check(self, record):
        if record["inputs"] == "bad":
            raise ValueError("bad text")

    def __call__(self, records):
        if len(self.calls) == self.most:
            raise KeyboardInterrupt
        self.calls.append([len(record["inputs"]) for record in records])
        return [
            {"prediction": len(record["inputs"]), "embedding": [1.0, 0.1]} for record in records
        ]


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_long_inputs_come_first_and_lines_in_the_order_of_the_inputs(tmp_path):
    predictor, path = Echo(), tmp_path / "out" / "found.jsonl"
    done = predictions.predict_to_file(predictor, RECORDS, path, identity={"step": 1})
    lengths = [length for call in predictor.calls for length in call]
    assert lengths == sorted(lengths, reverse=True)
    assert [row["id"] for row in lines(path)] == list(range(100))
    assert all(row["prediction"] == len(row["inputs"]) for row in lines(path))
    assert (done.records, done.predicted, done.truncated) == (100, 100, 0)
    assert [each.name for each in path.parent.iterdir()] == ["found.jsonl"]


@pytest.mark.parametrize("torn", [0, 5, 40])
def test_a_killed_program_goes_on_where_it_was(tmp_path, torn):
    path, partial = tmp_path / "found.jsonl", tmp_path / "found.jsonl.partial"
    with pytest.raises(KeyboardInterrupt):
        predictions.predict_to_file(Echo(most=4), RECORDS, path, identity={"step": 1})
    assert not path.exists()
    if torn:  # the last write was cut
        partial.write_bytes(partial.read_bytes()[:-torn])
    again = Echo()
    done = predictions.predict_to_file(again, RECORDS, path, identity={"step": 1})
    assert 0 < done.predicted == sum(map(len, again.calls)) <= 100 - 48 + torn // 5 + 1
    whole = tmp_path / "whole.jsonl"
    predictions.predict_to_file(Echo(), RECORDS, whole, identity={"step": 1})
    assert path.read_bytes() == whole.read_bytes()
    assert not partial.exists()


def test_a_file_killed_before_its_first_line_begins_again(tmp_path):
    (tmp_path / "found.jsonl.partial").write_text('{"st')
    path = tmp_path / "found.jsonl"
    assert predictions.predict_to_file(Echo(), RECORDS, path, identity={}).predicted == 100


def test_predictions_of_other_settings_are_not_mixed(tmp_path):
    path = tmp_path / "found.jsonl"
    with pytest.raises(KeyboardInterrupt):
        predictions.predict_to_file(Echo(most=1), RECORDS, path, identity={"step": 1})
    kept = (tmp_path / "found.jsonl.partial").read_bytes()
    with pytest.raises(ValueError, match=r"found.jsonl.partial holds predictions of other inputs"):
        predictions.predict_to_file(Echo(), RECORDS, path, identity={"step": 2})
    assert (tmp_path / "found.jsonl.partial").read_bytes() == kept


def test_vectors_can_be_an_array(tmp_path):
    predictions.predict_to_file(Echo(), RECORDS, tmp_path / "found.npy", identity={})
    found = np.load(tmp_path / "found.npy")
    assert found.shape == (100, 2)
    assert found.dtype == np.float32


def test_a_wrong_record_is_named_before_any_work():
    with pytest.raises(ValueError, match="input 2: bad text"):
        predictions.check_all(Echo(), [{"inputs": "a"}, {"inputs": "bad"}])
    with pytest.raises(ValueError, match="input 1: lists of words are for models that answer with"):
        predictions.check_all(Echo(), [{"inputs": ["a", "b"]}])


@pytest.mark.parametrize(
    ("name", "content", "found"),
    [
        ("a.txt", "one\r\n\n  two \n", [{"inputs": "one"}, {"inputs": "  two "}]),
        (
            "a.jsonl",
            '{"text": "t", "n": 1}\n{"inputs": "i", "choices": ["a"]}\n',
            [{"inputs": "t", "text": "t", "n": 1}, {"inputs": "i", "choices": ["a"]}],
        ),
        (
            "a.jsonl",
            '{"words": ["a", "b"]}\n{"inputs": ["c"]}\n',
            [{"inputs": ["a", "b"], "words": ["a", "b"]}, {"inputs": ["c"]}],
        ),
        ("a.tsv", "inputs\ttargets\na\tb\n", [{"inputs": "a", "targets": "b"}]),
        ("a.csv", 'text,label\n"a,b",c\n', [{"inputs": "a,b", "text": "a,b", "label": "c"}]),
    ],
)
def test_files_of_every_format_give_records(name, content, found, tmp_path):
    (tmp_path / name).write_text(content, newline="")
    assert input_files.read(str(tmp_path / name)) == found


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", "\n \n", "a.txt has no input: it is empty"),
        ("a.jsonl", '{"inputs": "a"}\n{"input": "b"}\n', "input 2: field 'inputs' is missing"),
        ("a.jsonl", '{"inputs": 3}\n', "input 1: field 'inputs' is not text"),
        ("a.jsonl", '{"words": ["a", 3]}\n', "input 1: field 'words' is not text"),
        ("a.jsonl", '{"inputs"\n', "a.jsonl:1 is not one JSON object a line"),
        ("a.jsonl", "[1]\n", "a.jsonl:1 is not a JSON object: '[1]'"),
    ],
)
def test_files_without_inputs_are_refused(name, content, message, tmp_path):
    (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=re.escape(message)):
        input_files.read(str(tmp_path / name))
