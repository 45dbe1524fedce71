"""RoBERTa computes what transformers' does, and its weights go there and back."""

import encoders
import jax
import parity
import pytest

from t5x_like.interop.hugging_face import bert as family

PAD = 1
SIZES = encoders.SIZES | {
    "max_position_embeddings": 14,
    "layer_norm_eps": 1e-5,
    "pad_token_id": PAD,
}
SWITCHES = {"published": {"type_vocab_size": 1}, "typed": {"type_vocab_size": 2}}
HEADS = (
    "ForMaskedLM",
    "ForSequenceClassification",
    "ForTokenClassification",
    "ForMultipleChoice",
    "ForQuestionAnswering",
    "Model",
)
pytestmark = pytest.mark.slow


def theirs(head, name="published", **more):
    return parity.theirs("Roberta", head, **SIZES, **SWITCHES[name], **more)


@pytest.mark.parametrize("name", SWITCHES)
def test_masked_language_model(name, tmp_path):
    types = SWITCHES[name]["type_vocab_size"]
    encoders.same_predictions(theirs("ForMaskedLM", name), tmp_path, pad=PAD, types=types)


def test_padding_on_the_left_moves_no_position(tmp_path):
    their_model = theirs("ForMaskedLM")
    model = parity.ours_of(their_model, tmp_path)
    inputs, batch = encoders.read(pad=PAD, types=None)
    flipped = {name: x.flip(1) for name, x in inputs.items()}
    out = their_model(**flipped)
    batch = {name: x[:, ::-1] for name, x in batch.items()}
    parity.close(jax.jit(model.logits)(batch), out.logits)


def test_body_and_pooled_state(tmp_path):
    encoders.same_body(theirs("Model"), tmp_path, pooled=True, pad=PAD, types=None)


@encoders.each_label_head
def test_labels(head, labels, tmp_path):
    their_model = theirs(head, num_labels=labels)
    encoders.same_labels(their_model, tmp_path, labels=labels, pad=PAD, types=None)


def test_answers(tmp_path):
    encoders.same_answers(theirs("ForQuestionAnswering"), tmp_path, pad=PAD, types=None)


@pytest.mark.parametrize("head", HEADS)
def test_there_and_back(head, tmp_path):
    their_model = theirs(head, classifier_dropout=0.2)
    encoders.same_there_and_back(their_model, tmp_path, pad=PAD, types=None)


def test_dropout_of_the_classifier_falls_before_and_after_its_dense_layer():
    given = {"model_type": "roberta", "classifier_dropout": 0.3, "hidden_dropout_prob": 0.1}
    _, head = family.from_hf(given, "RobertaForSequenceClassification").args
    assert head.keywords["dropout_rates"] == (0.3, 0.3)
    _, head = family.from_hf(given, "RobertaForMultipleChoice").args
    assert head.keywords["dropout_rates"] == (0.0, 0.1)
