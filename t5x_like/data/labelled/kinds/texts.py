"""A text to write for a text, or for two: what an encoder-decoder learns."""

from __future__ import annotations

import collections
from collections.abc import Mapping
from typing import Any

from t5x_like.data.corpora.corpus import CorpusError
from t5x_like.data.labelled import columns, kind
from t5x_like.data.labelled.columns import Named
from t5x_like.data.labelled.kind import Content
from t5x_like.data.labelled.rows import Rows

_PAIRS = (
    *(("inputs", "targets"), ("input", "output"), ("source", "target"), ("src", "tgt")),
    *(("text", "summary"), ("document", "summary"), ("article", "highlights"), ("mr", "ref")),
    *(("meaning_representation", "human_reference"), ("instruction", "response")),
    *(("prompt", "completion"), ("question", "answer")),
)
_FEW = 100


class Texts:
    """Pairs of texts, of which the second is written."""

    name = "texts"

    def fits(self, rows: Rows, named: Named) -> bool:
        """Whether two columns have the usual names of such pairs, and a user names no others."""
        return named == columns.NONE_NAMED and _usual(rows) is not None

    def content(self, rows: Rows, named: Named) -> Content:
        """The two columns; raises CorpusError where they cannot be found, or a text is empty.

        Targets of few different values are labels, whose names are written.
        """
        if {"words", "tags"} <= {*rows.names}:
            raise CorpusError(
                f"{rows.files} has tags of words, which a model that writes texts does not learn "
                "here: take one with a head, such as a BERT or a RoBERTa"
            )
        usual = _usual(rows) if named == columns.NONE_NAMED else None
        texts, target = usual or columns.texts_and_label(rows, named)
        rows.check_texts(texts)
        labels = _labels(rows, target)
        learns = f"to write the column {target!r} for {kind.quoted(texts)}"
        fields = {**dict(zip(("inputs", "inputs2"), texts, strict=False)), "targets": target}
        return Content(fields, learns, [texts], labels)

    def check_held_out(self, rows: Rows, content: Content) -> None:
        """Raises CorpusError for a label that training never shows."""
        if content.labels:
            target = content.fields["targets"]
            names = map(_text, rows.cells(target))
            kind.check_known(names, content.labels, target, rows.files)


def _usual(rows: Rows) -> tuple[tuple[str], str] | None:
    known = {name.lower(): name for name in rows.names}
    for text, target in _PAIRS:
        if {text, target} <= known.keys():
            return (known[text],), known[target]
    return None


def _labels(rows: Rows, target: str) -> Mapping[str, int]:
    """How often each target occurs, if they are few; none otherwise.

    Raises:
      CorpusError: a target is empty, or is neither a text nor a number; or all are the same.
    """
    cells = rows.cells(target)
    for number, cell in enumerate(cells, start=1):
        if not isinstance(cell, str | int | float) or not str(cell).strip():
            raise CorpusError(
                f"{rows.files}: {target!r} of row {number:,} is {cell!r}: a model learns to write "
                "a text, which may not be empty"
            )
    counts = collections.Counter(map(_text, cells))
    is_few = len(counts) <= min(_FEW, len(rows) / 2)
    return kind.counted(counts.elements(), target, rows.files) if is_few else {}


def as_pair(row: Mapping[str, Any], fields: Mapping[str, str]) -> dict[str, str]:
    """{"inputs": ..., "targets": ...} of a row.

    Two texts become one, "sentence1: a text sentence2: another", after the names of their columns
    (T5, appendix D).
    """
    texts = [field for column, field in fields.items() if column != "targets"]
    named = [f"{field}: {row[field]}" for field in texts]
    inputs = row[texts[0]] if len(texts) == 1 else " ".join(named)
    return {"inputs": inputs, "targets": _text(row[fields["targets"]])}


def _text(cell: Any) -> str:
    return str(cell).lower() if isinstance(cell, bool) else str(cell)
