"""EuroBERT computes what transformers' does, and its weights go there and back."""

from __future__ import annotations

from typing import Any

import encoders
import parity
import pytest
import torch

from t5x_like.interop.hugging_face import eurobert as family

SIZES = {
    "vocab_size": encoders.VOCAB,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 2,
    "rope_parameters": {"rope_type": "default", "rope_theta": 500.0},
    "attn_implementation": "eager",
    **dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id", "mask_token_id"), 0),
}
HEADS = ("ForMaskedLM", "ForSequenceClassification", "ForTokenClassification", "Model")
pytestmark = pytest.mark.slow


def theirs(head: str, **more: Any) -> Any:
    return parity.theirs("EuroBert", head, **SIZES | more)


def test_masked_language_model(tmp_path: Any) -> None:
    """States of all layers, logits and gradients, of rows with padding; two queries a key."""
    their_model = theirs("ForMaskedLM")
    model = encoders.same_predictions(their_model, tmp_path, padding=False, types=None)
    assert model.encoder.stack.layers.attention.key.kernel.shape == (2, 16, 8)


@pytest.mark.parametrize("pooling", ["bos", "mean", "late"])
def test_classes(pooling: str, tmp_path: Any) -> None:
    their_model = theirs("ForSequenceClassification", num_labels=3, classifier_pooling=pooling)
    encoders.same_labels(their_model, tmp_path, labels=3, types=None)


def test_tags(tmp_path: Any) -> None:
    encoders.same_labels(
        theirs("ForTokenClassification", num_labels=4), tmp_path, labels=4, types=None
    )


@pytest.mark.parametrize("head", HEADS)
def test_there_and_back(head: str, tmp_path: Any) -> None:
    their_model = theirs(head, classifier_pooling="mean")
    _, back = parity.there_and_back(their_model, tmp_path)
    inputs, _ = encoders.read(types=None)
    with torch.no_grad():
        parity.close(*(one(**inputs)[0] for one in (back, their_model)))


OLD = {
    "model_type": "eurobert",
    "rope_theta": 80_000,
    "rope_scaling": None,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "clf_pooling": "mean",
}


def test_old_keys_mean_what_new_ones_mean() -> None:
    new = {
        **{key: OLD[key] for key in ("model_type", "num_attention_heads", "num_key_value_heads")},
        "rope_parameters": {"rope_type": "default", "rope_theta": 80_000},
        "classifier_pooling": "mean",
        "head_dim": 192,
    }
    configs = [family.from_hf(one, "EuroBertForMaskedLM").args[0] for one in (OLD, new)]
    assert configs[0] == configs[1]
    assert (configs[0].theta, configs[0].num_kv_heads, configs[0].pooling) == (80_000.0, 2, "mean")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rope_parameters": {"rope_type": "yarn"}}, "of type 'yarn'"),
        ({"rope_scaling": {"type": "linear"}}, "rope_scaling"),
        ({"head_dim": 64}, "head_dim 64"),
        ({"tie_word_embeddings": True}, "tie_word_embeddings True"),
        ({"classifier_pooling": "max"}, "bos, mean or late, not 'max'"),
    ],
)
def test_what_is_not_read_says_so(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        family.from_hf(OLD | changes, "EuroBertForMaskedLM")


def test_a_head_that_transformers_lacks_is_refused() -> None:
    with pytest.raises(ValueError, match="ForTokenClassification"):
        family.from_hf(OLD, "EuroBertForQuestionAnswering")
