"""The Adams of the papers and LAMB against NumPy, also layer by layer; parameters without decay."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import tiny_model as tiny

from t5x_like.training.optimization import layerwise, optimizers

STEPS, RATE, DECAY = 5, 0.02, 0.3
B1, B2, EPS = 0.8, 0.9, 1e-3


def reference(kind: str, grads: np.ndarray, start: np.ndarray, *, free: bool) -> np.ndarray:
    """One variable after all steps, in float64; if `free`, without decay and trust ratio."""
    w, m, v = start.astype(np.float64), np.zeros(start.shape), np.zeros(start.shape)
    for t, g in enumerate(grads.astype(np.float64), 1):
        m, v = B1 * m + (1 - B1) * g, B2 * v + (1 - B2) * g**2
        u = m / (np.sqrt(v) + EPS)
        if kind == "adam_epsilon_hat":
            u = u * np.sqrt(1 - B2**t) / (1 - B1**t)
        elif kind == "adamw":
            u = m / (1 - B1**t) / (np.sqrt(v / (1 - B2**t)) + EPS)
        if not free:
            u = u + DECAY * w
        norms = np.linalg.norm(w), np.linalg.norm(u)
        if kind == "lamb" and not free and min(norms) > 0:
            u = u * norms[0] / norms[1]
        w = w - RATE * u
    return w


ADAMS: dict[str, Callable[..., optimizers.Optimizer]] = {
    "adamw": optimizers.adamw,
    "adam_uncorrected": optimizers.adam_uncorrected,
    "adam_epsilon_hat": optimizers.adam_epsilon_hat,
    "lamb": optimizers.lamb,
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ADAMS)
def test_each_layer_goes_the_way_of_the_reference(kind: str) -> None:
    """Layers of unequal size, gradients as small as eps; a layer of zeros has no trust ratio."""
    rng = np.random.default_rng(0)
    size = np.array([0.0, 1.0, 100.0])
    params = {
        "out": {"kernel": rng.normal(size=(4, 5)), "bias": rng.normal(size=5)},
        "layers": {
            "kernel": rng.normal(size=(3, 4, 5)) * size[:, None, None],
            "bias": rng.normal(size=(3, 5)),
        },
    }
    params = jax.tree.map(np.float32, params)
    grads = jax.tree.map(lambda x: np.float32(2e-3 * rng.normal(size=(STEPS, *x.shape))), params)
    stacked = {"out": {"kernel": 0, "bias": 0}, "layers": {"kernel": 1, "bias": 1}}
    optimizer = ADAMS[kind](RATE, b1=B1, b2=B2, eps=EPS, weight_decay=DECAY)
    tx = layerwise.layerwise(optimizer, stacked)
    got, state = jax.tree.map(jnp.asarray, params), tx.init(params)
    update = jax.jit(tx.update)
    for n in range(STEPS):
        updates, state = update(jax.tree.map(lambda g, n=n: g[n], grads), state, got)
        got = optax.apply_updates(got, updates)
    run = functools.partial(reference, kind)
    for name, free in (("kernel", False), ("bias", True)):
        want = run(grads["out"][name], params["out"][name], free=free)
        np.testing.assert_allclose(got["out"][name], want, rtol=2e-5, atol=1e-6)
        for i in range(3):
            want = run(grads["layers"][name][:, i], params["layers"][name][i], free=free)
            np.testing.assert_allclose(got["layers"][name][i], want, rtol=2e-5, atol=1e-6)


def test_without_correction_the_first_steps_are_larger() -> None:
    """With a constant gradient, Adam's steps are 1, and these (1 - b1^t) / sqrt(1 - b2^t)."""
    tx = optimizers.adam_uncorrected(1.0, eps=0.0)
    params = {"bias": jnp.zeros(1)}
    state, sizes = tx.init(params), []
    for _ in range(12):
        updates, state = tx.update({"bias": jnp.ones(1)}, state, params)
        sizes.append(-float(updates["bias"][0]))
    t = np.arange(1, 13)
    np.testing.assert_allclose(sizes, (1 - 0.9**t) / np.sqrt(1 - 0.999**t), rtol=1e-4)
    assert sizes[0] == pytest.approx(3.162, abs=1e-3)
    assert sizes[-1] == pytest.approx(6.5685, abs=1e-3)


def decayed_by(optimizer: optimizers.Optimizer, params: Any) -> Any:
    """The parameters that move although their gradients are zero."""
    zeros = jax.tree.map(jnp.zeros_like, params)
    updates, _ = optimizer.update(zeros, optimizer.init(params), params)
    return jax.tree.map(lambda u: bool(jnp.abs(u).max() > 0), updates)


@pytest.mark.parametrize("kind", ADAMS)
def test_what_is_decayed_is_an_argument(kind: str) -> None:
    params = {
        "norm": {"scale": jnp.ones(3)},
        "logits": {"bias": jnp.ones(3)},
        "kernel": jnp.ones(3),
    }
    some = {"norm": {"scale": False}, "logits": {"bias": False}, "kernel": True}
    assert decayed_by(ADAMS[kind](0.1), params) == some
    everything = jax.tree.map(lambda _: True, params)
    assert decayed_by(ADAMS[kind](0.1, not_decayed=()), params) == everything


@pytest.mark.slow
def test_lamb_has_the_same_losses_on_a_mesh() -> None:
    """Trust ratios belong to whole layers, however these are split."""
    losses = []
    for mesh in ({"data": 1}, {"data": 2, "fsdp": 2, "tensor": 2}):
        where = tiny.layout(**mesh)
        losses.append(
            tiny.run(tiny.build(optimizers.lamb(1e-2), where, gradient_clip=1.0), where, 3)[1]
        )
    np.testing.assert_allclose(*losses, rtol=2e-5)
