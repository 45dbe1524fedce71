"""ModernBERT's decoder computes what transformers' does, and its weights go there and back."""

from __future__ import annotations

import functools
from typing import Any

import decoders
import encoders
import jax
import jax.numpy as jnp
import numpy as np
import parity
import pytest
import torch

from t5x_like.interop.hugging_face import modernbert as family

LENGTH = 24
SIZES = {
    "vocab_size": encoders.VOCAB,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_attention_heads": 4,
    "num_hidden_layers": 4,
    "local_attention": 8,  # a token sees itself and three before it
    "rope_parameters": {
        "full_attention": {"rope_type": "default", "rope_theta": 5000.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
    },
    "attn_implementation": "eager",
    **dict.fromkeys(("pad_token_id", "cls_token_id", "sep_token_id"), 0),
    **dict.fromkeys(("bos_token_id", "eos_token_id"), 0),
}
HEADS = ("ForCausalLM", "ForSequenceClassification", "Model")
pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _long_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that are longer than a window."""
    monkeypatch.setattr(decoders, "LENGTH", LENGTH)
    monkeypatch.setattr(encoders, "LENGTH", LENGTH)


def theirs(head: str, **more: Any) -> Any:
    return parity.theirs("ModernBertDecoder", head, **SIZES | more)


def test_language_model(tmp_path: Any) -> None:
    """Logits, states and attention of all layers, and gradients."""
    their_model = theirs("ForCausalLM")
    model = parity.ours_of(their_model, tmp_path)
    assert model.config.window == 3
    inputs, batch, counts = decoders.read()
    batch = decoders.with_targets(batch, counts)
    labels = torch.tensor(np.where(counts, inputs["input_ids"], -100))
    out = their_model(**inputs, labels=labels, output_hidden_states=True, output_attentions=True)
    decoders.same_states(model, batch, out, counts)
    parity.same_loss(model, batch, their_model, out)


def test_decoding_one_by_one(tmp_path: Any) -> None:
    """Of prompts of two lengths; the shorter one has padding before it."""
    their_model = theirs("ForCausalLM")
    model = parity.ours_of(their_model, tmp_path)
    tokens = np.random.default_rng(5).integers(5, encoders.VOCAB, (2, 14))
    counts = np.ones_like(tokens)
    counts[1, :2] = 0
    want = [
        their_model(torch.tensor(row[None, start:])).logits[0]
        for row, start in zip(tokens, (0, 2), strict=True)
    ]
    prompts = {"decoder_input_tokens": tokens[:, :6], "decoder_segment_ids": counts[:, :6]}
    prefill = jax.jit(functools.partial(model.prefill, max_length=14))
    cache = prefill({name: jnp.asarray(x, jnp.int32) for name, x in prompts.items()})
    step = jax.jit(type(model).decode_step)
    for position in range(5, 14):
        logits, cache = step(
            model, cache, jnp.asarray(tokens[:, position], jnp.int32), jnp.int32(position)
        )
        for found, whole, start in zip(logits, want, (0, 2), strict=True):
            parity.close(found, whole[position - start])


def test_packed_texts_are_read_as_alone(tmp_path: Any) -> None:
    model = parity.ours_of(theirs("ForCausalLM"), tmp_path)
    tokens = np.random.default_rng(0).integers(5, encoders.VOCAB, (1, LENGTH))
    packed = {
        "decoder_input_tokens": tokens,
        "decoder_segment_ids": np.array([[1] * 9 + [2] * 15]),
        "decoder_positions": np.array([[*range(9), *range(15)]]),
    }
    whole = model.logits({name: jnp.asarray(x, jnp.int32) for name, x in packed.items()})
    for part in (slice(0, 9), slice(9, LENGTH)):
        alone = model.logits({"decoder_input_tokens": jnp.asarray(tokens[:, part], jnp.int32)})
        np.testing.assert_allclose(whole[:, part], alone, atol=2e-5)


def test_classes(tmp_path: Any) -> None:
    their_model = theirs("ForSequenceClassification", num_labels=3)
    encoders.same_labels(their_model, tmp_path, labels=3, types=None)


@pytest.mark.parametrize("head", HEADS)
def test_there_and_back(head: str, tmp_path: Any) -> None:
    their_model = theirs(head, classifier_dropout=0.3)
    _, back = parity.there_and_back(their_model, tmp_path)
    inputs, _, counts = decoders.read()
    with torch.no_grad():
        outputs = [one(**inputs)[0] for one in (back, their_model)]
    parity.close(*outputs, counts if outputs[0].shape[:2] == counts.shape else None)


def test_the_width_of_a_window_is_what_transformers_takes() -> None:
    """`sliding_window` where it is given, which transformers writes, or else half of the other."""
    config = {"model_type": "modernbert-decoder", "num_hidden_layers": 4, "local_attention": 8}
    for more, window in (({}, 3), ({"sliding_window": 10}, 9)):
        ours = family.from_hf(config | more, "ModernBertDecoderForCausalLM").args[0]
        theirs_ = parity.transformers.ModernBertDecoderConfig(**config | more)
        assert ours.window == window == theirs_.sliding_window - 1


def test_a_head_that_transformers_lacks_is_refused() -> None:
    config = {"model_type": "modernbert-decoder", "num_hidden_layers": 4}
    with pytest.raises(ValueError, match="not a ModernBertDecoder with a head"):
        family.from_hf(config, "ModernBertDecoderForTokenClassification")
