"""A step of DeBERTa v3: the generator's update comes before the discriminator's loss."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from t5x_like.core.partitioning import make_layout
from t5x_like.models import deberta_v3
from t5x_like.training import step

sys.path.insert(0, str(Path(__file__).parents[2] / "models"))
from tiny_families import FAMILIES, ROWS, masked  # noqa: E402

RATE, CLIP = 0.5, 0.3


def norm(tree: Any) -> float:
    return float(optax.tree.norm(tree))


@pytest.mark.parametrize("microbatches", [1, 4])
def test_the_discriminator_reads_a_table_that_is_an_update_newer(microbatches: int) -> None:
    make = FAMILIES["deberta_v3"].make(exclude_original=True, temperature=1e-4)
    layout = make_layout({"data": 1}, devices=jax.devices()[:1])
    options = step.StepOptions(batch_size=ROWS, gradient_clip=CLIP, microbatches=microbatches)
    program = step.build(make, optax.sgd(RATE), layout, options)
    state = program.init(jax.random.key(0))
    params = jax.tree.map(jnp.copy, state.params)
    batch = {name: jnp.asarray(x) for name, x in masked(np.random.default_rng(0)).items()}
    after, metrics = program.step(state, batch, jax.random.key(1))

    def model(params: Any) -> deberta_v3.DebertaV3:
        return nnx.merge(program.graphdef, params)

    def of(params: Any, name: str, replaced: Any = None) -> jax.Array:
        """The mean of one term; the samples are those of `replaced`."""
        joint = model(params)
        if name == "generator":
            term = joint.generated(batch, None)[0][name]
        else:
            term = joint.marked(replaced, None)[0][name]
        return term.coefficient * term.sum / term.weight

    def moved(params: Any, grads: Any) -> Any:
        shrink = min(1.0, CLIP / norm(grads))
        return jax.tree.map(lambda p, g: p - RATE * shrink * g, params, grads)

    # A temperature near 0 draws the likeliest token, whatever the key.
    replaced = model(params).replaced(batch, model(params).predictions(batch))
    of_generator = jax.grad(of)(params, "generator")
    first = moved(params, of_generator)
    of_discriminator = jax.grad(of)(first, "discriminator", replaced)
    want = moved(first, of_discriminator)
    jax.tree.map(
        lambda got, want: np.testing.assert_allclose(got, want, atol=2e-6), after.params, want
    )
    together = jax.grad(of)(params, "discriminator", replaced)
    table = jax.tree.leaves(jax.tree.map(jnp.subtract, together, of_discriminator))
    assert max(float(jnp.abs(x).max()) for x in table) > 1e-4  # the order makes a difference
    assert after.carry == ()
    total, weight = metrics["grad_norm"]
    both = np.hypot(norm(of_generator), norm(of_discriminator))
    np.testing.assert_allclose(total / weight, both, rtol=1e-4)
    for name in ("generator", "discriminator"):
        at = params if name == "generator" else first
        sums, weights = metrics[f"{name}_loss"]
        mean = of(at, name, replaced) / (1 if name == "generator" else 10)
        np.testing.assert_allclose(sums / weights, mean, rtol=1e-5)
