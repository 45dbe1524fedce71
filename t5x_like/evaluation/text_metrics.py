"""Metrics of texts that a model writes: sacreBLEU, ROUGE, and labels that are words (T5).

Each compares a prediction with one target. A prediction that is none of the labels is wrong.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

_UNREADABLE = -1.0
"""The number of a text that writes none, as in T5's code."""


def bleu(targets: Sequence[str], predictions: Sequence[str]) -> dict[str, float]:
    """BLEU of all texts together, 0 to 100, by sacreBLEU with its own tokens (13a)."""
    import sacrebleu

    return {"bleu": sacrebleu.corpus_bleu([*predictions], [[*targets]]).score}


def rouge(targets: Sequence[str], predictions: Sequence[str]) -> dict[str, float]:
    """The mean F of ROUGE-1, ROUGE-2 and ROUGE-L of summaries, 0 to 100, without a stemmer.

    ROUGE-L is that of whole summaries, whose sentences are lines (rougeLsum), as in T5's code.
    """
    from rouge_score import rouge_scorer

    names = ("rouge1", "rouge2", "rougeLsum")
    scorer = rouge_scorer.RougeScorer(names)
    sides = [[text.replace(" . ", " .\n") for text in side] for side in (targets, predictions)]
    scores = [scorer.score(*pair) for pair in zip(*sides, strict=True)]
    return {
        name: float(100 * np.mean([score[name].fmeasure for score in scores])) for name in names
    }


def written_mcc(targets: Sequence[str], predictions: Sequence[str]) -> dict[str, float]:
    """Matthews' correlation of labels that are words; 0 where one side is constant."""
    from sklearn import metrics

    return {"matthews_correlation": float(metrics.matthews_corrcoef([*targets], [*predictions]))}


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


METRICS = (bleu, rouge, written_mcc, written_f1, written_numbers)
"""The metrics that objectives may name, as "written_f1:equivalent" where one has an argument."""
