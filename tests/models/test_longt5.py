"""LongT5's encoder is a T5's where all is near; texts of packed rows do not meet; memory."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from t5x_like.layers.attention.masks import Traits
from t5x_like.layers.basics.mlp import GatedMlp
from t5x_like.models import longt5, t5

SIZES = {"vocab_size": 60, "d_model": 16, "d_ff": 32, "num_heads": 4, "d_kv": 4}
CONFIG = longt5.Config(
    **SIZES, num_encoder_layers=2, num_decoder_layers=1, mlp=GatedMlp, local_radius=8
)
LOCAL = dataclasses.replace(CONFIG, summed_block=None)


def made(config):
    return longt5.LongT5(config, rngs=nnx.Rngs(0))


def tokens(rows, length):
    return jnp.asarray(np.random.default_rng(0).integers(2, 60, (rows, length)), jnp.int32)


@pytest.mark.parametrize("config", [LOCAL, CONFIG], ids=["local", "summing"])
@pytest.mark.parametrize(("length", "same"), [(9, True), (10, False)])
def test_it_is_a_t5_up_to_a_radius_and_a_token(config, length, same):
    """Blocks of 16 tokens, too, are in no such row."""
    model = made(config)
    fields = {f.name: getattr(config, f.name) for f in dataclasses.fields(t5.Config)}
    plain = t5.T5(t5.Config(**fields), rngs=nnx.Rngs(1))
    state = nnx.to_pure_dict(nnx.state(model, nnx.Param))
    state.pop("encoder_summary_relative", None)
    state["encoder"]["layers"]["attention"].pop("summary_norm", None)
    nnx.update(plain, state)
    rows = tokens(3, length).at[1, 5:].set(0)
    difference = jnp.abs(model.encode(rows).last - plain.encode(rows).last).max()
    assert (difference < 1e-5) == same


def test_texts_of_a_packed_row_are_as_alone():
    model, both = made(LOCAL), tokens(1, 60)
    segments = jnp.asarray([[1] * 25 + [2] * 35])
    packed = model.encode(both, traits=Traits(segments=segments)).last
    alone = [model.encode(both[:, :25]).last, model.encode(both[:, 25:]).last]
    np.testing.assert_allclose(packed, jnp.concatenate(alone, axis=1), atol=1e-5)
    with pytest.raises(ValueError, match="would mix the texts of a packed row"):
        made(CONFIG).encode(both, traits=Traits(segments=segments))


def test_memory_grows_with_the_length():
    """Of the forward and the backward pass; blocks of a row are taken one after another."""
    model = made(dataclasses.replace(CONFIG, summed_block=64))

    def temporary(length):
        def loss(model, rows):
            return model.encode(rows).last.sum()

        compiled = jax.jit(jax.grad(loss)).lower(model, tokens(1, length)).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    assert temporary(4096) < 2.3 * temporary(2048)
