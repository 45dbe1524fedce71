"""What `predict` prints says which answer is whose, in one form for all kinds of answers."""

import json

import pytest

from t5x_like.cli.predict import readable

BLANK = [
    {"token": "the", "probability": 0.51, "begins_word": True},
    {"token": ",", "probability": 0.25, "begins_word": False},
]
CASES = {
    "several answers": (
        {"inputs": "2+2"},
        {"predictions": ["4", "5"], "scores": [-0.25, -1.5]},
        "2+2\n  1. 4  (-0.250)\n  2. 5  (-1.500)",
    ),
    "one answer": ({"inputs": "2+2"}, {"prediction": "4"}, "4"),
    "guesses": (
        {"inputs": "in [MASK] sea"},
        {"filled": "in the sea", "blanks": [BLANK]},
        'in the sea\n  " the" 0.510, "," 0.250',
    ),
    "classes": (
        {"inputs": "good"},
        {"label": "positive", "probabilities": {"negative": 0.0123, "positive": 0.987654321}},
        "good\n  positive 0.988, negative 0.012",
    ),
    "ordered classes": (
        {"inputs": "so so"},
        {"label": "fair", "probabilities": {"poor": 0.4, "fair": 0.25, "good": 0.35}},
        "so so\n  fair (the median): poor 0.400, good 0.350, fair 0.250",
    ),
    "tags": (
        {"inputs": "Ada lives there"},
        {"words": ["Ada", "lives", "there"], "tags": ["B-PER", "O", None]},
        "Ada/B-PER lives/O there/-",
    ),
    "held-out guesses": (
        {"inputs": "[MASK] b [MASK]", "original": "a b c"},
        {"filled": "the b the", "blanks": [BLANK[:1], BLANK]},
        '  text:  [MASK] b [MASK]\n  fills: " the" 0.510 | " the" 0.510, "," 0.250\n'
        "  truth: a b c\n",
    ),
    "held-out spans": (
        {"inputs": "<extra_id_0> b", "original": "a b"},
        {"filled": "x b", "blanks": ["x"]},
        "  text:  <extra_id_0> b\n  fills: x\n  truth: a b\n",
    ),
    "a held-out continuation": (
        {"inputs": "a", "original": "b"},
        {"prediction": "c"},
        "  text:  a\n  says:  c\n  truth: b\n",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_predictions_are_lines_for_people(case: str) -> None:
    record, found, lines = CASES[case]
    assert readable(record, found) == lines


def test_the_rest_is_json() -> None:
    record, found = {"inputs": "é"}, {"log_likelihood": -1.0, "target_tokens": 1}
    assert json.loads(readable(record, found)) == record | found
