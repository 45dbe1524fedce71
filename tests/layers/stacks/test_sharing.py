import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from t5x_like.core.abilities import Want
from t5x_like.layers.attention.multi_head import Attention, Inits
from t5x_like.layers.attention.view import View
from t5x_like.layers.basics.activations import gelu
from t5x_like.layers.basics.dropout import Dropouts
from t5x_like.layers.basics.mlp import Mlp
from t5x_like.layers.basics.modules import LayerNorm
from t5x_like.layers.stacks.blocks import POST_NORM, EncoderLayer, Parts
from t5x_like.layers.stacks.encoder import EncoderStack
from t5x_like.layers.stacks.sharing import SHARING, SharedStack, copies_in_groups

INIT = nnx.initializers.normal(0.3)
GROUPS, ONE = (0, 0, 1), (0, 0, 0)
REMAT = jax.checkpoint_policies.nothing_saveable


def make_layer(rngs):
    inits = Inits.same(INIT)
    return EncoderLayer(
        Parts(
            norm=lambda rngs: LayerNorm(4, dtype="float32", rngs=rngs),
            attention=lambda rngs: Attention(
                4, 2, d_kv=2, inits=inits, bias=True, dtype="float32", rngs=rngs
            ),
            mlp=lambda rngs: Mlp(
                4, 6, activation=gelu, bias=True, inits=(INIT, INIT), dtype="float32", rngs=rngs
            ),
            dropouts=Dropouts(hidden=0.2, attention=0.2),
            placement=POST_NORM,
        ),
        rngs=rngs,
    )


def shared(copies=GROUPS, sharing="all", **options):
    return SharedStack(make_layer, copies, sharing=sharing, rngs=nnx.Rngs(0), **options)


def abstract(*args, **kwargs):
    return nnx.eval_shape(lambda: shared(*args, **kwargs))


def grown(leaf, copies):
    """The parameters of each copy, written out for each layer."""
    return leaf if len(leaf) == len(copies) else leaf[np.array(copies)]


@jax.jit
def value_and_grads(stack):
    x_BLD = jax.random.normal(jax.random.key(1), (2, 5, 4))

    def value(stack):
        hidden = stack.encode(x_BLD, views=View(), key=jax.random.key(2), want=Want(states=True))
        return jnp.square(hidden.states).sum(), hidden.states

    (_, states), grads = jax.value_and_grad(value, has_aux=True)(stack)
    return states, nnx.to_pure_dict(nnx.state(grads.layers))


def test_copies_in_the_order_of_running():
    assert copies_in_groups(4, num_groups=1, inner_layers=1) == (0, 0, 0, 0)
    assert copies_in_groups(4, num_groups=2, inner_layers=1) == (0, 0, 1, 1)
    assert copies_in_groups(3, num_groups=2, inner_layers=2) == (0, 1, 0, 1, 2, 3)


@pytest.mark.parametrize("sharing", SHARING)
def test_parts_are_stored_as_often_as_they_differ(sharing):
    layers = abstract(sharing=sharing).layers
    attention = {x.shape[0] for x in jax.tree.leaves((layers.attention, layers.attention_norm))}
    ffn = {x.shape[0] for x in jax.tree.leaves((layers.mlp, layers.mlp_norm))}
    assert attention == {2 if sharing in ("all", "attention") else 3}
    assert ffn == {2 if sharing in ("all", "ffn") else 3}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("copies", "sharing", "options"),
    [
        (ONE, "all", {}),
        (ONE, "all", {"unroll": 0}),
        (GROUPS, "all", {}),
        (GROUPS, "attention", {"unroll": 2}),
        (GROUPS, "ffn", {"unroll": 0}),
        (GROUPS, "ffn", {"remat": REMAT}),
        (GROUPS, "none", {}),
    ],
)
def test_a_shared_stack_is_one_of_equal_layers_whose_gradients_add_up(copies, sharing, options):
    stack = jax.jit(lambda: shared(copies, sharing, **options))()
    plain = nnx.eval_shape(lambda: EncoderStack(make_layer, len(copies), rngs=nnx.Rngs(0)))
    plain.layers = jax.tree.map(lambda leaf: grown(leaf, copies), stack.layers)
    states, grads = value_and_grads(stack)
    want_states, want_grads = value_and_grads(plain)
    np.testing.assert_allclose(states, want_states, rtol=1e-5, atol=1e-5)

    def compare(got, want):
        if len(got) != len(copies):
            want = jnp.zeros_like(got).at[np.array(copies)].add(want)
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)

    jax.tree.map(compare, grads, want_grads)


def test_what_all_layers_share_is_not_handed_out_layer_by_layer():
    stack = abstract(ONE)
    jaxpr = jax.make_jaxpr(lambda stack, x: stack.encode(x, views=View()).last)
    (loop,) = [
        equation
        for equation in jaxpr(stack, jnp.ones((2, 5, 4))).jaxpr.eqns
        if equation.primitive.name == "scan"
    ]
    shapes = [variable.aval.shape for variable in loop.invars]
    assert (1, 4, 6) in shapes
    assert (3, 4, 6) not in shapes


def test_matrices_count_as_often_as_they_run():
    every = 3 * (4 * 4 * 4 + 2 * 4 * 6)
    assert {abstract(sharing=sharing).matrix_size() for sharing in SHARING} == {every}
