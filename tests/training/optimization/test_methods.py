"""StableAdamW, Muon and scaled AdamW against NumPy, layer by layer; the same on a mesh."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import tiny_model as tiny
from flax import nnx

from t5x_like.core.parameters import is_hidden, map_variables
from t5x_like.core.partitioning import map_parameters
from t5x_like.layers.basics.modules import Embedding, Linear
from t5x_like.layers.heads.outputs import output
from t5x_like.training.optimization import layerwise, optimizers, schedules
from t5x_like.training.optimization.methods import lion, muon, scaled_adamw, stable_adamw
from t5x_like.training.optimization.parameter_paths import by_path

STEPS, PEAK, DECAY = 5, 0.02, 0.01
B1, B2, EPS = 0.9, 0.98, 1e-6


def rate(step: int) -> float:
    """A ramp over two steps."""
    return PEAK * min(1.0, step / 2)


def stable_reference(grads: np.ndarray, start: np.ndarray, *, decayed: bool) -> np.ndarray:
    """One tensor after all steps: the method as a paper states it, in float64."""
    p, m, v = start.astype(np.float64), 0.0, 0.0
    for n, g in enumerate(grads.astype(np.float64)):
        t, lr = n + 1, rate(n)
        beta_1, beta_2 = (b * (1 - b ** (t - 1)) / (1 - b**t) for b in (B1, B2))
        m = beta_1 * m + (1 - beta_1) * g
        v = beta_2 * v + (1 - beta_2) * g**2
        r = np.sqrt(np.mean(g**2 / np.maximum(v, EPS**2)))
        lr_of_tensor = lr / max(1.0, r)
        if decayed:
            p = p * (1 - lr_of_tensor / PEAK * DECAY)
        p = p - lr_of_tensor * m / (np.sqrt(v) + EPS)
    return np.asarray(p)


def orthogonal(u: np.ndarray) -> np.ndarray:
    """Five Newton-Schulz iterations, on the matrix or its transpose, whichever is wide."""
    x = u / np.linalg.norm(u)
    x = x.T if x.shape[0] > x.shape[1] else x
    for _ in range(5):
        a = x @ x.T
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x.T if u.shape[0] > u.shape[1] else x


def muon_reference(grads: np.ndarray, start: np.ndarray, *, scale: float) -> np.ndarray:
    """One matrix [in, out] after all steps, in float64, with Nesterov's look ahead."""
    p, m, beta = start.astype(np.float64), 0.0, 0.95
    for n, g in enumerate(grads.astype(np.float64)):
        t, lr = n + 1, rate(n)
        m = beta * m + (1 - beta) * g
        ahead = beta * m / (1 - beta ** (t + 1)) + (1 - beta) * g / (1 - beta**t)
        p = p * (1 - lr * DECAY) - lr * scale * orthogonal(ahead)
    return np.asarray(p)


def scaled_reference(grads: np.ndarray, start: np.ndarray, *, decayed: bool) -> np.ndarray:
    p, m, v = start.astype(np.float64), 0.0, 0.0
    for n, g in enumerate(grads.astype(np.float64)):
        t, lr = n + 1, rate(n)
        m, v = B1 * m + (1 - B1) * g, B2 * v + (1 - B2) * g**2
        u = m / (1 - B1**t) / (np.sqrt(v / (1 - B2**t)) + EPS)
        scale = max(np.sqrt(np.mean(p**2)), 1e-3)
        p = p - lr * scale * u - (lr * DECAY * p if decayed else 0)
    return np.asarray(p)


@pytest.fixture(scope="module")
def start() -> dict[str, np.ndarray]:
    """Three layers of unequal size, a single wide matrix, and a vector near zero."""
    rng = np.random.default_rng(0)
    sizes = np.array([0.1, 1.0, 10.0])[:, None, None]
    params = {
        "layers": rng.normal(size=(3, 6, 4)) * sizes,
        "wide": rng.normal(size=(3, 8)),
        "bias": 1e-4 * rng.normal(size=5),
    }
    return {name: value.astype(np.float32) for name, value in params.items()}


