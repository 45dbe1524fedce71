"""Decoders made from BERT and BART: positions in packed rows, operations of a step."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from tiny_models import filled

from t5x_like.models import bart_decoder, bert_decoder

SIZES = {"vocab_size": 50, "d_model": 16, "d_ff": 24, "num_heads": 4, "max_positions": 12}
BERT = bert_decoder.Config(**SIZES, num_layers=2, d_embedding=8)
ROBERTA = bert_decoder.Config(**SIZES, num_layers=2, padding_position=1)
BART = bart_decoder.Config(**SIZES, num_decoder_layers=2)
MAKES = {
    "bert": functools.partial(bert_decoder.BertDecoder, BERT),
    "roberta": functools.partial(bert_decoder.BertDecoder, ROBERTA),
    "bart": functools.partial(bart_decoder.BartDecoder, BART),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MAKES)
def test_packed_examples_score_as_each_does_alone(name):
    model = filled(lambda: MAKES[name](rngs=nnx.Rngs(0)))
    tokens = jnp.asarray(np.random.default_rng(0).integers(2, 50, (1, 9)))
    positions = jnp.array([[0, 1, 2, 3, 0, 1, 2, 3, 4]])
    packed = {
        "decoder_input_tokens": tokens,
        "decoder_positions": positions,
        "decoder_segment_ids": jnp.array([[1] * 4 + [2] * 5]),
    }
    logits_of = jax.jit(lambda batch: model.logits(batch))
    logits = logits_of(packed)
    for part in (slice(0, 4), slice(4, 9)):
        alone = logits_of({"decoder_input_tokens": tokens[:, part]})
        np.testing.assert_allclose(logits[:, part], alone, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("name", "room"), [("bert", 12), ("roberta", 10), ("bart", 12)])
def test_a_row_has_as_many_tokens_as_there_are_positions(name, room):
    model = nnx.eval_shape(lambda: MAKES[name](rngs=nnx.Rngs(0)))
    assert model.max_positions == room
    batch = {"decoder_input_tokens": jnp.ones((1, room + 1), jnp.int32)}
    with pytest.raises(ValueError, match=f"at most {room} do"):
        jax.eval_shape(lambda model: model.logits(batch), model)


def test_operations_of_projections_and_of_a_narrow_table_are_counted():
    model = nnx.eval_shape(lambda: MAKES["bert"](rngs=nnx.Rngs(0)))
    weights = np.arange(12) < np.array([12, 5])[:, None]
    found = model.flops({"decoder_loss_weights": jnp.asarray(weights, jnp.float32)})
    layer = 4 * 16 * 16 + 2 * 16 * 24
    a_token = 2 * layer + 8 * 16 + 16 * 8 + 8 * 50
    pairs = 12 * 13 // 2 + 5 * 6 // 2
    np.testing.assert_allclose(found, 6 * (17 * a_token + 2 * 2 * 16 * pairs), rtol=1e-6)
