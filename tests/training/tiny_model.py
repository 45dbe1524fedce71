"""A tiny stateful model with two loss terms of unequal weights, and batches for it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from t5x_like.core import global_batches, partitioning
from t5x_like.training import step
from t5x_like.training.completion import Completion
from t5x_like.training.optimization import optimizers

D, F, LAYERS, BATCH = 8, 16, 3, 16
"""Legend: B batch, D width, F hidden width."""


class Tiny(nnx.Module):
    """Residual layers, scanned, over the input plus the carry of the row's last step."""

    def __init__(self, dropout: float = 0.1, *, rngs: nnx.Rngs, square: bool = False) -> None:
        hidden = D if square else F

        def layer(key: jax.Array) -> tuple[jax.Array, jax.Array]:
            up, down = jax.random.split(key)
            scale = 0.3 * jnp.sqrt(8 / D)
            return (
                scale * jax.random.normal(up, (D, hidden)),
                scale * jax.random.normal(down, (hidden, D)),
            )

        wi, wo = jax.vmap(layer)(jax.random.split(rngs.params(), LAYERS))
        self.wi = nnx.Param(wi, axes=("embed", "mlp"))
        self.wo = nnx.Param(wo, axes=("mlp", "embed"))
        self.scale = nnx.Param(jnp.ones(D), axes=("embed",), depth="above")
        self.dropout = dropout

    def weights(self, batch: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
        return {name: jnp.maximum(batch[f"mask_{name}"].sum(), 1.0) for name in ("near", "far")}

    def initial_carry(self, batch_size: int) -> jax.Array:
        return jnp.zeros((batch_size, D))

    def loss(self, batch: Any, key: Any, carry: jax.Array, weights: Any) -> tuple:
        def layer(x_BD: jax.Array, xs: tuple) -> tuple[jax.Array, None]:
            wi, wo, key = xs
            h_BF = partitioning.constrain(jax.nn.relu(x_BD @ wi), "batch", "mlp")
            if key is not None and self.dropout:
                keep = jax.random.bernoulli(key, 1 - self.dropout, h_BF.shape)
                h_BF = jnp.where(keep, h_BF / (1 - self.dropout), 0)
            return x_BD + h_BF @ wo, None

        keys = None if key is None else jax.random.split(key, LAYERS)
        start = batch["x"] + 0.1 * carry
        x_BD, _ = jax.lax.scan(layer, start, (self.wi[...], self.wo[...], keys))
        x_BD = x_BD * self.scale[...]
        near = (((x_BD - 1) ** 2).mean(-1) * batch["mask_near"]).sum()
        far = (((x_BD + 2) ** 2).mean(-1) * batch["mask_far"]).sum()
        metrics = {
            "loss": (near, batch["mask_near"].sum()),
            "far": (far, batch["mask_far"].sum()),
            "tokens": (batch["mask_near"].sum(), jnp.float32(1)),
        }
        scalar = near / weights["near"] + 0.5 * far / weights["far"]
        return scalar, metrics, jax.lax.stop_gradient(x_BD)


def layout(**mesh: int) -> partitioning.Layout:
    """A layout on as many of the first devices as the mesh needs."""
    count = int(np.prod(list(mesh.values())))
    return partitioning.make_layout(mesh, devices=jax.devices()[:count])


@dataclasses.dataclass(frozen=True, kw_only=True)
class Phase:
    """A `periods.LoopPhase` with batches and an evaluation of the test."""

    program: step.Program
    batches: Callable[[int], Iterator[Any]]
    start: int = 0
    evaluate: Callable[[Any], Mapping[str, float]] | None = None
    complete: Completion = dataclasses.field(default_factory=Completion)


def build(
    optimizer: optax.GradientTransformation | None = None,
    where: partitioning.Layout | None = None,
    **options: Any,
) -> step.Program:
    dropout, square = options.pop("dropout", 0.1), options.pop("square", False)
    return step.build(
        lambda rngs: Tiny(dropout, rngs=rngs, square=square),
        optimizer or optimizers.adamw(1e-2),
        where or layout(data=1),
        step.StepOptions(**{"batch_size": BATCH, **options}),
    )


def rows(n: int) -> dict[str, np.ndarray]:
    """The whole batch of step n: a few rows count for one term, many for the other."""
    rng = np.random.default_rng(n)
    return {
        "x": rng.normal(size=(BATCH, D)).astype(np.float32),
        "mask_near": (rng.random(BATCH) < 0.7).astype(np.float32),
        "mask_far": (np.arange(BATCH) % 4 == n % 4).astype(np.float32),
    }


def batch(where: partitioning.Layout, n: int) -> dict[str, jax.Array]:
    mine = global_batches.process_rows(where, BATCH)
    local = {name: x[mine] for name, x in rows(n).items()}
    return global_batches.to_global(where, local, rows=mine, batch_size=BATCH)


def batches(where: partitioning.Layout, start: int) -> Iterator[dict[str, jax.Array]]:
    """Endless batches, from that of step `start` on."""
    while True:
        yield batch(where, start)
        start += 1


def run(
    program: step.Program, where: partitioning.Layout, steps: int, *, state: Any = None
) -> tuple[step.TrainState, list[float]]:
    """The state after some steps, from a state or from the start, and the loss of each step."""
    state = program.init(jax.random.key(0)) if state is None else state
    losses = []
    for n in range(int(state.step), int(state.step) + steps):
        state, metrics = program.step(state, batch(where, n), jax.random.key(1))
        total, weight = metrics["loss"]
        losses.append(float(total / weight))
    return state, losses


def assert_same(got: Any, want: Any) -> None:
    """Asserts that two trees are equal bit for bit, in the same layout."""
    assert jax.tree.structure(got) == jax.tree.structure(want)
    for (path, a), b in zip(
        jax.tree_util.tree_leaves_with_path(got), jax.tree.leaves(want), strict=True
    ):
        name = jax.tree_util.keystr(path)
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b), err_msg=name)


def run_metrics(program: step.Program, where: partitioning.Layout) -> dict[str, Any]:
    """The metrics of the first step."""
    state = program.init(jax.random.key(0))
    return program.step(state, batch(where, 0), jax.random.key(1))[1]
