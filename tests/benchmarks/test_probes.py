"""Linear probes: their data and their scores."""

from __future__ import annotations

import gzip

import numpy as np
import probe_data
import probes
import pytest

CONLLU = "1\tI\ti\tPRON" + "\t_" * 6 + "\n2\t.\t.\tPUNCT" + "\t_" * 6 + "\n\n"


@pytest.fixture
def folder(tmp_path):
    for name in ("glue_sst2", "glue_cola", "ud_english_ewt"):
        (tmp_path / name).mkdir()
    (tmp_path / "glue_sst2/dev.tsv").write_text('sentence\tlabel\na "fine film \t1\ndull\t0\n')
    (tmp_path / "glue_cola/in_domain_dev.tsv").write_text("a\t1\t\tShe left.\n")
    packed = tmp_path / "glue_cola/out_of_domain_dev.tsv.gz"
    packed.write_bytes(gzip.compress(b"b\t0\t*\tLeft she.\n"))
    words = tmp_path / "ud_english_ewt/en_ewt-ud-dev.conllu.gz"
    words.write_bytes(gzip.compress(CONLLU.encode()))
    return tmp_path


def test_sentences_and_labels_are_read_packed_or_not(folder):
    sst2, cola = probe_data.load_sst2(folder, "dev"), probe_data.load_cola(folder, "dev")
    assert (sst2.texts, sst2.labels.tolist()) == (['a "fine film ', "dull"], [1, 0])
    assert (cola.texts, cola.labels.tolist()) == (["She left.", "Left she."], [1, 0])


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


def test_tagged_words_are_read_packed_or_not(folder):
    (sentence,) = probe_data.load_tagged(folder, "dev")
    assert sentence.tags == ["PRON", "PUNCT"]
    with pytest.raises(FileNotFoundError, match=r"ewt-ud-train\.conllu is missing.*Treebank"):
        probe_data.load_tagged(folder, "train")


def test_scores_agree_with_their_definitions():
    truth = np.array([1, 1, 1, 0, 0, 1])
    predicted = np.array([1, 0, 1, 0, 1, 1])
    # 3 true positives, 1 true negative, 1 false positive, 1 false negative
    assert probes.matthews(predicted, truth) == pytest.approx((3 * 1 - 1 * 1) / 8)
    assert probes.matthews(np.ones(6), truth) == 0
    scores = np.array([0.9, 0.5, 0.7, 0.5, 0.8, 0.1])
    pairs = [(a > b) + 0.5 * (a == b) for a in scores[truth == 1] for b in scores[truth == 0]]
    assert probes.roc_area(scores, truth) == pytest.approx(np.mean(pairs))
