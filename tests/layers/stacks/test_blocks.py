import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from t5x_like.layers.attention.attention_kernels import KeysValues
from t5x_like.layers.attention.masks import Mask
from t5x_like.layers.attention.view import View
from t5x_like.layers.basics.dropout import Dropouts
from t5x_like.layers.stacks.blocks import POST_NORM, PRE_NORM, DecoderLayer, EncoderLayer, insert
from tests.layers import numpy_layers as exact

PLACEMENTS = {"pre": PRE_NORM, "post": POST_NORM}


def part(norm, x, compute, placement):
    """One part with its residual connection, by the definition."""
    if placement == "pre":
        return x + compute(exact.norm(norm, x))
    return exact.norm(norm, x + compute(x))


@pytest.mark.slow
@pytest.mark.parametrize("placement", ["pre", "post"])
def test_an_encoder_layer_norms_where_its_placement_says(placement):
    parts = exact.parts(PLACEMENTS[placement])
    layer = exact.built(lambda: EncoderLayer(parts, rngs=nnx.Rngs(0)))
    (x,) = exact.arrays(5)
    mask, bias = jnp.arange(5) < 4, jax.random.normal(jax.random.key(0), (1, 2, 5, 5))
    view = View(mask=Mask(present=mask[None]), bias=bias)
    run = jax.jit(lambda layer, x: layer(x, view=view, key=None))
    got, probabilities = run(layer, x)

    p, want, seen = exact.exact(layer), np.float64(x), []

    def attend(h):
        y, weights = exact.attention(p["attention"], h, h, mask=mask, bias=np.float64(bias))
        seen.append(weights)
        return y

    want = part(p["attention_norm"], want, attend, placement)
    want = part(p["mlp_norm"], want, lambda h: exact.mlp(p["mlp"], h), placement)
    np.testing.assert_allclose(got, want, atol=2e-5)
    np.testing.assert_allclose(probabilities, seen[0], atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("placement", ["post", "pre"])
def test_a_decoder_layer_attends_to_itself_then_to_the_encoder_as_that_gave_it(placement):
    parts = exact.parts(PLACEMENTS[placement])
    layer = exact.built(lambda: DecoderLayer(parts, rngs=nnx.Rngs(0)))
    x, encoded = exact.arrays(5, 6)
    causal, cross = View(mask=Mask(causal=True)), View(mask=Mask(present=jnp.arange(6)[None] < 4))
    self_mask, cross_mask = causal.mask.dense(5, 5), cross.mask.dense(5, 6)
    run = jax.jit(lambda layer, x: layer(x, encoded, view=causal, cross=cross, key=None))
    got, _ = run(layer, x)

    p, memory = exact.exact(layer), np.float64(encoded)

    def to_itself(h):
        return exact.attention(p["self_attention"], h, h, mask=self_mask)[0]

    def to_encoder(h):
        # The memory is never normed here: with pre-norm, the encoder's last norm has done so.
        return exact.attention(p["cross_attention"], h, memory, mask=cross_mask)[0]

    want = part(p["self_norm"], np.float64(x), to_itself, placement)
    want = part(p["cross_norm"], want, to_encoder, placement)
    want = part(p["mlp_norm"], want, lambda h: exact.mlp(p["mlp"], h), placement)
    np.testing.assert_allclose(got, want, atol=2e-5)


@pytest.mark.slow
def test_a_bias_of_the_layer_replaces_the_given_one():
    parts = exact.parts(PRE_NORM, relative=True)
    layer = exact.built(lambda: EncoderLayer(parts, rngs=nnx.Rngs(0)))
    (x,) = exact.arrays(5)
    own, given = layer.relative(5, 5), jnp.full((1, 2, 5, 5), jnp.nan)
    got = layer(x, view=View(bias=given), key=None)[0]
    layer.relative = None
    np.testing.assert_allclose(got, layer(x, view=View(bias=own), key=None)[0], atol=1e-6)


@pytest.mark.slow
def test_dropout_sites_of_a_layer_draw_independently():
    # Rates of nearly one leave hardly anything of a part except the residual stream.
    layer = EncoderLayer(exact.parts(PRE_NORM, dropouts=Dropouts(hidden=0.999)), rngs=nnx.Rngs(0))
    (x,) = exact.arrays(5)
    y, _ = layer(x, view=View(), key=jax.random.key(0))
    assert (y == x).mean() > 0.95


@pytest.mark.slow
def test_dropout_after_attention_can_be_left_out():
    def dropped(after_attention):
        rates = Dropouts(hidden=0.999, after_attention=after_attention)
        parts = exact.parts(PRE_NORM, dropouts=rates)
        layer = exact.built(lambda: EncoderLayer(parts, rngs=nnx.Rngs(0)))
        norm, attention = layer.attention_norm, layer.attention
        run = jax.jit(lambda layer, x: layer.attended(norm, attention, x, view=View(), key=key)[0])
        return (run(layer, x) == x).mean()

    (x,), key = exact.arrays(5), jax.random.key(0)
    assert dropped(True) > 0.95
    assert dropped(False) == 0


def test_insert_writes_at_a_position_of_an_axis_alone():
    past = KeysValues(jnp.zeros((3, 2, 5, 1, 1)), jnp.ones((3, 2, 5, 1, 1)))
    new = KeysValues(jnp.full((3, 2, 1, 1, 1), 7.0), jnp.full((3, 2, 1, 1, 1), 8.0))
    keys, values = insert(past, new, position=jnp.asarray(3), axis=2)
    np.testing.assert_array_equal(keys[:, :, :, 0, 0], [[[0, 0, 0, 7, 0]] * 2] * 3)
    np.testing.assert_array_equal(values[:, :, :, 0, 0], [[[1, 1, 1, 8, 1]] * 2] * 3)
