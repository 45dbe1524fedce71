"""Our kernels, run as plain JAX, against `plain`: values, gradients, dropout, meshes."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t5x_like.core.counter_random import COUNTER
from t5x_like.core.partitioning import make_layout
from t5x_like.layers.attention.attention_kernels import Attended, Kernel, KeysValues, blocked, plain
from t5x_like.layers.attention.gpu_attention import gpu
from t5x_like.layers.attention.masks import Mask, Traits
from t5x_like.layers.attention.tpu_attention import tpu
from t5x_like.layers.basics.dropout import Dropping
from t5x_like.layers.stacks.remat import POLICIES

BACKEND = jax.default_backend()
KERNELS: dict[str, Kernel] = {
    "tpu": functools.partial(tpu, interpret=BACKEND != "tpu"),
    "gpu": functools.partial(gpu, interpret=BACKEND != "gpu"),
    "blocks": functools.partial(blocked, block=7),
}
each_kernel = pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)

SEGMENTS = jnp.array([[1] * 9 + [2] * 11 + [0] * 4, [1] * 24, [1] * 3 + [2] * 21, [1] * 23 + [0]])
"""Of four rows of 24 tokens; 0 is padding."""
IN_SEGMENTS = Traits(segments=SEGMENTS)

LONG_SEGMENTS = Traits(
    segments=jnp.array([[1] * 300 + [2] * 468] * 4),
    positions=jnp.array([[*range(300), *range(468)]] * 4),
)

CASES: dict[str, dict[str, Any]] = {
    # A T5's encoder: packed rows, one bias for all, dropout that queries share.
    "packed, bias": {
        "heads": 4,
        "mask": Mask(present=SEGMENTS, queries=IN_SEGMENTS, keys=IN_SEGMENTS),
        "bias": (1, 4, 24, 24),
        "drop": 0.2,
        "shared": True,
    },
    # Its decoder looks at the encoder: lengths that no tile divides.
    "queries of another length": {"heads": 2, "queries": 7, "mask": Mask(present=SEGMENTS)},
    "causal, odd heads": {"heads": 3, "mask": Mask(causal=True), "drop": 0.1},
    # XLNet's: each row has a bias; one head fills a block of lanes.
    "a bias of each row, causal": {"heads": 2, "mask": Mask(causal=True), "bias": (4, 2, 24, 24)},
    "a bias of each row, wide heads": {"heads": 2, "width": 128, "bias": (4, 2, 24, 24)},
    "many heads in a block, nothing else": {"heads": 8, "width": 16},
    # A word decides about two keys: about those of both halves at once, and about the middle one.
    "keys that fill two blocks": {"heads": 2, "queries": 5, "keys": 256, "drop": 0.3},
    "a mask of each query, a bias of each key": {
        "heads": 2,
        "mask": Mask(pairs=jnp.tril(jnp.ones((1, 24, 24), bool))),
        "bias": (4, 1, 1, 24),
        "drop": 0.1,
    },
    "an odd number of keys": {"heads": 2, "keys": 23, "drop": 0.1},
    # The kernel for TPUs takes parts of the queries, each with the keys that it sees.
    "a long causal row": {"heads": 2, "queries": 512, "mask": Mask(causal=True), "drop": 0.1},
    "a window in a long row, packed": {
        "heads": 2,
        "queries": 768,
        "mask": Mask(window=(60, 30), queries=LONG_SEGMENTS, keys=LONG_SEGMENTS),
        "drop": 0.3,
        "shared": True,
    },
    "a dilated window": {"heads": 2, "queries": 100, "mask": Mask(window=(4, 2), dilation=3)},
}


def arrays(case: dict[str, Any], dtype: Any = jnp.float32) -> tuple[list[jax.Array], Any, Any]:
    """[q, k, v, bias or nothing], the mask and the dropout of a case."""
    heads, width, queries = case["heads"], case.get("width", 64), case.get("queries", 24)
    keys_of_row = case.get("keys", max(24, queries))
    keys = jax.random.split(jax.random.key(0), 4)
    shapes = [(4, queries, heads, width), *[(4, keys_of_row, heads, width)] * 2]
    found = [jax.random.normal(*one) for one in zip(keys, shapes, strict=False)]
    found[0] *= width**-0.5
    if "bias" in case:
        found.append(jax.random.normal(keys[3], case["bias"]))
    drop = None
    if "drop" in case:
        drop = Dropping(jax.random.key(5, impl=COUNTER), case["drop"], case.get("shared", False))
    return [x.astype(dtype) for x in found], case.get("mask"), drop


def values_and_gradients(
    kernel: Kernel, given: list[jax.Array], mask: Any, drop: Any
) -> tuple[jax.Array, Any]:
    """The values, and the gradients of a sum that weighs them unequally."""

    def weighed(given: list[jax.Array]) -> tuple[jax.Array, jax.Array]:
        q, k, v, *bias = given
        found = kernel(q, KeysValues(k, v), mask=mask, bias=bias[0] if bias else None, drop=drop)
        weights = jnp.cos(jnp.arange(found.values.size)).reshape(found.values.shape)
        return (found.values * weights).sum(), found.values

    grads, values = jax.jit(jax.grad(weighed, has_aux=True))(given)
    return values, grads


def assert_close(got: Any, want: Any, *, rtol: float, atol: float) -> None:
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(
            np.asarray(a, np.float32), np.asarray(b, np.float32), rtol=rtol, atol=atol
        )


@each_kernel
@pytest.mark.parametrize("name", CASES)
def test_it_equals_plain(name: str, kernel: Kernel) -> None:
    """Dropout too: `plain` draws the same numbers from the same key."""
    given, mask, drop = arrays(CASES[name])
    want = values_and_gradients(plain, given, mask, drop)
    got = values_and_gradients(kernel, given, mask, drop)
    assert_close(got, want, rtol=2e-5, atol=2e-5)
    if drop is not None:
        undropped = values_and_gradients(kernel, given, mask, None)[0]
        assert float(jnp.abs(undropped - got[0]).max()) > 0.1


@each_kernel
def test_in_bfloat16_it_is_as_near_to_float32_as_plain(kernel: Kernel) -> None:
    given, mask, drop = arrays(CASES["packed, bias"])
    exact = values_and_gradients(plain, given, mask, drop)
    rounded = [x.astype(jnp.bfloat16) for x in given]

    def errors(of: Kernel) -> list[float]:
        found = jax.tree.leaves(values_and_gradients(of, rounded, mask, drop))
        pairs = zip(found, jax.tree.leaves(exact), strict=True)
        return [float(jnp.linalg.norm(a.astype(jnp.float32) - b)) for a, b in pairs]

    for ours, usual in zip(errors(kernel), errors(plain), strict=True):
        assert ours < 1.2 * usual


@pytest.mark.parametrize(
    ("mesh", "kernels"),
    [
        ({"data": 4, "tensor": 2}, ("tpu", "gpu")),
        ({"replica": 2, "fsdp": 2}, ("tpu",)),
        ({"data": 2, "sequence": 4}, ("tpu", "gpu", "blocks")),
    ],
    ids=str,
)
@pytest.mark.parametrize("name", ["packed, bias", "a bias of each row, wide heads"])
def test_on_a_mesh_it_is_the_same(
    name: str, mesh: dict[str, int], kernels: tuple[str, ...]
) -> None:
    """Where queries are split, each device draws for its own, and keys' gradients are summed."""
    given, mask, drop = arrays(CASES[name])
    count = int(np.prod(list(mesh.values())))
    want = values_and_gradients(plain, given, mask, drop)
    for kernel in kernels:
        with make_layout(mesh, devices=jax.devices()[:count]).active():
            got = values_and_gradients(KERNELS[kernel], given, mask, drop)
        assert_close(got, want, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("policy", ["products", "nothing"])
def test_under_every_policy_it_is_the_same(policy: str) -> None:
    given, mask, drop = arrays(CASES["causal, odd heads"])
    alone = KERNELS["tpu"]

    def kernel(q: jax.Array, memory: KeysValues, **rest: Any) -> Attended:
        values = jax.checkpoint(
            lambda q, memory: alone(q, memory, **rest).values, policy=POLICIES[policy]
        )
        return Attended(values(q, memory), None)

    want = values_and_gradients(alone, given, mask, drop)
    got = values_and_gradients(kernel, given, mask, drop)
    assert_close(got, want, rtol=1e-6, atol=1e-6)
