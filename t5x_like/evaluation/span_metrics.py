"""The metrics of SQuAD 1.1 and 2.0 by their official definition, as shares."""

from __future__ import annotations

import collections
import dataclasses
import re
import string
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from t5x_like.core.protocols.answers import Answers
from t5x_like.inference.heads.n_best import WINDOWS, Ends, NBest, Passage, SearchedEnds, n_best

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


class Question(NamedTuple):
    """A question that a model was asked.

    Attributes:
      passage: the text that it is about.
      golds: the right answers; none where it has no answer.
      text_position: the place of a window's first token in its row.
    """

    passage: Passage
    golds: Sequence[str]
    text_position: int


@dataclasses.dataclass(frozen=True)
class SpanMetric:
    """A `TaskMetric` of answers: an example is a window, of the `question` of this number.

    Attributes:
      questions: the questions.
      answers: the form of the answers, of `n_best.WINDOWS`.
    """

    questions: Sequence[Question]
    answers: str = "spans"
    name: ClassVar = "span_scores"
    reads: ClassVar = ("labels",)

    def __call__(
        self, examples: Sequence[Mapping[str, Any]], answers: Answers
    ) -> Mapping[str, float]:
        """The values of `span_scores`."""
        of_window: Callable[..., Ends | SearchedEnds] = WINDOWS[self.answers]
        windows: list[list[Ends | SearchedEnds]] = [[] for _ in self.questions]
        for example, ends in zip(examples, answers.labels, strict=True):
            windows[example["question"]].append(of_window(*ends))
        best = [
            n_best(question.passage, of_question, question.text_position)
            for question, of_question in zip(self.questions, windows, strict=True)
        ]
        return span_scores(best, [question.golds for question in self.questions])


def span_scores(best: Sequence[NBest], golds: Sequence[Sequence[str]]) -> dict[str, float]:
    """Exact match and F1; where some questions have no answer, those of SQuAD 2.0.

    Of these, `exact` and `f1` have no answer where it is likelier than the best (a threshold of 0).
    `best_exact` and `best_f1` have the threshold that is best for them here, `*_thresh`.
    """
    texts = [of_question.best for of_question in best]
    raw = {
        name: np.array([nearest(score, text, of) for text, of in zip(texts, golds, strict=True)])
        for name, score in (("exact", exact), ("f1", f1))
    }
    has_answer = np.array([bool(of) for of in golds])
    if has_answer.all():
        return {name: float(scores.mean()) for name, scores in raw.items()}
    differences = np.array([of_question.no_answer for of_question in best])
    values = {}
    for name, scores in raw.items():
        untuned = np.where(differences > 0, ~has_answer, scores)
        values[name] = float(untuned.mean())
        for kind, which in (("HasAns", has_answer), ("NoAns", ~has_answer)):
            if which.any():
                values[f"{kind}_{name}"] = float(untuned[which].mean())
        says_something = np.array([text != "" for text in texts])
        tuned = tune(scores, differences, has_answer, says_something)
        values[f"best_{name}"], values[f"best_{name}_thresh"] = tuned
    return values


def tune(
    scores: np.ndarray, differences: np.ndarray, has_answer: np.ndarray, says_something: np.ndarray
) -> tuple[float, float]:
    """The best mean score and its threshold: no answer is said where the difference is above it.

    Args:
      scores: of each question's likeliest answer, float [n].
      differences: the score of no answer less that of the likeliest answer, float [n].
      has_answer: bool [n].
      says_something: bool [n], whether the likeliest answer is not empty.
    """
    order = np.argsort(differences, kind="stable")
    gains = np.where(has_answer, scores, -1.0 * says_something)[order]
    sums = (~has_answer).sum() + np.concatenate([[0.0], np.cumsum(gains)])
    at = int(sums.argmax())
    return float(sums[at] / len(scores)), float(differences[order[at - 1]]) if at else 0.0


def exact(text: str, gold: str) -> float:
    """Whether two answers are the same once normalised."""
    return float(_words(text) == _words(gold))


def f1(text: str, gold: str) -> float:
    """The F1 of the words of an answer; 0 or 1 where one is empty."""
    words, right = _words(text), _words(gold)
    if not words or not right:
        return float(words == right)
    same = sum((collections.Counter(words) & collections.Counter(right)).values())
    return 2 * same / (len(words) + len(right))


def nearest(score: Callable[[str, str], float], text: str, golds: Sequence[str]) -> float:
    """The score for the right answer that is nearest; golds that normalise to nothing are none."""
    return max(score(text, gold) for gold in [g for g in golds if _words(g)] or [""])


def _words(text: str) -> list[str]:
    """The words of a text in lower case, without punctuation and articles."""
    return _ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split()
