"""A LED is the BART whose parameters it starts from, where all is near; global tokens see all."""

import dataclasses
import functools
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from t5x_like.core.partitioning import make_layout
from t5x_like.models import bart, led
from t5x_like.runs import saved_model
from t5x_like.runs.init_from import InitFrom
from t5x_like.training import step
from t5x_like.training.optimization import optimizers

SIZES = {
    "vocab_size": 40,
    "d_model": 16,
    "d_ff": 32,
    "num_heads": 4,
    "num_encoder_layers": 2,
    "num_decoder_layers": 1,
    "pad_id": 0,
    "init_std": 0.3,
}
CONFIG = led.Config(**SIZES, max_positions=24, max_decoder_positions=12, window=5)
RENAME = {
    "^encoder(.*)[.]attention[.](query|key|value)[.]": (
        "encoder\\1.attention.\\2.",
        "encoder\\1.attention.\\2_global.",
    )
}


def batch(length):
    tokens = np.random.default_rng(0).integers(3, 40, (2, length))
    tokens[1, 4:] = 0
    return {
        "encoder_input_tokens": jnp.asarray(tokens, jnp.int32),
        "decoder_input_tokens": jnp.asarray(tokens[:, :4], jnp.int32),
        "decoder_target_tokens": jnp.asarray(tokens[:, :4], jnp.int32),
    }


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """A BART with 12 positions, and the LED with 24 that starts from it."""
    folder = tmp_path_factory.mktemp("bart")
    make = functools.partial(bart.Bart, bart.Config(**SIZES, max_positions=12))
    old = make(rngs=nnx.Rngs(0))
    params = jax.tree.map(np.asarray, nnx.to_pure_dict(nnx.state(old, nnx.Param)))
    saved_model.write(str(folder), make, params, title="a", vocabulary=None, files=())
    program = step.build(
        functools.partial(led.Led, CONFIG),
        optimizers.adamw(1e-3),
        make_layout({"data": 8}),
        step.StepOptions(batch_size=8),
    )
    state = program.init(jax.random.key(1))
    init_from = InitFrom(directory=str(folder), rename=RENAME, repeat_positions=(2, 12, 0))
    log = SimpleNamespace(message=lambda line: None)
    params = init_from.apply(state.params, program=program, log=log)
    return old, nnx.merge(program.graphdef, params)


@pytest.mark.parametrize(("length", "same"), [(6, True), (7, False)])
def test_it_is_its_bart_up_to_a_window_and_a_token(both, length, same):
    """Of a row with padding, too."""
    old, new = both
    rows = batch(length)
    difference = jnp.abs(new.logits(rows) - old.logits(rows)).max()
    assert (difference < 1e-4) == same


def test_where_all_tokens_are_global_all_see_all(both):
    old, new = both
    rows = batch(12)
    every = rows | {"encoder_global_mask": jnp.ones((2, 12), jnp.int32)}
    np.testing.assert_allclose(new.logits(every), old.logits(rows), atol=1e-4)


def test_the_first_token_is_global_where_the_configuration_says_so(both):
    _, model = both
    rows = batch(20)
    first = rows | {"encoder_global_mask": jnp.zeros((2, 20), jnp.int32).at[:, 0].set(1)}
    want, near = model.logits(first), model.logits(rows)
    model.config = dataclasses.replace(CONFIG, global_tokens="first")
    np.testing.assert_allclose(model.logits(rows), want, atol=1e-5)
    model.config = CONFIG
    assert jnp.abs(want - near).max() > 1e-3


def test_more_positions_than_a_side_has_are_refused():
    model = led.Led(CONFIG, rngs=nnx.Rngs(0))
    assert model.max_tokens == 24
    with pytest.raises(ValueError, match="25"):
        model.logits(batch(25))
    long = batch(20)
    long |= {name: long["encoder_input_tokens"] for name in long if name.startswith("decoder")}
    with pytest.raises(ValueError, match="20"):
        model.logits(long)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"window": (3, 0)}, "at least 1, or one for each of the 2"),
        ({"global_tokens": "all"}, "first"),
    ],
)
def test_settings_that_cannot_be_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(CONFIG, **changes)
