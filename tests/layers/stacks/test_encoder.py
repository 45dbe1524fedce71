import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from t5x_like.core.abilities import ALL, States, Want
from t5x_like.layers.attention import attention_kernels
from t5x_like.layers.attention.attention_kernels import KeysValues
from t5x_like.layers.attention.masks import Mask, Traits
from t5x_like.layers.attention.rotary import rotary
from t5x_like.layers.attention.view import View
from t5x_like.layers.basics.dropout import NO_DROPOUT, Dropouts
from t5x_like.layers.stacks.blocks import POST_NORM, PRE_NORM, EncoderLayer
from t5x_like.layers.stacks.encoder import EncoderStack, with_last
from tests.layers import numpy_layers as exact

LENGTH, LAYERS = 6, 3
(X,) = exact.arrays(LENGTH)
VIEW = View(mask=Mask(present=jnp.arange(LENGTH) < jnp.array([[6], [4]])))
MASK = VIEW.mask.dense(LENGTH, LENGTH)


@functools.cache
def make(
    placement=PRE_NORM, *, relative=False, dropouts=NO_DROPOUT, unroll=1, remat=None, **options
):
    parts = exact.parts(placement, relative=relative, dropouts=dropouts, **options)
    return exact.built(
        lambda: EncoderStack(
            lambda rngs: EncoderLayer(parts, rngs=rngs),
            LAYERS,
            rngs=nnx.Rngs(0),
            unroll=unroll,
            remat=remat,
        )
    )


@functools.partial(jax.jit, static_argnames="want")
def encode(stack, x=X, key=None, **returned):
    return stack.encode(x, views=VIEW, key=key, **returned)


@pytest.mark.slow
def test_states_and_probabilities_are_those_of_each_layer():
    stack = make()
    hidden = encode(stack, want=ALL)
    assert hidden.states.shape == (LAYERS + 1, 2, LENGTH, exact.WIDTH)
    assert hidden.attention.shape == (LAYERS, 2, exact.HEADS, LENGTH, LENGTH)
    np.testing.assert_array_equal(hidden.states[0], X)
    np.testing.assert_array_equal(hidden.states[-1], hidden.last)
    np.testing.assert_array_equal(hidden.attention[:, 1, :, :, 4:], 0)
    p, x = exact.exact(stack)["layers"], np.float64(X)
    for i in range(LAYERS):
        layer = jax.tree.map(lambda leaf, i=i: leaf[i], p)
        h = exact.norm(layer["attention_norm"], x)
        y, weights = exact.attention(layer["attention"], h, h, mask=MASK)
        x = x + y
        x = x + exact.mlp(layer["mlp"], exact.norm(layer["mlp_norm"], x))
        np.testing.assert_allclose(hidden.attention[i], weights, atol=1e-5)
        np.testing.assert_allclose(hidden.states[i + 1], x, atol=1e-4)


@pytest.mark.slow
def test_nothing_more_is_kept_than_what_was_asked_for():
    stack = make()
    plain = encode(stack)
    assert plain.states is plain.attention is None
    assert encode(stack, want=Want(states=True)).attention is None
    assert encode(stack, want=Want(attention=True)).states is None


def test_the_last_state_is_the_normed_one_once_finished():
    states = jnp.arange(12.0).reshape(3, 1, 2, 2)
    hidden = with_last(States(states[-1], states), 100 + states[-1])
    np.testing.assert_array_equal(hidden.last, 100 + states[-1])
    np.testing.assert_array_equal(hidden.states, [*states[:-1], 100 + states[-1]])
    assert with_last(States(states[-1]), states[0]).states is None


@pytest.mark.slow
def test_a_kernel_without_probabilities_cannot_return_them():
    stack = make(kernel=attention_kernels.blocked)
    with pytest.raises(ValueError, match=r"use attention_kernels\.plain"):
        encode(stack, want=Want(attention=True))
    np.testing.assert_allclose(encode(stack).last, encode(make()).last, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {"unroll": 0},
        {"unroll": 2},
        {"remat": jax.checkpoint_policies.nothing_saveable},
        {"remat": jax.checkpoint_policies.dots_saveable, "unroll": 0},
    ],
    ids=["unrolled", "by twos", "remat", "remat unrolled"],
)
def test_how_layers_are_run_changes_neither_results_nor_gradients(changes):
    rates, key = Dropouts(hidden=0.2, attention=0.2, mlp=0.2), jax.random.key(1)

    @jax.jit
    def run(stack):
        def loss(stack):
            hidden = encode(stack, X, key, want=ALL)
            return jnp.square(hidden.last).sum(), hidden

        return jax.grad(loss, has_aux=True)(stack)

    want, got = run(make(dropouts=rates)), run(make(dropouts=rates, **changes))
    # The gradient of the keys' bias is zero except for rounding, so all gradients give the scale.
    size = max(np.abs(leaf).max() for leaf in jax.tree.leaves(want))
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=2e-6 * size)


@pytest.mark.parametrize(
    ("placement", "relative"),
    [
        (PRE_NORM, False),
        pytest.param(POST_NORM, False, marks=pytest.mark.slow),
        pytest.param(PRE_NORM, True, marks=pytest.mark.slow),
    ],
    ids=["pre", "post", "relative"],
)
def test_steps_give_what_a_causal_pass_does(placement, relative):
    stack = make(placement, relative=relative)
    want = jax.jit(lambda stack: stack.encode(X, views=View(mask=Mask(causal=True))).last)(stack)
    empty = jnp.zeros((LAYERS, 2, LENGTH, exact.HEADS, 3))
    past = KeysValues(empty, empty)
    step = jax.jit(
        lambda stack, x, past, position: stack.step(
            x,
            past,
            position=position,
            views=View(mask=Mask(causal=True, queries=Traits(positions=position[None]))),
        )
    )
    for position in range(LENGTH):
        x = X[:, position : position + 1]
        got, past = step(stack, x, past, jnp.asarray(position))
        np.testing.assert_allclose(got[:, 0], want[:, position], atol=2e-5)
        np.testing.assert_array_equal(past.keys[:, :, position + 1 :], 0)


@pytest.mark.parametrize("unroll", [1, 0], ids=["scanned", "unrolled"])
def test_layers_take_views_in_turn(unroll):
    """Three layers and two views: a window with rotary positions, then everything."""
    stack = make(unroll=unroll, d_kv=4)
    turned = rotary(jnp.arange(LENGTH)[None], d_kv=4)
    views = (View(mask=Mask(window=(1, 1)), rotary=turned), VIEW)
    hidden = jax.jit(lambda stack: stack.encode(X, views=views, want=ALL))(stack)
    x = X
    for n, view in enumerate((*views, views[0])):
        layer = jax.tree.map(lambda leaf, n=n: leaf[n], stack.layers)
        x, p = layer(x, view=view, key=None)
        np.testing.assert_allclose(hidden.states[n + 1], x, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(hidden.attention[n], p, atol=1e-5)
    far = np.abs(np.subtract.outer(range(LENGTH), range(LENGTH))) > 1
    assert not np.asarray(hidden.attention)[[0, 2]][..., far].any()
    assert np.asarray(hidden.attention)[1][..., far].any()
