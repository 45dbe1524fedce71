"""Tagged words are read, found among tokens, and classified."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from t5x_like.evaluation.language import linear_probes, tagged_words
from t5x_like.evaluation.language.tagged_words import Aligner, Tagged
from t5x_like.vocabularies import loading
from t5x_like.vocabularies.learning import vocabulary_recipe

TEXT = [
    "The quick brown fox jumps over the lazy dog, while walking in the park.",
    "She was talking and walking, and he was reading a book about talking animals.",
]
CONLLU = """\
# text = I don't go, now
1\tI\ti\tPRON\t_\t_\t_\t_\t_\t_
2-3\tdon't\t_\t_\t_\t_\t_\t_\t_\t_
2\tdo\tdo\tAUX\t_\t_\t_\t_\t_\t_
3\tn't\tnot\tPART\t_\t_\t_\t_\t_\t_
3.1\tever\tever\tADV\t_\t_\t_\t_\t_\t_
4\tgo\tgo\tVERB\t_\t_\t_\t_\t_\tSpaceAfter=No
5\t,\t,\tPUNCT\t_\t_\t_\t_\t_\t_
6\tnow\tnow\tADV\t_\t_\t_\t_\t_\t_

# text = No
1\tNo\tno\tINTJ\t_\t_\t_\t_\t_\t_

"""


@pytest.fixture
def sentences(tmp_path: Path) -> list[Tagged]:
    path = tmp_path / "dev.conllu.gz"
    path.write_bytes(gzip.compress(CONLLU.encode()))
    return tagged_words.read(str(path))


def test_words_of_contractions_are_joined_and_those_left_out_of_the_text_are_not_read(sentences):
    sentence, other = sentences
    assert sentence.words == ["I", "do", "n't", "go", ",", "now"]
    assert sentence.tags == ["PRON", "AUX", "PART", "VERB", "PUNCT", "ADV"]
    assert sentence.joined == [False, False, True, False, True, False]
    assert (other.words, other.tags) == (["No"], ["INTJ"])


def test_a_line_with_other_columns_is_named(tmp_path):
    (tmp_path / "a.conllu").write_text("1\ta\tDET\n")
    with pytest.raises(ValueError, match=r"a\.conllu:1 is not of CoNLL-U"):
        tagged_words.read(str(tmp_path / "a.conllu"))


def test_some_words_are_whole_sentences():
    tagged = [Tagged(["a"] * n) for n in range(1, 20)]
    count = sum(len(sentence.words) for sentence in tagged_words.some_words(tagged, 40))
    assert 40 <= count < 60


@pytest.mark.parametrize(("kind", "size"), [("wordpiece", 150), ("unigram", 50), ("byte_bpe", 330)])
def test_each_word_is_found_at_its_first_piece(tmp_path, kind, size):
    recipe = vocabulary_recipe.Recipe(kind=kind, size=size, character_coverage=1.0)
    path = tmp_path / f"{kind}.model"
    vocabulary = loading.load(vocabulary_recipe.train(TEXT * 10, path, recipe, progress=False))
    words = ["the", "quick", "dog", ",", "talking", "animals", "."]
    sentence = Tagged(words, ["X"] * 7, [False, False, False, True, False, False, True])
    tokens, firsts = Aligner(vocabulary)(sentence)
    assert tokens.tolist() == list(vocabulary.encode("the quick dog, talking animals."))
    pieces = ["".join(map(vocabulary.piece, part)) for part in np.split(tokens, firsts[1:])]
    assert [piece.replace("▁", "") for piece in pieces] == words


def test_a_word_that_begins_inside_a_token_has_that_token(sentences):
    class Chunks:
        def encode(self, text):
            return [len(chunk) for chunk in text.split()]

    sentence, _ = sentences
    tokens, firsts = Aligner(Chunks())(sentence)
    assert tokens.tolist() == [1, 5, 3, 3]
    assert firsts.tolist() == [0, 1, 1, 2, 2, 3]


def test_a_classifier_finds_a_direction_among_features_of_different_scales():
    pytest.importorskip("sklearn")
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 5)).astype(np.float32) * [1, 1e3, 1, 1e-3, 0]
    labels = (x[:, 3] > 0).astype(int)
    model = linear_probes.fit(x[:200], labels[:200])
    assert model.score(x[200:], labels[200:]) > 0.9
    # A class that the model has never seen has no likelihood.
    few = np.array([0, 1, 7])
    assert linear_probes.log_likelihood(model, x[:3], few) < 0
