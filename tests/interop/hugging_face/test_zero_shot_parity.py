"""Classes that were not learned are those of the pipeline of transformers."""

import pytest
from stored_models import SIZES, stored

import t5x_like as t5x

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.slow


def test_classes_that_were_not_learned_are_those_of_zero_shot(vocabularies, documents, tmp_path):
    names = dict(enumerate(("contradiction", "neutral", "entailment")))
    labels = {"id2label": names, "label2id": {name: n for n, name in names.items()}}
    cls = "BertForSequenceClassification"
    stored(tmp_path, "bert", cls, "BertConfig", vocabularies["wordpiece"], **SIZES, **labels)
    model = t5x.load(tmp_path)
    ask = transformers.pipeline("zero-shot-classification", str(tmp_path))
    texts = [" ".join(document.split()[:12]) for document in documents[:3]]
    classes = ["code", "text about time", "a parser"]
    how = {"candidate_labels": classes, "hypothesis_template": "This is {}."}
    for text, one in zip(texts, model.predict(texts, batch_size=2, **how), strict=True):
        want = ask(text, **how)
        assert [*one["probabilities"]] == want["labels"]
        assert [*one["probabilities"].values()] == pytest.approx(want["scores"], abs=1e-5)
        assert one["label"] == want["labels"][0]
    with pytest.raises(ValueError, match="and there are two of candidate_labels at least"):
        model.predict(texts, candidate_labels=["code"])
    with pytest.raises(
        ValueError, match="calibrated is for models that answer with classes, whose"
    ):
        model.predict(texts, calibrated=True)
