"""ModernBERT computes what transformers' does, and its weights go there and back."""

from __future__ import annotations

import dataclasses
from typing import Any

import encoders
import jax
import jax.numpy as jnp
import numpy as np
import parity
import pytest
import torch
from flax import nnx

from t5x_like.interop.hugging_face import modernbert as family
from t5x_like.models import modernbert

LENGTH = 40
SIZES = {
    "vocab_size": encoders.VOCAB,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_attention_heads": 4,
    "num_hidden_layers": 4,
    "local_attention": 8,
    "attn_implementation": "eager",
    **dict.fromkeys(("pad_token_id", "cls_token_id", "sep_token_id"), 0),
    **dict.fromkeys(("bos_token_id", "eos_token_id"), 0),
}
HEADS = (
    *("ForMaskedLM", "ForSequenceClassification", "ForTokenClassification"),
    *("ForMultipleChoice", "ForQuestionAnswering", "Model"),
)
pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _long_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that are longer than a window on both sides of a token."""
    monkeypatch.setattr(encoders, "LENGTH", LENGTH)


def theirs(head: str, **more: Any) -> Any:
    return parity.theirs("ModernBert", head, **SIZES | more)


def test_masked_language_model(tmp_path: Any) -> None:
    """States of all layers, logits and gradients, of rows with padding on the right."""
    encoders.same_predictions(theirs("ForMaskedLM"), tmp_path, padding=False, types=None)


def test_thetas_are_those_of_their_layers(tmp_path: Any) -> None:
    model = parity.ours_of(theirs("ForMaskedLM"), tmp_path)
    config = model.config
    swapped = dataclasses.replace(
        config, global_theta=config.local_theta, local_theta=config.global_theta
    )
    graph = nnx.graphdef(nnx.eval_shape(lambda: modernbert.ModernBert(swapped, rngs=nnx.Rngs(0))))
    other = nnx.merge(graph, parity.params_of(model))
    _, batch = encoders.read(types=None)
    logits, others = (jax.jit(one.logits)(batch) for one in (model, other))
    assert np.abs(np.asarray(logits - others))[encoders.counted(batch)].max() > 1e-3


def test_packed_texts_are_read_as_alone(tmp_path: Any) -> None:
    model = parity.ours_of(theirs("ForMaskedLM"), tmp_path)
    tokens = np.random.default_rng(0).integers(5, encoders.VOCAB, (1, LENGTH))
    packed = {
        "encoder_input_tokens": jnp.asarray(tokens),
        "encoder_attention_mask": jnp.ones((1, LENGTH), jnp.int32),
        "encoder_segment_ids": jnp.asarray([[1] * 17 + [2] * 23]),
        "encoder_positions": jnp.asarray([[*range(17), *range(23)]]),
    }
    whole = np.asarray(model.logits(packed))[0]
    for part in (slice(0, 17), slice(17, LENGTH)):
        alone = {name: packed[name][:, part] for name in list(packed)[:2]}
        np.testing.assert_allclose(whole[part], model.logits(alone)[0], atol=2e-5)


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_classes(pooling: str, tmp_path: Any) -> None:
    their_model = theirs("ForSequenceClassification", num_labels=3, classifier_pooling=pooling)
    encoders.same_labels(their_model, tmp_path, labels=3, types=None)


@pytest.mark.parametrize(
    ("head", "labels"), [("ForTokenClassification", 4), ("ForMultipleChoice", 2)]
)
def test_labels(head: str, labels: int, tmp_path: Any) -> None:
    encoders.same_labels(theirs(head, num_labels=labels), tmp_path, labels=labels, types=None)


def test_answers(tmp_path: Any) -> None:
    their_model = theirs("ForQuestionAnswering")
    model = parity.ours_of(their_model, tmp_path)
    inputs, batch = encoders.read(types=None)
    parity.same_ends(jax.jit(model.logits)(batch), their_model(**inputs), encoders.counted(batch))


@pytest.mark.parametrize("head", HEADS)
def test_there_and_back(head: str, tmp_path: Any) -> None:
    their_model = theirs(head, classifier_dropout=0.3, classifier_pooling="mean")
    _, back = parity.there_and_back(their_model, tmp_path)
    inputs, batch = encoders.read(
        alternatives=3 if head == "ForMultipleChoice" else None, types=None
    )
    with torch.no_grad():
        outputs = [one(**inputs)[0] for one in (back, their_model)]
    # They attend in two ways, which differ where a query is padding.
    where = (
        encoders.counted(batch) if outputs[0].shape[:2] == encoders.counted(batch).shape else None
    )
    parity.close(*outputs, where)


OLD = {
    "model_type": "modernbert",
    "global_attn_every_n_layers": 2,
    "global_rope_theta": 80_000.0,
    "local_rope_theta": 500.0,
    "local_attention": 64,
    "num_hidden_layers": 5,
    "classifier_pooling": "mean",
}


def test_old_keys_mean_what_new_ones_mean() -> None:
    new = {
        **OLD,
        "layer_types": ["full_attention", "sliding_attention"] * 2 + ["full_attention"],
        "rope_parameters": {
            "full_attention": {"rope_type": "default", "rope_theta": 80_000.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 500.0},
        },
    }
    for name in ("global_attn_every_n_layers", "global_rope_theta", "local_rope_theta"):
        del new[name]
    configs = [family.from_hf(one, "ModernBertForMaskedLM").args[0] for one in (OLD, new)]
    assert configs[0] == configs[1]
    assert (configs[0].global_every, configs[0].window, configs[0].local_theta) == (2, 32, 500.0)
    abstract = nnx.eval_shape(lambda: modernbert.ModernBert(configs[0], rngs=nnx.Rngs(0)))
    written = family.to_hf(abstract)
    assert written is not None
    assert {**written, **OLD, **new} == written  # both are written


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"layer_types": ["sliding_attention"] * 5}, "every nth of its 5 layers"),
        ({"rope_parameters": {"full_attention": {"rope_type": "yarn"}}}, "of type 'yarn'"),
        ({"norm_bias": True}, "norm_bias True"),
        ({"classifier_activation": "relu"}, "'relu' in heads"),
    ],
)
def test_what_is_not_read_says_so(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        family.from_hf(OLD | changes, "ModernBertForMaskedLM")


def test_random_weights_are_those_of_transformers() -> None:
    """Their spread and what is drawn smaller, within a few percent."""
    config = modernbert.Config(vocab_size=200, d_model=64, d_ff=96, num_heads=4, num_layers=6)
    model = modernbert.ModernBert(config, rngs=nnx.Rngs(0))
    torch.manual_seed(0)
    sizes = SIZES | {"vocab_size": 200, "hidden_size": 64, "intermediate_size": 96}
    sizes |= {"num_hidden_layers": 6}
    made = parity.transformers.ModernBertForMaskedLM(
        parity.transformers.ModernBertConfig(**sizes)
    ).state_dict()
    ours = dict(parity.mapping.tensors(parity.params_of(model), model, family.names(model)))
    for name, theirs_ in made.items():
        if name in ours:
            std = np.std(np.asarray(theirs_))
            np.testing.assert_allclose(np.std(ours[name]), std, rtol=0.06, atol=1e-9)
