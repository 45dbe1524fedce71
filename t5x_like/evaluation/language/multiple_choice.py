"""Multiple choice by likelihood: the choice that a model finds likeliest after a text."""

from __future__ import annotations

import collections
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from t5x_like.core.protocols.data import Vocabulary
from t5x_like.data.labelled.columns import NONE_NAMED
from t5x_like.data.labelled.kinds.choices import Choices
from t5x_like.data.labelled.rows import Rows
from t5x_like.evaluation.language import reading, results
from t5x_like.evaluation.language.results import Model, Results, Row, Settings
from t5x_like.inference.likelihoods.likelihood import Likelihood, Span

READS = ("examples", "seed", "within_word", "batch_size")


class Question(NamedTuple):
    """A text, what may follow it, and the number of the right choice from 0."""

    text: str
    choices: list[str]
    right: int


def read(files: str | Sequence[str]) -> list[Question]:
    """The questions of files, whose columns are those that `finetune` finds for choices.

    Raises:
      CorpusError: the files are damaged, or hold no choices.
    """
    rows = Rows([files] if isinstance(files, str) else [*files])
    content = Choices().content(rows, NONE_NAMED)
    names, fields = [*content.labels], content.fields
    texts = [fields[name] for name in ("inputs", "inputs2") if name in fields]
    alternatives = [field for name, field in fields.items() if name.startswith("choice_")]
    questions = []
    for row in rows:
        choices = [rows.cell(row, field) for field in alternatives]
        questions.append(
            Question(
                " ".join(str(rows.cell(row, field)).strip() for field in texts),
                [str(choice).strip() for choice in choices if choice is not None],
                names.index(str(rows.cell(row, fields["label"]))),
            )
        )
    return questions


def evaluate(model: Model, files: str | Sequence[str], settings: Settings) -> Results:
    """The share of questions whose right choice is the likeliest, by the sum or by a mean.

    The sum of log-probabilities is that of a choice after its text; a model that guesses masked
    tokens gives that of both together. `by token` divides it by the number of tokens that it sums,
    `by byte` by the bytes of the choice. `commonest` always takes the commonest number of a right
    choice, `shortest` the choice with the fewest bytes. Of equal choices each counts its share.

    Raises:
      ValueError, OSError: as `read`; or the model gives no likelihoods.
    """
    every = read(files)
    questions = settings.drawn(every)
    predictor = model.predictor("score", **settings.options())
    assert model.vocabulary is not None
    answers = _answers(predictor, questions, model.vocabulary)
    sums = [[answer.log_p for answer in of_one] for of_one in answers]
    tokens = [[max(answer.tokens, 1) for answer in of_one] for of_one in answers]
    sizes = [[max(len(text.encode()), 1) for text in question.choices] for question in questions]
    right = [question.right for question in questions]
    common, _ = collections.Counter(right).most_common(1)[0]
    values = {
        "accuracy": _accuracy(sums, right),
        "by token": _accuracy(_divided(sums, tokens), right),
        "by byte": _accuracy(_divided(sums, sizes), right),
        "chance": float(np.mean([1 / len(question.choices) for question in questions])),
        "commonest": float(np.mean([number == common for number in right])),
        "shortest": _accuracy([[-size for size in of_one] for of_one in sizes], right),
    }
    notes = results.sample_note(len(questions), len(every), settings, "questions")
    return Results("questions", [Row("all", len(questions), values)], notes)


def _answers(
    predictor: Any, questions: Sequence[Question], vocabulary: Vocabulary
) -> list[list[Likelihood]]:
    """How likely each choice of each question is.

    A decoder alone reads text and choice as one line, so that a choice begins a word in it.
    """
    pairs = [(question.text, choice) for question in questions for choice in question.choices]
    if predictor.targets is None or not predictor.score.alone:
        both = predictor.targets is None
        records = [
            {"inputs": f"{text} {choice}"} if both else {"inputs": text, "targets": choice}
            for text, choice in pairs
        ]
        predicted = results.ask_all(predictor, records)
        answers = [Likelihood(p["log_likelihood"], False, p["target_tokens"]) for p in predicted]
    else:
        spans = []
        for text, choice in pairs:
            tokens = [*vocabulary.encode(f"{text} {choice}")]
            begin = min(reading.shared(vocabulary.encode(text), tokens), len(tokens) - 1)
            spans.append(Span(tokens, begin, len(tokens)))
        answers = results.likelihoods(predictor.of_spans, spans)
    left = iter(answers)
    return [[next(left) for _ in question.choices] for question in questions]


def _divided(sums: Sequence[Sequence[float]], by: Sequence[Sequence[int]]) -> list[list[float]]:
    pairs = zip(sums, by, strict=True)
    return [[x / n for x, n in zip(of_one, sizes, strict=True)] for of_one, sizes in pairs]


def _accuracy(scores: Sequence[Sequence[float]], right: Sequence[int]) -> float:
    """The share of right choices with the highest score; one of k equal ones counts 1/k."""
    shares = []
    for of_one, number in zip(scores, right, strict=True):
        best = [n for n, score in enumerate(of_one) if score == max(of_one)]
        shares.append((number in best) / len(best))
    return float(np.mean(shares))
