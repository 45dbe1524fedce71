"""Answers to questions, as spans of a text."""

from __future__ import annotations

import json
from collections.abc import Iterator

from t5x_like.core.protocols.data import Column
from t5x_like.data.corpora.corpus import CorpusError
from t5x_like.data.corpora.formats import cells
from t5x_like.data.labelled.columns import Named
from t5x_like.data.labelled.kind import Content
from t5x_like.data.labelled.rows import Rows

_QUESTIONS = ("question", "query", "inputs")
_CONTEXTS = ("context", "passage", "paragraph")
_ANSWERS = ("answers", "answer", "answer_text")
_COLUMNS = (Column("context", "passage"), Column("answers", "spans"))


class Spans:
    """A question, a text and where in the text its answers are; SQuAD's files have them."""

    name = "spans"

    def fits(self, rows: Rows, named: Named) -> bool:
        """Whether there is a question, a context and answers with places."""
        question, context, answers = (
            _known(rows, usual) for usual in (_QUESTIONS, _CONTEXTS, _ANSWERS)
        )
        if question is None or context is None or answers is None:
            return False
        if named.label not in (None, answers):
            return False
        cells_of = [row.get(answers) for row in rows.some()]
        return cells.STARTS in rows.names or any(
            isinstance(cell, dict | list) or cells.STARTS in str(cell) for cell in cells_of
        )

    def content(self, rows: Rows, named: Named) -> Content:
        """The columns, and how many questions have no answer.

        Raises:
          CorpusError: a column is missing, a text is empty, an answer is not at its place, or no
            question has an answer.
        """
        question, context, answers = (
            given or _known(rows, usual) or usual[0]
            for given, usual in (
                (named.text, _QUESTIONS),
                (named.second, _CONTEXTS),
                (named.label, _ANSWERS),
            )
        )
        for field in (question, context, answers):
            rows.check_column(field)
        rows.check_texts((question, context))
        fields = {"inputs": question, "context": context, "answers": answers}
        counts = [*_counts(rows, context, answers)]
        if not any(counts):
            raise CorpusError(
                f"{rows.files}: no question has an answer in {answers!r}: there is nothing to learn"
            )
        none = counts.count(0)
        learns = f"answers to {question!r} as spans of {context!r}"
        learns += f", and that {none:,} of the questions have no answer" if none else ""
        return Content(fields, learns, [(question, context)], {})

    def check_held_out(self, rows: Rows, content: Content) -> None:
        """Raises CorpusError where a text is empty, or an answer is not at its place."""
        fields = content.fields
        rows.check_texts((fields["inputs"], fields["context"]))
        for _ in _counts(rows, fields["context"], fields["answers"]):
            pass


def _known(rows: Rows, usual: tuple[str, ...]) -> str | None:
    """The first of usual names that a column has."""
    known = {name.lower(): name for name in rows.names}
    return next((known[name] for name in usual if name in known), None)


def _counts(rows: Rows, context: str, answers: str) -> Iterator[int]:
    """The number of answers of each row; raises CorpusError where one is not at its place."""
    for number, row in enumerate(rows, start=1):
        where = f"{rows.files}: row {number:,}" + (f" (id {row['id']})" if "id" in row else "")
        if answers not in row:
            raise CorpusError(f"{where} has no {answers!r}: a question without an answer has []")
        document = {}
        for column, field in zip(_COLUMNS, (context, answers), strict=True):
            cell = cells.of_row(column, row, field)
            document[column.name] = cells.value(column, cell, where=f"{where}: {field!r}")
        cells.check_row(document, _COLUMNS, where=where)
        yield len(json.loads(document["answers"]))
