"""ALBERT computes what transformers' does, and its weights go there and back."""

import encoders
import jax
import numpy as np
import parity
import pytest
import torch
from flax import nnx

from t5x_like.interop.hugging_face import albert as family
from t5x_like.models import albert

SIZES = encoders.SIZES | {"embedding_size": 8}
SHAPES = {
    "one": {},
    "groups": {"num_hidden_groups": 2, "inner_group_num": 2, "hidden_act": "gelu"},
    "wide": {"embedding_size": 16},
}
HEADS = (
    "ForPreTraining",
    "ForMaskedLM",
    "ForSequenceClassification",
    "ForTokenClassification",
    "ForMultipleChoice",
    "ForQuestionAnswering",
    "Model",
)
pytestmark = pytest.mark.slow


def theirs(head, shape="one", **more):
    return parity.theirs("Albert", head, **SIZES | SHAPES[shape] | more)


@pytest.mark.parametrize("shape", SHAPES)
def test_pretraining_model(shape, tmp_path):
    their_model = theirs("ForPreTraining", shape)
    model = parity.ours_of(their_model, tmp_path)
    inputs, batch = encoders.read()
    batch, labels = encoders.masked(batch)
    order = np.arange(encoders.ROWS) % 2
    out = their_model(
        **inputs,
        labels=labels,
        sentence_order_label=torch.tensor(order),
        output_hidden_states=True,
        output_attentions=True,
    )
    parity.close(jax.jit(model.logits)(batch), out.prediction_logits)
    parity.close(jax.jit(model.sentence_logits)(batch), out.sop_logits)
    encoders.same_states(model.encoder, batch, out)
    parity.same_loss(model, batch | {"sentence_order_label": order}, their_model, out)


def test_masked_language_model(tmp_path):
    encoders.same_predictions(theirs("ForMaskedLM", "groups"), tmp_path)


def test_body_alone(tmp_path):
    encoders.same_body(theirs("Model"), tmp_path, pooled=True)


@encoders.each_label_head
def test_labels(head, labels, tmp_path):
    encoders.same_labels(theirs(head, num_labels=labels), tmp_path, labels=labels)


def test_answers(tmp_path):
    encoders.same_answers(theirs("ForQuestionAnswering"), tmp_path)


@pytest.mark.parametrize("head", HEADS)
def test_there_and_back(head, tmp_path):
    their_model = theirs(head, "groups", classifier_dropout_prob=0.2)
    encoders.same_there_and_back(their_model, tmp_path)


@pytest.mark.parametrize(
    "changes",
    [
        {"d_embedding": None},
        {"sharing": "none", "num_layers": 2, "inner_layers": 2},
        {"type_vocab_size": 0},
    ],
)
def test_what_is_theirs_in_other_words_is_written(changes, tmp_path):
    sizes = {"vocab_size": 50, "d_model": 16, "d_ff": 24, "num_heads": 4, "max_positions": 12}
    config = albert.Config(**sizes, **{"num_layers": 3, "init_std": 0.3, **changes})
    model = jax.jit(lambda: albert.Albert(config, rngs=nnx.Rngs(0)))()
    inputs, batch = encoders.read(types=config.type_vocab_size)
    with torch.no_grad():
        out = parity.exported(model, tmp_path)(**inputs)
    parity.close(jax.jit(model.logits)(batch), out.prediction_logits)
    parity.close(jax.jit(model.sentence_logits)(batch), out.sop_logits)


def test_what_has_no_counterpart_is_refused():
    config = albert.Config(sharing="ffn")
    with pytest.raises(ValueError, match="sharing is 'ffn'"):
        family.to_hf(nnx.eval_shape(lambda: albert.Albert(config, rngs=nnx.Rngs(0))))
    with pytest.raises(ValueError, match="AlbertForRegression is not read"):
        family.from_hf(SIZES, "AlbertForRegression")
    with pytest.raises(ValueError, match="only 'absolute' is read"):
        family.from_hf({"position_embedding_type": "relative_key"}, "AlbertModel")
