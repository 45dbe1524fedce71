import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from t5x_like.layers.basics.modules import Linear
from t5x_like.layers.heads import tying


class Pair(nnx.Module):
    def __init__(self, rngs):
        self.first, self.second = (
            Linear((3, 3), (None, None), init=nnx.initializers.normal(), dtype="float32", rngs=rngs)
            for _ in range(2)
        )

    def __call__(self, x):
        return self.second(self.first(x))


class Both(nnx.Module):
    """Two pairs; one uses the other's first half."""

    def __init__(self, rngs):
        self.owner = Pair(rngs)
        self.user = tying.without(Pair(rngs), ["first"])

    def __call__(self, x):
        return self.owner(x) + tying.complete(self.user, self.owner, ["first"])(x)


def test_what_is_shared_is_stored_once_and_its_gradients_add_up():
    both = Both(nnx.Rngs(0))
    assert len(jax.tree.leaves(both)) == 3
    x = jnp.arange(6.0).reshape(2, 3)
    grads = jax.grad(lambda both: both(x).sum())(both)
    upstream = jnp.ones((2, 3)) @ (both.owner.second.kernel[...] + both.user.second.kernel[...]).T
    np.testing.assert_allclose(grads.owner.first.kernel[...], x.T @ upstream, rtol=1e-5)


def test_a_completed_module_leaves_the_stored_one_as_it_is():
    both = Both(nnx.Rngs(0))
    whole = tying.complete(both.user, both.owner, ["first"])
    assert len(jax.tree.leaves(whole)) == 2
    assert not hasattr(both.user, "first")
    whole.second = whole.first
    assert both.user.second is not both.owner.first
