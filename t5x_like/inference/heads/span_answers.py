"""Answers to questions as spans of texts of any length, which are read in windows."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from t5x_like.core.protocols.data import Vocabulary
from t5x_like.data.corpora import passages
from t5x_like.inference.heads import n_best
from t5x_like.inference.heads.learned import Learned
from t5x_like.inference.heads.n_best import Ends, Passage, SearchedEnds
from t5x_like.inference.text_rows import Row
from t5x_like.objectives.supervised.frames import Frame
from t5x_like.objectives.supervised.searched_spans import SearchedSpans
from t5x_like.objectives.supervised.spans import Spans

_OBJECTIVES = {objective.answers: objective for objective in (Spans, SearchedSpans)}


class Asked(NamedTuple):
    """A window that a model is asked about: its row, and what `Spans` says of it."""

    row: Row
    features: Mapping[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Reading:
    """How a model reads a question and a text.

    Attributes:
      objective: the special tokens and the windows.
      tokens: the tokens of a row.
      no_answer_above: the score of no answer, less that of the best, above which a question has
        none; None where that is not known, and each question gets an answer.
    """

    objective: Spans
    tokens: int
    no_answer_above: float | None = None

    @classmethod
    def of_family(
        cls, frame: Frame, learned: Learned, *, form: str, no_answer_above: float | None = None
    ) -> Reading:
        """The reading of a model, with the special tokens of its family.

        Args:
          frame: the special tokens.
          learned: what its run says.
          form: the form of its answers.
          no_answer_above: as in the class.
        """
        objectives, length, most = learned
        spans = [objective for objective in objectives if isinstance(objective, Spans)]
        objective = spans[0] if spans else _OBJECTIVES[form].of_family(frame, (), ())
        tokens = length or objective.most_tokens
        return cls(objective, tokens if most is None else min(tokens, most), no_answer_above)


def answers(
    records: Sequence[Mapping[str, Any]],
    reading: Reading,
    vocabulary: Vocabulary,
    ask: Callable[[Sequence[Asked]], Sequence[Ends | SearchedEnds]],
) -> list[dict[str, Any]]:
    """The likeliest answer to each question, with the chance of each and of no answer.

    Args:
      records: `inputs` is the question, `context` the text.
      reading: how they are read.
      vocabulary: of their tokens.
      ask: gives the likeliest spans of windows.

    Raises:
      ValueError: the vocabulary does not know where its tokens are.
    """
    windows_asked: list[Asked] = []
    questions = []
    for record in records:
        ids, places = passages.located(vocabulary, record["context"])
        question = vocabulary.encode(record["inputs"])
        windows = reading.objective.geometry({"inputs": reading.tokens}).windows
        bounds = windows.bounds(len(question), len(ids))
        framed = [
            _framed(reading.objective, question[: windows.asked], ids[begin:end], vocabulary)
            for begin, end in bounds
        ]
        cut = len(question) > windows.asked
        at = int(framed[0]["text_position"])
        questions.append((Passage(record["context"], places, bounds), at, cut))
        for of_window in framed:
            tokens = of_window["inputs"].tolist()
            types = of_window.get("token_type_ids", np.zeros(len(tokens), np.int32)).tolist()
            windows_asked.append(Asked(Row(tokens, cut, types), of_window))
    ends = iter(ask(windows_asked))
    answered = []
    for passage, at, cut in questions:
        best = n_best.n_best(passage, [next(ends) for _ in passage.bounds], at)
        said = _said(best, reading.no_answer_above)
        answered.append(said | ({"truncated": True} if cut else {}))
    return answered


def _framed(
    objective: Spans, question: Sequence[int], window: Sequence[int], vocabulary: Vocabulary
) -> dict[str, np.ndarray]:
    sample = {
        "inputs": np.asarray(question, np.int32),
        "context": np.asarray(window, np.int32),
        "answers": np.zeros((0, 4), np.int32),
    }
    return objective(sample, np.random.default_rng(0), vocabulary.token_ids)


def _said(best: n_best.NBest, no_answer_above: float | None) -> dict[str, Any]:
    """The likeliest answer, its chance in its window, and by how much no answer is likelier.

    Where a threshold is known, also whether there is an answer; the likeliest is then beside it.
    """
    said: dict[str, Any] = {"answer": "", "score": 0.0, "no_answer": None}
    if best.texts:
        said = {"answer": best.best, "score": best.chances[0], "no_answer": best.no_answer}
    if no_answer_above is None:
        return said
    has_answer = best.no_answer <= no_answer_above
    shown = {} if has_answer else {"answer": "", "likeliest": best.best}
    return {**said, **shown, "has_answer": has_answer}
