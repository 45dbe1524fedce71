"""The files of SQuAD: questions, the paragraphs that they are about, and answers in these."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from t5x_like.data.corpora.corpus import CorpusError

_BEGINS = re.compile(rb'\s*\{\s*("version"\s*:\s*"[^"]*"\s*,\s*)?"data"\s*:\s*\[\s*[{\]]')
_MOST_BYTES = 1 << 30


def is_squad(stream: io.BufferedReader) -> bool:
    """Whether a stream of JSON is one file of SQuAD, not an object a line; reads nothing of it."""
    return _BEGINS.match(stream.peek(1 << 10)) is not None


def rows(stream: io.BufferedReader, origin: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The questions of a file, each with its place, for messages.

    A row has `id`, `title`, `question`, `context`, and where the file has answers `answers` (a list
    of {"text": ..., "answer_start": ...}, empty for a question without an answer).

    Raises:
      CorpusError: the file is not whole, or is not as SQuAD's are; says where.
    """
    data = stream.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise CorpusError(f"{origin} has more than {_MOST_BYTES >> 30} GiB: divide it")
    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise CorpusError(f"{origin} is not one file of SQuAD: {error}") from error
    for a, article in enumerate(content["data"]):
        place = f"{origin}: data[{a}]"
        for p, paragraph in enumerate(_get(article, "paragraphs", list, place)):
            where = f"{place}.paragraphs[{p}]"
            context = _get(paragraph, "context", str, where)
            for q, question in enumerate(_get(paragraph, "qas", list, where)):
                at = f"{where}.qas[{q}]"
                row = {
                    "id": str(_get(question, "id", (str, int), at)),
                    "title": article.get("title", ""),
                    "question": _get(question, "question", str, at),
                    "context": context,
                }
                at = f"{at} (id {row['id']})"
                yield at, {**row, **_answers(question, at)}


def _answers(question: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The field of answers; none where a file does not tell them."""
    impossible = question.get("is_impossible", False)
    if "answers" not in question and not impossible:
        return {}
    answers = [*question.get("answers", [])]
    if impossible and answers:
        raise CorpusError(f"{where} is impossible, and has the answer {answers[0]!r:.60}")
    if not impossible and not answers and "is_impossible" in question:
        raise CorpusError(f"{where} has no answer, and is not impossible")
    return {"answers": answers}


def _get(entry: Any, key: str, kind: Any, where: str) -> Any:
    value = entry.get(key) if isinstance(entry, Mapping) else None
    if not isinstance(value, kind):
        raise CorpusError(
            f"{where} has no {key!r} as in SQuAD: its files are "
            '{"data": [{"paragraphs": [{"context": ..., "qas": [{"id": ..., "question": ..., '
            '"answers": [{"text": ..., "answer_start": ...}]}]}]}]}'
        )
    return value
