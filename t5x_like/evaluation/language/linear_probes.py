"""Logistic regression on features, with scikit-learn: what a linear probe can read in them.

Suffixes: N examples, F features, C classes.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

PENALTIES = (0.01, 0.1, 1.0)
"""Values of C that are tried, the inverse of the penalty."""


def fit(x_NF: np.ndarray, y_N: np.ndarray) -> Any:
    """A scikit-learn model: standardised features, logistic regression.

    Its penalty is the one that gives a held-out tenth of the examples the highest likelihood.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    order = np.random.default_rng(0).permutation(len(y_N))
    held_out, rest = np.split(order, [len(order) // 10])

    def fit(penalty: float, chosen: np.ndarray) -> Any:
        regression = LogisticRegression(C=penalty, max_iter=300)
        return make_pipeline(StandardScaler(), regression).fit(x_NF[chosen], y_N[chosen])

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        likelihoods = [
            log_likelihood(fit(penalty, rest), x_NF[held_out], y_N[held_out])
            for penalty in PENALTIES
        ]
        return fit(PENALTIES[int(np.argmax(likelihoods))], order)


def log_likelihood(model: Any, x_NF: np.ndarray, y_N: np.ndarray) -> float:
    """The mean over the examples whose class the model knows."""
    known = np.isin(y_N, model.classes_)
    log_p_NC = model.predict_log_proba(x_NF[known])
    columns = np.searchsorted(model.classes_, y_N[known])
    return float(log_p_NC[np.arange(len(columns)), columns].mean())
