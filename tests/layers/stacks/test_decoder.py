import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from t5x_like.core.abilities import ALL, Want
from t5x_like.layers.attention import attention_kernels
from t5x_like.layers.attention.masks import Mask, Traits
from t5x_like.layers.attention.view import View
from t5x_like.layers.stacks.blocks import POST_NORM, PRE_NORM, DecoderLayer
from t5x_like.layers.stacks.decoder import DecoderStack
from tests.layers import numpy_layers as exact

LENGTH, INPUTS, LAYERS = 4, 6, 3
X, ENCODED = exact.arrays(LENGTH, INPUTS)
CROSS = View(mask=Mask(present=jnp.arange(INPUTS) < jnp.array([[6], [3]])))


def until(position):
    """The view of the query at a position."""
    return View(mask=Mask(causal=True, queries=Traits(positions=position[None])))


@functools.cache
def make(placement=PRE_NORM, *, relative=False, unroll=1, **options):
    parts = exact.parts(placement, relative=relative, **options)

    def layer(rngs):
        return DecoderLayer(parts, rngs=rngs)

    return exact.built(lambda: DecoderStack(layer, LAYERS, rngs=nnx.Rngs(0), unroll=unroll))


@functools.partial(jax.jit, static_argnames="want")
def decode(stack, x=X, encoded=ENCODED, **returned):
    return stack.decode(x, encoded, views=View(mask=Mask(causal=True)), cross=CROSS, **returned)


@pytest.mark.slow
def test_states_and_probabilities_of_both_attentions_are_returned():
    decoded = decode(make(), want=ALL)
    assert decoded.states.shape == (LAYERS + 1, 2, LENGTH, exact.WIDTH)
    np.testing.assert_array_equal(decoded.states[0], X)
    np.testing.assert_array_equal(decoded.states[-1], decoded.last)
    own, cross = decoded.attention, decoded.cross
    assert own.shape == (LAYERS, 2, exact.HEADS, LENGTH, LENGTH)
    assert cross.shape == (LAYERS, 2, exact.HEADS, LENGTH, INPUTS)
    np.testing.assert_array_equal(own, np.tril(own))
    np.testing.assert_array_equal(cross[:, 1, :, :, 3:], 0)
    for p in (own, cross):
        np.testing.assert_allclose(p.sum(-1), 1, rtol=1e-5)


@pytest.mark.slow
def test_nothing_more_is_kept_than_what_was_asked_for():
    decoded = decode(make())
    assert decoded.states is decoded.attention is decoded.cross is None


@pytest.mark.slow
def test_a_kernel_without_probabilities_cannot_return_them():
    stack = make(kernel=attention_kernels.blocked)
    with pytest.raises(ValueError, match=r"use attention_kernels\.plain"):
        decode(stack, want=Want(attention=True))


@pytest.mark.slow
def test_a_state_depends_on_states_before_it_and_on_inputs_that_count():
    stack = make()

    def state(x, encoded):
        return jnp.square(decode(stack, x, encoded).last[1, 2]).sum()

    for_x, for_encoded = jax.grad(state, (0, 1))(X, ENCODED)
    assert set(np.flatnonzero(np.abs(for_x[1]).max(-1))) == {0, 1, 2}
    assert set(np.flatnonzero(np.abs(for_encoded[1]).max(-1))) == {0, 1, 2}
    assert not for_x[0].any()
    assert not for_encoded[0].any()


@pytest.mark.slow
def test_unrolled_is_scanned():
    for a, b in zip(decode(make(), want=ALL), decode(make(unroll=0), want=ALL), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("placement", "relative"),
    [
        (POST_NORM, False),
        (PRE_NORM, False),
        (PRE_NORM, True),
    ],
    ids=["post", "pre", "relative"],
)
def test_steps_give_what_the_whole_pass_does(placement, relative):
    stack = make(placement, relative=relative)
    want = decode(stack).last
    start = jax.jit(
        lambda s: s.init_cache(ENCODED, present_BM=CROSS.mask.present, max_length=LENGTH + 2)
    )
    step = jax.jit(lambda s, x, cache, at: s.step(x, cache, position=at, views=until(at)))
    cache = start(stack)
    assert cache.past.keys.shape == (LAYERS, 2, LENGTH + 2, exact.HEADS, 3)
    assert cache.memory.keys.shape == (LAYERS, 2, INPUTS, exact.HEADS, 3)
    for position in range(LENGTH):
        got, cache = step(stack, X[:, position : position + 1], cache, jnp.asarray(position))
        np.testing.assert_allclose(got[:, 0], want[:, position], atol=2e-5)