@pytest.fixture(scope="module")
def grads(start: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """[STEPS, ...]; in the fourth step one layer and the vector have a spike."""
    rng = np.random.default_rng(1)
    noise = {name: rng.normal(size=(STEPS, *value.shape)) for name, value in start.items()}
    noise["layers"][3, 1] *= 50
    noise["bias"][3] *= 50
    return {name: value.astype(np.float32) for name, value in noise.items()}


def after_steps(
    optimizer: optimizers.Optimizer, start: dict[str, Any], grads: dict[str, Any]
) -> dict[str, np.ndarray]:
    tx = layerwise.layerwise(optimizer, {"layers": 1, "wide": 0, "bias": 0})
    params = jax.tree.map(jnp.asarray, start)
    state, update = tx.init(params), jax.jit(tx.update)
    for n in range(STEPS):
        updates, state = update({k: g[n] for k, g in grads.items()}, state, params)
        params = optax.apply_updates(params, updates)
    return jax.tree.map(np.asarray, params)


def assert_equals(got: Any, want: Callable[..., np.ndarray], start: Any, grads: Any) -> None:
    """`want(grads, start, name)` of each layer and tensor."""
    for name in ("wide", "bias"):
        expected = want(grads[name], start[name], name)
        np.testing.assert_allclose(got[name], expected, rtol=3e-5, atol=3e-6, err_msg=name)
    for i in range(3):
        expected = want(grads["layers"][:, i], start["layers"][i], "layers")
        np.testing.assert_allclose(got["layers"][i], expected, rtol=3e-5, atol=3e-6)


SCHEDULE = schedules.constant(PEAK, warmup_steps=2)


def test_stable_adamw_equals_its_statement_through_a_spike(start: Any, grads: Any) -> None:
    optimizer = stable_adamw.stable_adamw(SCHEDULE, peak=PEAK, weight_decay=DECAY)
    got = after_steps(optimizer, start, grads)
    assert_equals(
        got, lambda g, p, name: stable_reference(g, p, decayed=name != "bias"), start, grads
    )


def test_a_spike_moves_a_tensor_less_than_adam_lets_it(start: Any, grads: Any) -> None:
    """And a step from zeros with a constant gradient has the size of the rate."""
    params = {"w": jnp.zeros((2, 2))}
    optimizer = stable_adamw.stable_adamw(0.5, weight_decay=0.0)
    updates, state = optimizer.update({"w": jnp.full((2, 2), 3.0)}, optimizer.init(params), params)
    np.testing.assert_allclose(updates["w"], -0.5, rtol=1e-5)
    updates, _ = optimizer.update({"w": jnp.full((2, 2), 300.0)}, state, params)
    assert float(-updates["w"].max()) < 0.5 / 1.3


@pytest.mark.parametrize("rms", [0.2, None])
def test_muon_equals_its_statement_through_a_spike(
    start: Any, grads: Any, rms: float | None
) -> None:
    optimizer = muon.muon(SCHEDULE, consistent_rms=rms, weight_decay=DECAY, adam_share=0.5)
    got = after_steps(optimizer, start, grads)

    def want(g: np.ndarray, p: np.ndarray, name: str) -> np.ndarray:
        if name == "bias":
            vector = {"bias": p}
            tx = optax.chain(
                optax.nadam(lambda n: 0.5 * SCHEDULE(n), b1=0.9, b2=0.95, eps=1e-8),
            )
            state = tx.init(vector)
            for n in range(STEPS):
                updates, state = tx.update({"bias": jnp.asarray(g[n])}, state)
                vector = optax.apply_updates(vector, updates)
            return np.asarray(vector["bias"])
        rows, columns = p.shape
        scale = max(1, columns / rows) ** 0.5 if rms is None else rms * max(p.shape) ** 0.5
        return muon_reference(g, p, scale=scale)

    assert_equals(got, want, start, grads)


def test_scaled_adamw_equals_its_statement(start: Any, grads: Any) -> None:
    optimizer = scaled_adamw.scaled_adamw(SCHEDULE, b2=B2, weight_decay=DECAY)
    got = after_steps(optimizer, start, grads)
    assert_equals(
        got, lambda g, p, name: scaled_reference(g, p, decayed=name != "bias"), start, grads
    )


def test_lion_moves_every_number_by_the_rate(start: Any) -> None:
    optimizer = lion.lion(0.1, weight_decay=0.0)
    params = jax.tree.map(jnp.asarray, start)
    updates, _ = optimizer.update(params, optimizer.init(params), params)
    for name, update in updates.items():
        np.testing.assert_allclose(update, -0.1 * np.sign(start[name]), rtol=1e-6)


class Parts(nnx.Module):
    """One of each kind of matrix."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        init = nnx.initializers.normal(1.0)

        def dense(size: int, *, bias: bool = True) -> Linear:
            axes = ("embed", None)
            return Linear((4, size), axes, init=init, dtype="float32", rngs=rngs, bias=bias)

        self.tokens = Embedding(6, 4, init=init, rngs=rngs)
        self.pooler = dense(4)
        self.labels = output(dense(3))


def test_what_is_a_hidden_matrix() -> None:
    state = nnx.state(Parts(nnx.Rngs(0)), nnx.Param)
    hidden = by_path(map_variables(is_hidden, state))
    assert {path for path, is_one in hidden.items() if is_one} == {"pooler.kernel"}
    assert map_parameters(lambda axes, _: axes, state)["labels"]["kernel"] == ("embed", None)


def test_a_peak_is_needed_with_a_schedule() -> None:
    with pytest.raises(ValueError, match="PEAK_LEARNING_RATE"):
        stable_adamw.stable_adamw(SCHEDULE)


@pytest.mark.parametrize("kind", ["muon", "stable_adamw"])
def test_losses_are_the_same_on_a_mesh(kind: str) -> None:
    """Whole matrices are made orthogonal, and ratios are those of whole tensors, however split."""
    optimizer = muon.muon(0.05) if kind == "muon" else stable_adamw.stable_adamw(0.05)
    losses = []
    for mesh in ({"data": 1}, {"data": 2, "fsdp": 2, "tensor": 2}):
        where = tiny.layout(**mesh)
        program = tiny.build(optimizer, where)
        state, of_mesh = tiny.run(program, where, 4)
        losses.append(of_mesh)
    np.testing.assert_allclose(*losses, rtol=3e-5)
    averages = [
        leaf.sharding.spec
        for path, leaf in jax.tree_util.tree_leaves_with_path(state.opt_state)
        if "mu['wi']" in jax.tree_util.keystr(path)
    ]
    assert averages
    assert all("fsdp" in spec and "tensor" in spec for spec in averages)
