"""Adafactor against a NumPy reference, for each layer separately."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import optax
import pytest

from t5x_like.training.optimization import layerwise, optimizers, schedules

STEPS, RATE = 4, 0.05


class ReferenceAdafactor:
    """One tensor's Adafactor in float64 (Shazeer & Stern, 2018, algorithms 4 and 5)."""

    def __init__(self, shape: tuple[int, ...], min_dim: int) -> None:
        order = np.argsort(shape, kind="stable")
        self.factored = len(shape) == 2 and shape[order[-2]] >= min_dim
        if self.factored:
            self.largest, self.second = int(order[-1]), int(order[-2])
            self.row = np.zeros(shape[self.second])
            self.column = np.zeros(shape[self.largest])
        else:
            self.full = np.zeros(shape)
        self.step = 0

    def update(self, gradient: np.ndarray, parameter: np.ndarray, rate: float) -> np.ndarray:
        """The value that is subtracted from the parameter."""
        decay = 1 - (self.step + 1.0) ** -0.8
        self.step += 1
        square = gradient**2 + 1e-30
        if self.factored:
            self.row = decay * self.row + (1 - decay) * square.mean(self.largest)
            self.column = decay * self.column + (1 - decay) * square.mean(self.second)
            row = np.expand_dims(self.row / self.row.mean(), self.largest)
            moment = row * np.expand_dims(self.column, self.second)
        else:
            self.full = decay * self.full + (1 - decay) * square
            moment = self.full
        update = gradient / np.sqrt(moment)
        update = update / max(1.0, rms(update))
        return rate * max(rms(parameter), 1e-3) * update


def rms(x: np.ndarray) -> float:
    return float(np.sqrt((x**2).mean()))


def gradients(shape: tuple[int, ...]) -> np.ndarray:
    """[STEPS, *shape], growing, so that clipping acts on later steps."""
    noise = np.random.default_rng(1).normal(size=(STEPS, *shape))
    return (noise * np.reshape(4.0 ** np.arange(STEPS), (-1, *[1] * len(shape)))).astype(np.float32)


@pytest.mark.slow
@pytest.mark.parametrize("scale", [1.0, 1e-6], ids=["scaled", "floor of the scale"])
@pytest.mark.parametrize("shape", [(6, 9), (9, 6), (6, 6), (3, 9), (7,)], ids=str)
def test_adafactor_equals_the_reference(shape: tuple[int, ...], scale: float) -> None:
    reference = ReferenceAdafactor(shape, min_dim=5)
    assert reference.factored == (min(shape) >= 6 and len(shape) == 2)
    tx = optimizers.adafactor(schedules.constant(RATE), min_dim_size_to_factor=5)
    want = np.random.default_rng(0).normal(size=shape).astype(np.float32) * np.float32(scale)
    got = {"w": jnp.asarray(want)}
    state = tx.init(got)
    clipped = False
    for gradient in gradients(shape):
        step = reference.update(gradient.astype(np.float64), want.astype(np.float64), RATE)
        clipped |= rms(step) > 0.999 * RATE * max(rms(want), 1e-3)
        want = want - step
        updates, state = tx.update({"w": jnp.asarray(gradient)}, state, got)
        got = optax.apply_updates(got, updates)
        np.testing.assert_allclose(got["w"], want, rtol=2e-5, atol=2e-7 * scale)
    assert clipped


@pytest.mark.slow
def test_stacked_layers_equal_separate_ones() -> None:
    """This includes depth 2, groups of layers. Without `layerwise` the layers would mix."""
    scales = np.array([1.0, 10.0, 100.0]).reshape(3, 1, 1)
    one = np.random.default_rng(0).normal(size=(3, 6, 9)) * scales
    params = {"stack": jnp.float32(one), "groups": jnp.float32([one, one[::-1]])}
    grads = {"stack": gradients((3, 6, 9)), "groups": gradients((2, 3, 6, 9))}
    base = optimizers.adafactor(RATE, min_dim_size_to_factor=5)
    tx = layerwise.layerwise(base, {"stack": 1, "groups": 2})
    state = tx.init(params)
    for n in range(STEPS):
        updates, state = tx.update({k: jnp.asarray(g[n]) for k, g in grads.items()}, state, params)
        params = optax.apply_updates(params, updates)
    for name, first in (("stack", one), ("groups", np.stack([one, one[::-1]]))):
        layers = first.reshape(-1, 6, 9).astype(np.float32)
        pushes = grads[name].reshape(STEPS, -1, 6, 9)
        for index, layer in enumerate(layers):
            reference, want = ReferenceAdafactor((6, 9), min_dim=5), layer
            for n in range(STEPS):
                want = want - reference.update(pushes[n, index].astype(np.float64), want, RATE)
            got = params[name].reshape(-1, 6, 9)[index]
            np.testing.assert_allclose(got, want, rtol=2e-4, atol=1e-5)


def test_mixing_layers_would_be_seen() -> None:
    stack = {"w": jnp.float32(np.arange(1, 4).reshape(3, 1, 1) ** 4 * np.ones((3, 6, 9)))}
    grads = {"w": jnp.asarray(gradients((3, 6, 9))[0])}
    base = optimizers.adafactor(RATE, min_dim_size_to_factor=5)
    layered = layerwise.layerwise(base, {"w": 1})
    mixed, _ = base.update(grads, base.init(stack), stack)
    apart, _ = layered.update(grads, layered.init(stack), stack)
    assert float(jnp.abs(mixed["w"] - apart["w"]).max()) > 0.5 * float(jnp.abs(apart["w"]).max())


def test_optimizers_tell_their_learning_rate() -> None:
    for make in (optimizers.adamw, optimizers.lamb, optimizers.adam_uncorrected):
        assert float(make(0.25).learning_rate(3)) == 0.25
    assert float(optimizers.adafactor(schedules.rsqrt()).learning_rate(40_000)) == pytest.approx(
        0.005
    )
