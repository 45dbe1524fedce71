"""DeBERTa v3: who sends which gradient to which table, and what is exported."""

from __future__ import annotations

import functools
import math
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from tiny_families import FAMILIES, LENGTH, ROWS, masked

from t5x_like.core.parameters import is_decayed
from t5x_like.core.partitioning import make_layout
from t5x_like.interop.hugging_face import model_directory
from t5x_like.models import deberta_v3
from t5x_like.training import step
from t5x_like.training.optimization.parameter_paths import by_path

DISCRIMINATOR = "discriminator.encoder.embedding.tokens.table"
BATCH = {name: jnp.asarray(x) for name, x in masked(np.random.default_rng(0)).items()}
RATE, CLIP = 0.5, 0.3
GENERATOR = "generator.encoder.embedding.tokens.table"


def made(sharing: str) -> deberta_v3.DebertaV3:
    return jax.jit(
        lambda: FAMILIES["deberta_v3"].make(embedding_sharing=sharing)(rngs=nnx.Rngs(0))
    )()


def parameters(model: Any) -> dict[str, Any]:
    return by_path(nnx.to_pure_dict(nnx.state(model, nnx.Param)))


def moved(model: deberta_v3.DebertaV3) -> deberta_v3.DebertaV3:
    """The model with a difference that is not 0."""
    assert model.difference is not None
    noise = jax.random.normal(jax.random.key(1), model.difference.shape) / 10
    model.difference = model.difference.replace(noise)
    return model


@pytest.mark.parametrize(
    ("sharing", "of_generator", "of_discriminator"),
    [
        ("gdes", {DISCRIMINATOR}, {"difference"}),
        ("es", {DISCRIMINATOR}, {DISCRIMINATOR}),
    ],
)
def test_which_loss_trains_which_table(
    sharing: str, of_generator: set[str], of_discriminator: set[str]
) -> None:
    model = made(sharing)
    tables = {DISCRIMINATOR, GENERATOR, "difference"} & parameters(model).keys()

    def sums(model: Any) -> dict[str, jax.Array]:
        return {name: term.sum for name, term in model.terms(BATCH, None, ())[0].items()}

    grads = jax.jit(jax.jacrev(sums, allow_int=True))(model)
    for name, trained in (("generator", of_generator), ("discriminator", of_discriminator)):
        flat = parameters(grads[name])
        assert {path for path in tables if np.any(np.asarray(flat[path]))} == trained
        others = {"generator": "discriminator.", "discriminator": "generator."}[name]
        for path in flat.keys() - tables:
            assert not (path.startswith(others) and np.any(np.asarray(flat[path]))), path


def test_the_difference_starts_at_0_and_decays() -> None:
    model = made("gdes")
    assert not np.any(np.asarray(model.difference))
    assert is_decayed(model.difference)


def test_the_discriminators_table_follows_the_generators() -> None:
    """Where the table moves by x and the difference does not, the discriminator's moves by x."""
    model = moved(made("gdes"))
    before = model.whole_discriminator().encoder.tokens.table[...]
    table = model.discriminator.encoder.embedding.tokens.table
    model.discriminator.encoder.embedding.tokens.table = table.replace(table[...] + 0.5)
    after = model.whole_discriminator().encoder.tokens.table[...]
    np.testing.assert_allclose(after - before, 0.5, atol=1e-6)


@pytest.mark.parametrize("sharing", ["gdes", "es", "nes"])
def test_what_is_exported_marks_as_in_training(sharing: str, tmp_path: Path) -> None:
    model = made(sharing)
    model = moved(model) if sharing == "gdes" else model
    params = jax.tree.map(np.asarray, nnx.to_pure_dict(nnx.state(model, nnx.Param)))
    abstract = nnx.eval_shape(lambda: model)
    halves = model_directory.halves(abstract, params)
    assert halves.keys() == {"discriminator", "generator"}
    back = {}
    for name, (half, half_params) in halves.items():
        model_directory.write(tmp_path / name, half, half_params)
        found = model_directory.read(tmp_path / name)
        graph = nnx.graphdef(nnx.eval_shape(lambda found=found: found.make(rngs=nnx.Rngs(0))))
        back[name] = nnx.merge(graph, jax.tree.map(jnp.asarray, found.params))
    np.testing.assert_allclose(back["discriminator"].marks(BATCH), model.marks(BATCH), atol=1e-6)
    np.testing.assert_allclose(back["generator"].guesses(BATCH), model.guesses(BATCH), atol=1e-6)


