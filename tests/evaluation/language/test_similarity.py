"""Cosines by TF-IDF are scikit-learn's, and rated pairs are read with and without names."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from t5x_like.evaluation.language import similarity
from t5x_like.evaluation.language.similarity import Rated
from t5x_like.evaluation.language.tf_idf import TfIdf, trigrams, words

TEXTS = ["A man plays a guitar.", "A man is playing", "the Cat sat", "a cat sat on the mat", "!"]
PAIRS = [(TEXTS[0], TEXTS[1]), (TEXTS[2], TEXTS[3]), (TEXTS[0], TEXTS[3]), (TEXTS[0], TEXTS[4])]


@pytest.mark.parametrize("terms", [words, trigrams])
def test_cosines_are_those_of_scikit_learn(terms) -> None:
    text = pytest.importorskip("sklearn.feature_extraction.text")
    theirs = text.TfidfVectorizer(analyzer=terms).fit(TEXTS)
    vectors = [theirs.transform(side) for side in zip(*PAIRS, strict=True)]
    want = np.asarray(vectors[0].multiply(vectors[1]).sum(axis=1)).ravel()
    np.testing.assert_allclose(TfIdf(terms, TEXTS).cosines(PAIRS), want, atol=1e-12)


def test_terms_are_words_and_runs_of_three_characters() -> None:
    assert words("It's 5 o'clock") == ["it", "s", "5", "o", "clock"]
    assert trigrams("Ab") == [" ab", "ab "]


def test_rated_pairs_have_names_of_columns_or_are_three_columns(tmp_path: Path) -> None:
    rated = [Rated("a, b", "c", 2.5), Rated("d", "e", 4.0)]
    unnamed, named = tmp_path / "a.csv", tmp_path / "b.tsv"
    unnamed.write_text('"a, b",c,2.5\nd,e,4\n')
    named.write_text("id\tsentence1\tsentence2\tscore\n1\ta, b\tc\t2.5\n2\td\te\t4\n")
    assert similarity.read(str(unnamed)) == similarity.read(str(named)) == rated
    named.write_text("sentence1\tsentence2\tscore\na\tb\thigh\n")
    with pytest.raises(ValueError, match="the rating of row 1 is 'high'"):
        similarity.read(str(named))
