"""Longformer computes what transformers' does, and its weights go there and back."""

from __future__ import annotations

from typing import Any

import encoders
import jax
import jax.numpy as jnp
import numpy as np
import parity
import pytest
import torch

from t5x_like.core.abilities import Want
from t5x_like.interop.hugging_face import longformer as family
from t5x_like.models import longformer

PAD, SEPARATOR, LENGTH = 1, 2, 24
SIZES = {
    **{name: value for name, value in encoders.SIZES.items() if name != "attn_implementation"},
    "max_position_embeddings": LENGTH + 2,
    "type_vocab_size": 1,
    "pad_token_id": PAD,
    "layer_norm_eps": 1e-5,
    "num_hidden_layers": 2,
    "attention_window": [4, 8],
}
HEADS = (
    *("ForMaskedLM", "ForSequenceClassification", "ForTokenClassification"),
    *("ForMultipleChoice", "ForQuestionAnswering", "Model"),
)
pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that are longer than the windows."""
    monkeypatch.setattr(encoders, "LENGTH", LENGTH)


def theirs(head: str, **more: Any) -> Any:
    return parity.theirs("Longformer", head, **SIZES | more)


def questions(*shape: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Rows <s> question </s> </s> text </s>, of different lengths; the first is full."""
    rng = np.random.default_rng(5)
    tokens = rng.integers(5, encoders.VOCAB, (*shape, LENGTH))
    lengths, asked = rng.integers(14, LENGTH + 1, shape), rng.integers(2, 8, shape)
    lengths.flat[0] = LENGTH
    places = np.arange(LENGTH)
    for first in (asked, asked + 1, lengths - 1):
        tokens[places == first[..., None]] = SEPARATOR
    counts = (places < lengths[..., None]).astype(int)
    tokens = np.where(counts, tokens, PAD)
    batch = {"encoder_input_tokens": tokens, "encoder_attention_mask": counts}
    return (
        {"input_ids": torch.tensor(tokens), "attention_mask": torch.tensor(counts)},
        {name: jnp.asarray(x, jnp.int32) for name, x in batch.items()},
    )


@pytest.mark.parametrize("chosen", [False, True])
def test_masked_language_model(chosen: bool, tmp_path: Any) -> None:
    """Logits and states, with padding; with global tokens or without. Gradients of the former."""
    their_model = theirs("ForMaskedLM")
    model = parity.ours_of(their_model, tmp_path)
    inputs, batch = encoders.read(pad=PAD, types=None)
    batch, labels = encoders.masked(batch)
    if chosen:
        mask = np.zeros((encoders.ROWS, LENGTH), int)
        mask[0, [0, 11, 12, 23]] = mask[1, 3] = mask[2, :2] = 1
        mask *= np.asarray(batch["encoder_attention_mask"])
        inputs["global_attention_mask"] = torch.tensor(mask)
        batch["encoder_global_mask"] = jnp.asarray(mask)
    out = their_model(**inputs, labels=labels, output_hidden_states=True)
    where = encoders.counted(batch)
    parity.close(jax.jit(model.logits)(batch), out.logits, where)
    found = jax.jit(lambda batch: model.encoder.hidden(batch, want=Want(states=True)))(batch)
    parity.same_layers(found.states, out.hidden_states, where)
    if chosen:
        parity.same_loss(model, batch, their_model, out)


def test_classes_read_a_first_token_that_is_global(tmp_path: Any) -> None:
    their_model = theirs("ForSequenceClassification", num_labels=3)
    model = parity.ours_of(their_model, tmp_path)
    inputs, batch = encoders.read(pad=PAD, types=None)
    parity.close(jax.jit(model.logits)(batch), their_model(**inputs).logits)


def test_tags_have_no_global_tokens(tmp_path: Any) -> None:
    their_model = theirs("ForTokenClassification", num_labels=4)
    model = parity.ours_of(their_model, tmp_path)
    inputs, batch = encoders.read(pad=PAD, types=None)
    where = encoders.counted(batch)
    parity.close(jax.jit(model.logits)(batch), their_model(**inputs).logits, where)


def test_answers_read_a_question_that_is_global(tmp_path: Any) -> None:
    their_model = theirs("ForQuestionAnswering")
    model = parity.ours_of(their_model, tmp_path)
    inputs, batch = questions(encoders.ROWS)
    found = jax.jit(model.logits)(batch)
    parity.same_ends(found, their_model(**inputs), encoders.counted(batch))


def test_choices_read_alternatives_that_are_global(tmp_path: Any) -> None:
    their_model = theirs("ForMultipleChoice")
    model = parity.ours_of(their_model, tmp_path)
    inputs, batch = questions(encoders.ROWS, 3)
    parity.close(jax.jit(model.logits)(batch), their_model(**inputs).logits)


@pytest.mark.parametrize("head", HEADS)
def test_there_and_back(head: str, tmp_path: Any) -> None:
    parity.there_and_back(theirs(head), tmp_path)


def test_a_tied_model_is_exported_with_copies(tmp_path: Any) -> None:
    """The model in which global tokens have the projections of the others, too, and its logits."""
    config = longformer.Config(
        vocab_size=encoders.VOCAB,
        d_model=16,
        d_ff=24,
        num_heads=4,
        num_layers=2,
        max_positions=LENGTH + 2,
        window=2,
        tied_global=True,
    )
    make = parity.nnx.jit(lambda: longformer.Longformer(config, rngs=parity.nnx.Rngs(0)))
    model = make()
    ((whole, params),) = family.halves(model, parity.params_of(model)).values()
    name = parity.model_directory.write(tmp_path, whole, params)
    back = getattr(parity.transformers, name).from_pretrained(tmp_path).eval()
    inputs, batch = encoders.read(pad=PAD, types=None)
    mask = np.zeros((encoders.ROWS, LENGTH), int)
    mask[:, [0, 2]] = 1
    out = back(**inputs, global_attention_mask=torch.tensor(mask))
    batch["encoder_global_mask"] = jnp.asarray(mask)
    parity.close(jax.jit(model.logits)(batch), out.logits, encoders.counted(batch))


CONFIG = SIZES | {"model_type": "longformer"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"attention_window": [3, 4]}, "only even ones"),
        ({"attention_window": [4, 4, 4]}, "one for each of the 2 layers"),
        ({"hidden_act": "relu"}, "only gelu"),
    ],
)
def test_what_is_not_read_says_so(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        family.from_hf(CONFIG | changes, "LongformerForMaskedLM")
