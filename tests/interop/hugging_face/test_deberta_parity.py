"""DeBERTa of both kinds computes what transformers' does, and its weights go there and back."""

from __future__ import annotations

from typing import Any

import encoders
import jax
import jax.numpy as jnp
import numpy as np
import parity
import pytest
import torch
from flax import nnx
from transformers.models.deberta_v2 import modeling_deberta_v2

from t5x_like.interop.hugging_face import deberta as family
from t5x_like.interop.hugging_face import model_directory
from t5x_like.layers.attention.variants.disentangled import LogBuckets
from t5x_like.models import deberta

LENGTH = 14
SIZES = {
    **{name: value for name, value in encoders.SIZES.items() if name != "attn_implementation"},
    "num_hidden_layers": 2,
    "max_position_embeddings": LENGTH,
    "relative_attention": True,
    "position_biased_input": False,
    "pos_att_type": "c2p|p2c",
}
V2 = {
    "position_buckets": 8,
    "share_att_key": True,
    "norm_rel_ebd": "layer_norm",
    "conv_kernel_size": 3,
    "conv_act": "gelu",
}
KINDS = {"Deberta": SIZES, "DebertaV2": SIZES | V2}
HEADS = (
    *("ForMaskedLM", "ForSequenceClassification", "ForTokenClassification"),
    *("ForQuestionAnswering", "Model"),
)
pytestmark = pytest.mark.slow
each_kind = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture(autouse=True)
def _rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows with distances that share buckets."""
    monkeypatch.setattr(encoders, "LENGTH", LENGTH)


def theirs(kind: str, head: str, **more: Any) -> Any:
    return parity.theirs(kind, head, **KINDS[kind] | more)


@each_kind
def test_masked_language_model(kind: str, tmp_path: Any) -> None:
    """States of all layers, attention, logits and gradients."""
    encoders.same_predictions(theirs(kind, "ForMaskedLM"), tmp_path, padding=False, types=None)


@each_kind
def test_classes(kind: str, tmp_path: Any) -> None:
    their_model = theirs(kind, "ForSequenceClassification", num_labels=3)
    encoders.same_labels(their_model, tmp_path, labels=3, types=None)


@pytest.mark.parametrize(
    ("kind", "head"),
    [*(("DebertaV2", head) for head in (*HEADS, "ForMultipleChoice")), ("Deberta", "ForMaskedLM")],
)
def test_there_and_back(kind: str, head: str, tmp_path: Any) -> None:
    parity.there_and_back(theirs(kind, head, cls_dropout=0.3, pooler_dropout=0.2), tmp_path)


def test_buckets_are_the_published_ones() -> None:
    distances = np.arange(-700, 701)
    for buckets, positions in ((256, 512), (8, 14), (32, 512)):
        theirs_ = modeling_deberta_v2.make_log_bucket_position(
            torch.tensor(distances), buckets, positions
        )
        rows = np.clip(theirs_.long().numpy() + buckets, 0, 2 * buckets - 1)
        np.testing.assert_array_equal(LogBuckets(buckets, positions)(distances), rows)


def test_the_head_of_the_authors_is_read(tmp_path: Any) -> None:
    """Its names, and the positions of the enhanced mask decoder, which transformers passes over."""
    their_model = theirs("DebertaV2", "ForMaskedLM", legacy=False)
    table = torch.randn(LENGTH, SIZES["hidden_size"])
    state = their_model.state_dict() | {"deberta.embeddings.position_embeddings.weight": table}
    their_model.save_pretrained(tmp_path, state_dict=state)
    found = model_directory.read(tmp_path)
    assert found.make.args[0].mask_decoder
    np.testing.assert_array_equal(found.params["positions"], table)
    head = their_model.lm_predictions.lm_head
    np.testing.assert_array_equal(found.params["mlm"]["norm"]["scale"], head.LayerNorm.weight.data)
    assert found.unused == []


def test_the_mask_decoder_runs_the_last_layer_twice(tmp_path: Any) -> None:
    """Theirs is put together of transformers' parts (section 3.2 and the published code)."""
    their_model = theirs("DebertaV2", "ForMaskedLM")
    table = torch.randn(LENGTH, SIZES["hidden_size"])
    state = their_model.state_dict() | {"deberta.embeddings.position_embeddings.weight": table}
    their_model.save_pretrained(tmp_path, state_dict=state)
    found = model_directory.read(tmp_path)
    graph = nnx.graphdef(nnx.eval_shape(lambda: found.make(rngs=nnx.Rngs(0))))
    model = nnx.merge(graph, jax.tree.map(jnp.asarray, found.params))
    inputs, batch = encoders.read(types=None)
    batch, labels = encoders.masked(batch)
    encoder = their_model.deberta.encoder
    before = their_model.deberta(**inputs, output_hidden_states=True).hidden_states[-2]
    query = before + table
    for _ in range(2):
        query, _ = encoder.layer[-1](
            before,
            encoder.get_attention_mask(inputs["attention_mask"]),
            query_states=query,
            relative_pos=encoder.get_rel_pos(before),
            rel_embeddings=encoder.get_rel_embedding(),
        )
    logits = their_model.cls(query)
    parity.close(jax.jit(model.logits)(batch), logits, encoders.counted(batch))
    places = torch.tensor(np.asarray(batch["masked_positions"], np.int64))[..., None]
    parity.close(jax.jit(model.guesses)(batch), torch.take_along_dim(logits, places, 1))
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
    loss.backward()
    ours, grads = parity.loss_and_gradients(model, batch)
    np.testing.assert_allclose(ours, loss.item(), rtol=1e-5)
    word = their_model.deberta.embeddings.word_embeddings.weight.grad
    for got, want in (
        (grads.encoder.embedding.tokens.table, word),
        (grads.encoder.distances, encoder.rel_embeddings.weight.grad),
    ):
        parity.close(got[...], want, atol=1e-4 * want.abs().max().item())


V2_CONFIG = {**KINDS["DebertaV2"], "model_type": "deberta-v2"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"relative_attention": False}, "relative_attention False"),
        ({"position_biased_input": True}, "position_biased_input True"),
        ({"pos_att_type": "c2p"}, "only c2p|p2c"),
        ({"position_buckets": -1}, "position_buckets -1"),
        ({"max_relative_positions": 7}, "max_relative_positions 7"),
        ({"conv_act": "tanh"}, "conv_act 'tanh'"),
        ({"embedding_size": 8}, "embedding_size 8"),
    ],
)
def test_what_is_not_read_says_so(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        family.from_hf(V2_CONFIG | changes, "DebertaV2ForMaskedLM")


def test_sizes_are_checked() -> None:
    for changes, message in (
        ({"convolution": 2}, "must be odd"),
        ({"buckets": 1024}, "below 2"),
    ):
        with pytest.raises(ValueError, match=message):
            deberta.Config(**changes)
