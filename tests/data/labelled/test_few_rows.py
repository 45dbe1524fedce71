"""Few training rows: nested, with the shares of classes, and the same for the same seed."""

from __future__ import annotations

import collections
import json
from pathlib import Path

import pytest

from t5x_like.data.corpora.corpus import CorpusError
from t5x_like.data.labelled.few_rows import FewRows, nested_order
from t5x_like.data.labelled.labelled_files import Labelled

CLASSES = ["rare"] * 4 + ["some"] * 36 + ["common"] * 160


def test_each_beginning_has_the_shares_of_all() -> None:
    order = nested_order(200, 3, classes=CLASSES)
    assert sorted(order) == [*range(200)]
    assert {CLASSES[n] for n in order[:3]} == {"rare", "some", "common"}
    for size in (25, 50, 100):
        counts = collections.Counter(CLASSES[n] for n in order[:size])
        assert abs(counts["common"] - 0.8 * size) <= 2
        assert abs(counts["some"] - 0.18 * size) <= 2
    assert nested_order(200, 3, classes=CLASSES) == order
    assert nested_order(200, 4, classes=CLASSES)[:20] != order[:20]
    assert sorted(nested_order(5, 0)) == [0, 1, 2, 3, 4]


def test_rows_are_written_and_the_held_out_ones_stay(tmp_path: Path) -> None:
    train, dev = tmp_path / "reviews.csv", tmp_path / "dev.csv"
    rows = [f"a film {n},{name}" for n, name in enumerate(CLASSES)]
    train.write_text("\n".join(["remark,verdict", *rows]) + "\n")
    dev.write_text("remark,verdict\nfilm,rare\n")
    labelled = Labelled(str(train), str(dev))
    files = labelled.understood()

    def drawn(examples: int, seed: int = 0) -> set[str]:
        some = FewRows(examples, seed).of(labelled, files, root=tmp_path / "cache")
        assert some.dev == str(dev)
        understood = some.understood()
        assert (understood.kind, understood.fields) == (files.kind, files.fields)
        assert understood.labels.keys() == files.labels.keys()
        assert Path(str(some.train)).name == "reviews.jsonl"
        lines = Path(str(some.train)).read_text().splitlines()
        assert len(lines) == examples
        return {json.loads(line)["remark"] for line in lines}

    assert drawn(10) < drawn(40)
    assert drawn(10) == drawn(10)
    assert drawn(10, seed=1) != drawn(10)
    assert FewRows("all").of(labelled, files, root=tmp_path) == labelled
    for examples in (2, 201):
        with pytest.raises(CorpusError, match=r"from 3 .* to the 200"):
            drawn(examples)
    with pytest.raises(CorpusError, match="name the held-out files"):
        FewRows(10).of(labelled._replace(dev=None), files, root=tmp_path)
    with pytest.raises(CorpusError, match="a number of rows, or 'all'"):
        FewRows("some").of(labelled, files, root=tmp_path)
