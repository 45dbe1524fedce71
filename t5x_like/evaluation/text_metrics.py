"""Metrics of texts that a model writes: sacreBLEU, ROUGE, and labels that are words (T5).

A target of `bleu`, `rouge` and `written_spans` is a text, or several that are right. A prediction
that is none of the labels is wrong.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from t5x_like.data.labelled.named_tasks import NOT
from t5x_like.evaluation import label_metrics, span_metrics

Target = str | Sequence[str]

_UNREADABLE = -1.0
"""The number of a text that writes none, as in T5's code."""


def right_texts(target: Target) -> list[str]:
    """The texts of a target."""
    return [target] if isinstance(target, str) else [*target]


def bleu(targets: Sequence[Target], predictions: Sequence[str]) -> dict[str, float]:
    """BLEU of all texts together, 0 to 100, by sacreBLEU with its own tokens (13a)."""
    import sacrebleu

    references = itertools.zip_longest(*map(right_texts, targets))
    return {"bleu": sacrebleu.corpus_bleu([*predictions], [*map(list, references)]).score}


def rouge(targets: Sequence[Target], predictions: Sequence[str]) -> dict[str, float]:
    """The mean F of ROUGE-1, ROUGE-2 and ROUGE-L of summaries, 0 to 100, without a stemmer.

    ROUGE-L is that of whole summaries, whose sentences are lines (rougeLsum), as in T5's code. Of
    several targets the one with the highest F counts.
    """
    from rouge_score import rouge_scorer

    names = ("rouge1", "rouge2", "rougeLsum")
    scorer = rouge_scorer.RougeScorer(names)
    scores = [
        scorer.score_multi([*map(_lines, right_texts(target))], _lines(prediction))
        for target, prediction in zip(targets, predictions, strict=True)
    ]
    return {
        name: float(100 * np.mean([score[name].fmeasure for score in scores])) for name in names
    }


def _lines(text: str) -> str:
    return text.replace(" . ", " .\n")


def written_spans(targets: Sequence[Target], predictions: Sequence[str]) -> dict[str, float]:
    """SQuAD's exact match and F1 of answers, as shares, each for the nearest right answer."""
    pairs = [*zip(predictions, map(right_texts, targets), strict=True)]
    return {
        score.__name__: float(np.mean([span_metrics.nearest(score, *pair) for pair in pairs]))
        for score in (span_metrics.exact, span_metrics.f1)
    }


_DETERMINERS = frozenset(
    "a an few her his each every many much my our some that the their these this those which whose "
    "your".split()
)


def written_referent(targets: Sequence[str], predictions: Sequence[str]) -> dict[str, float]:
    """The share of candidates that are rightly accepted or rejected (T5, appendix B, for WSC).

    A target is a candidate for what a pronoun means, after `NOT` where it is a wrong one. It is
    accepted where its words hold those of the prediction or the other way round, without
    determiners, and both have an apostrophe or neither. An empty prediction is wrong.
    """
    right = []
    for target, prediction in zip(targets, predictions, strict=True):
        candidate = _content(target.removeprefix(NOT))
        words = _content(prediction)
        nested = candidate <= words or words <= candidate
        accepted = nested and ("'" in target) == ("'" in prediction)
        right.append(bool(words) and accepted != target.startswith(NOT))
    return {"accuracy": float(np.mean(right))}


def _content(text: str) -> set[str]:
    """The words of a text in lower case, without determiners."""
    return {*text.lower().split()} - _DETERMINERS


def written_mcc(targets: Sequence[str], predictions: Sequence[str]) -> dict[str, float]:
    """Matthews' correlation of labels that are words."""
    return {"matthews_correlation": label_metrics.matthews(targets, predictions)}


def written_f1(
    targets: Sequence[str], predictions: Sequence[str], *, positive: str
) -> dict[str, float]:
    """F1 of one of two labels that are words; a text that is neither is the other than its target.

    That is T5's `f1_score_with_invalid`.
    """
    from sklearn import metrics

    names = {*targets}
    gold = [target == positive for target in targets]
    said = [
        text == positive if text in names or text == positive else not right
        for text, right in zip(predictions, gold, strict=True)
    ]
    return {"f1": float(metrics.f1_score(gold, said, zero_division=0))}


def written_numbers(targets: Sequence[str], predictions: Sequence[str]) -> dict[str, float]:
    """The correlations of Pearson and of Spearman of written numbers.

    A text that is no number counts as -1 (T5). Both are nan where one side is constant.
    """
    from scipy import stats

    pair = [np.array([_number(text) for text in side]) for side in (targets, predictions)]
    if any(np.ptp(side) == 0 for side in pair):
        return {"pearson": float("nan"), "spearman": float("nan")}
    return {
        "pearson": float(stats.pearsonr(*pair).statistic),
        "spearman": float(stats.spearmanr(*pair).statistic),
    }


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        return _UNREADABLE
    return value if math.isfinite(value) else _UNREADABLE


METRICS = (
    *(bleu, rouge, written_spans, written_referent),
    *(written_mcc, written_f1, written_numbers),
)
"""The metrics that objectives may name, as "written_f1:equivalent" where one has an argument."""
