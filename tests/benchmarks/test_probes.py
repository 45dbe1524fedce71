"""Linear probes: their data, where words are among tokens, and their scores."""

from __future__ import annotations

import gzip

import numpy as np
import probe_data
import probes
import pytest

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

"""


@pytest.fixture
def folder(tmp_path):
    for name in ("glue_sst2", "glue_cola", "ud_english_ewt"):
        (tmp_path / name).mkdir()
    (tmp_path / "glue_sst2/dev.tsv").write_text('sentence\tlabel\na "fine film \t1\ndull\t0\n')
    (tmp_path / "glue_cola/in_domain_dev.tsv").write_text("a\t1\t\tShe left.\n")
    packed = tmp_path / "glue_cola/out_of_domain_dev.tsv.gz"
    packed.write_bytes(gzip.compress(b"b\t0\t*\tLeft she.\n"))
    (tmp_path / "ud_english_ewt/en_ewt-ud-dev.conllu").write_text(CONLLU)
    return tmp_path


def test_sentences_and_labels_are_read_packed_or_not(folder):
    sst2, cola = probe_data.load_sst2(folder, "dev"), probe_data.load_cola(folder, "dev")
    assert (sst2.texts, sst2.labels.tolist()) == (['a "fine film ', "dull"], [1, 0])
    assert (cola.texts, cola.labels.tolist()) == (["She left.", "Left she."], [1, 0])


def test_words_of_contractions_are_joined_and_those_left_out_of_the_text_are_not_read(folder):
    (sentence,) = probe_data.load_tagged(folder, "dev")
    assert sentence.words == ["I", "do", "n't", "go", ",", "now"]
    assert sentence.tags == ["PRON", "AUX", "PART", "VERB", "PUNCT", "ADV"]
    assert sentence.joined == [False, False, True, False, True, False]


def test_a_missing_or_foreign_file_is_named_with_what_it_should_be(folder):
    with pytest.raises(FileNotFoundError, match=r"glue_sst2/train\.tsv is missing.*SST-2"):
        probe_data.load_sst2(folder, "train")
    (folder / "glue_cola/in_domain_train.tsv").write_text("sentence\tlabel\n")
    with pytest.raises(ValueError, match=r"in_domain_train\.tsv, row 1.*CoLA"):
        probe_data.load_cola(folder, "train")


def test_subsamples_are_fixed_and_keep_labels_with_their_texts():
    labelled = probe_data.Labelled([str(i) for i in range(50)], np.arange(50))
    few = probe_data.subsample(labelled, 20)
    assert [int(text) for text in few.texts] == few.labels.tolist()
    assert few.labels.tolist() == probe_data.subsample(labelled, 20).labels.tolist()
    tagged = [probe_data.Tagged(["a"] * n) for n in range(1, 20)]
    count = sum(len(sentence.words) for sentence in probe_data.some_words(tagged, 40))
    assert 40 <= count < 60


@pytest.mark.parametrize(("kind", "size"), [("wordpiece", 150), ("unigram", 50), ("byte_bpe", 330)])
def test_each_word_is_found_at_its_first_piece(tmp_path, kind, size):
    recipe = vocabulary_recipe.Recipe(kind=kind, size=size, character_coverage=1.0)
    path = tmp_path / f"{kind}.model"
    vocabulary = loading.load(vocabulary_recipe.train(TEXT * 10, path, recipe, progress=False))
    words = ["the", "quick", "dog", ",", "talking", "animals", "."]
    sentence = probe_data.Tagged(words, ["X"] * 7, [False, False, False, True, False, False, True])
    tokens, firsts = probe_data.Aligner(vocabulary)(sentence)
    assert tokens.tolist() == list(vocabulary.encode("the quick dog, talking animals."))
    pieces = ["".join(map(vocabulary.piece, part)) for part in np.split(tokens, firsts[1:])]
    assert [piece.replace("▁", "") for piece in pieces] == words


def test_a_word_that_begins_inside_a_token_has_that_token(folder):
    class Chunks:
        def encode(self, text):
            return [len(chunk) for chunk in text.split()]

    (sentence,) = probe_data.load_tagged(folder, "dev")
    tokens, firsts = probe_data.Aligner(Chunks())(sentence)
    assert tokens.tolist() == [1, 5, 3, 3]
    assert firsts.tolist() == [0, 1, 1, 2, 2, 3]


def test_scores_agree_with_their_definitions():
    truth = np.array([1, 1, 1, 0, 0, 1])
    predicted = np.array([1, 0, 1, 0, 1, 1])
    # 3 true positives, 1 true negative, 1 false positive, 1 false negative
    assert probes.matthews(predicted, truth) == pytest.approx((3 * 1 - 1 * 1) / 8)
    assert probes.matthews(np.ones(6), truth) == 0
    scores = np.array([0.9, 0.5, 0.7, 0.5, 0.8, 0.1])
    pairs = [(a > b) + 0.5 * (a == b) for a in scores[truth == 1] for b in scores[truth == 0]]
    assert probes.roc_area(scores, truth) == pytest.approx(np.mean(pairs))


def test_a_classifier_finds_a_direction_among_features_of_different_scales():
    pytest.importorskip("sklearn")
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 5)).astype(np.float32) * [1, 1e3, 1, 1e-3, 0]
    labels = (x[:, 3] > 0).astype(int)
    model = probes.fit(x[:200], labels[:200])
    assert model.score(x[200:], labels[200:]) > 0.9
    # A class that the model has never seen has no likelihood.
    few = np.array([0, 1, 7])
    assert probes.log_likelihood(model, x[:3], few) < 0