def test_packed_texts_are_marked_as_alone() -> None:
    discriminator = made("es").whole_discriminator()
    tokens = jax.random.randint(jax.random.key(0), (1, LENGTH), 5, 60)
    packed = {
        "encoder_input_tokens": tokens,
        "encoder_attention_mask": jnp.ones((1, LENGTH), jnp.int32),
        "encoder_segment_ids": jnp.asarray([[1] * 6 + [2] * (LENGTH - 6)]),
        "encoder_positions": jnp.asarray([[*range(6), *range(LENGTH - 6)]]),
    }
    marks = jax.jit(discriminator.marks)
    alone = {name: packed[name][:, 6:] for name in list(packed)[:2]}
    np.testing.assert_allclose(marks(packed)[0, 6:], marks(alone)[0], atol=1e-5)


def test_settings_that_are_none_say_so() -> None:
    with pytest.raises(ValueError, match="es, nes or gdes, got 'all'"):
        deberta_v3.Config(embedding_sharing="all")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="generator_depth must be above 0"):
        deberta_v3.Config(generator_depth=0.0)


def norm(tree: Any) -> float:
    return float(optax.tree.norm(tree))


def test_a_step_has_the_generators_update_before_the_discriminators_loss() -> None:
    """In microbatches, each turn clipped by itself, as if there were two optimizers."""
    make = FAMILIES["deberta_v3"].make(exclude_original=True, temperature=1e-4)
    layout = make_layout({"data": 1}, devices=jax.devices()[:1])
    options = step.StepOptions(batch_size=ROWS, gradient_clip=CLIP, microbatches=4)
    program = step.build(make, optax.sgd(RATE), layout, options)
    state = program.init(jax.random.key(0))
    params = jax.tree.map(jnp.copy, state.params)
    after, metrics = program.step(state, BATCH, jax.random.key(1))

    def model(params: Any) -> deberta_v3.DebertaV3:
        return nnx.merge(program.graphdef, params)

    @functools.partial(jax.jit, static_argnums=1)
    def of(params: Any, name: str, replaced: Any = None) -> jax.Array:
        """The mean of one term; the samples are those of `replaced`."""
        joint = model(params)
        if name == "generator":
            term = joint.generated(BATCH, None)[0][name]
        else:
            term = joint.marked(replaced, None)[0][name]
        return term.coefficient * term.sum / term.weight

    def moved(params: Any, grads: Any) -> Any:
        shrink = min(1.0, CLIP / norm(grads))
        return jax.tree.map(lambda p, g: p - RATE * shrink * g, params, grads)

    # A temperature near 0 draws the likeliest token, whatever the key.
    replaced = jax.jit(
        lambda params: model(params).replaced(BATCH, model(params).predictions(BATCH))
    )(params)
    value_and_grad = jax.value_and_grad(of)
    generator_loss, of_generator = value_and_grad(params, "generator")
    first = moved(params, of_generator)
    discriminator_loss, of_discriminator = value_and_grad(first, "discriminator", replaced)
    want = moved(first, of_discriminator)
    jax.tree.map(
        lambda got, want: np.testing.assert_allclose(got, want, atol=2e-6), after.params, want
    )
    _, together = value_and_grad(params, "discriminator", replaced)
    apart = jax.tree.leaves(jax.tree.map(jnp.subtract, together, of_discriminator))
    assert max(float(jnp.abs(x).max()) for x in apart) > 1e-4  # the order makes a difference
    assert after.carry == ()
    total, weight = metrics["grad_norm"]
    both = np.hypot(norm(of_generator), norm(of_discriminator))
    np.testing.assert_allclose(total / weight, both, rtol=1e-4)
    sums, weights = metrics["loss"]
    losses = [float(generator_loss), float(discriminator_loss)]
    np.testing.assert_allclose(sums / weights, losses, rtol=1e-5)
    assert losses[1] / 10 == pytest.approx(math.log(2), abs=0.05)  # nothing is known yet
