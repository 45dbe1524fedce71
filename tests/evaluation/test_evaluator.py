"""Held-out metrics are divided once, at the end."""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np
import pytest

from t5x_like.evaluation.evaluator import evaluate


def step(params, batch):
    weights = batch["weights"]
    return {
        "loss": (jnp.sum(params * batch["x"] * weights), jnp.sum(weights)),
        "never": (jnp.zeros(()), jnp.zeros(())),
    }


def test_mean_is_over_weights_not_over_batches() -> None:
    batches = [
        {"x": jnp.array([1.0, 2.0, 3.0]), "weights": jnp.array([1.0, 1.0, 1.0])},
        {"x": jnp.array([10.0, 99.0, 99.0]), "weights": jnp.array([1.0, 0.0, 0.0])},
    ]
    found = evaluate(step, 2.0, iter(batches))
    assert found["loss"] == pytest.approx(2 * (1 + 2 + 3 + 10) / 4)
    assert math.isnan(found["never"])


def test_small_batches_after_a_huge_one_are_not_lost() -> None:
    values = [2.0**24, *[1.0] * 64]
    batches = [{"x": jnp.array([v], jnp.float32), "weights": jnp.ones(1)} for v in values]
    found = evaluate(step, 1.0, batches)["loss"]
    assert found == float(np.sum(np.array(values, np.float64)) / 65)


def test_no_batches_no_metrics() -> None:
    assert evaluate(step, 1.0, []) == {}


def ratios(_, batch):
    """What a model of two terms emits: of 12 tokens and 4 pairs, in parts of any size."""
    nll, masked, pairs, rows = (jnp.sum(batch[name]) for name in ("nll", "masked", "pairs", "rows"))
    return {
        "loss": (jnp.stack([nll, 50 * pairs]), jnp.stack([masked, rows])),
        "mlm_loss": (nll, masked),
        "mlm_pseudo_perplexity": (nll, masked),
        "replaced_precision": (jnp.sum(batch["found"]), jnp.sum(batch["suspected"])),
    }


COLUMNS = {
    "nll": np.array([9.0, 0.5, 4.0, 2.5], np.float32),
    "masked": np.array([5.0, 1.0, 0.0, 6.0], np.float32),
    "pairs": np.array([1.0, 0.25, 0.0, 2.0], np.float32),
    "rows": np.array([1.0, 1.0, 0.0, 2.0], np.float32),
    "found": np.array([1.0, 0.0, 2.0, 0.0], np.float32),
    "suspected": np.array([3.0, 0.0, 2.0, 3.0], np.float32),
}


@pytest.mark.parametrize("parts", [1, 2, 4])
def test_ratios_and_perplexities_are_of_all_batches_together(parts: int) -> None:
    split = {name: np.split(values, parts) for name, values in COLUMNS.items()}
    batches = [{name: values[i] for name, values in split.items()} for i in range(parts)]
    found = evaluate(ratios, None, batches)
    assert found == pytest.approx(
        {
            "loss": 16 / 12 + 50 * 3.25 / 4,
            "mlm_loss": 16 / 12,
            "mlm_pseudo_perplexity": math.exp(16 / 12),
            "replaced_precision": 3 / 8,
        }
    )


@pytest.mark.parametrize("name", ["encoder_input_tokens", "decoder_causal_attention"])
def test_models_that_read_what_they_do_not_predict_have_no_bits_per_byte(name: str) -> None:
    ids, weights = np.array([[1, 2, 3]]), np.array([[1, 0, 0.5]], np.float32)
    batch = {"decoder_target_tokens": ids, "decoder_loss_weights": weights}
    table = np.array([0, 1, 50, 3], np.int32)

    def surprised(_, batch):
        return {"perplexity": (jnp.float32(8 * math.log(2)), batch["decoder_loss_weights"].sum())}

    assert evaluate(surprised, None, [batch], token_bytes=table)["bits_per_byte"] == pytest.approx(
        2
    )
    assert "bits_per_byte" not in evaluate(surprised, None, [batch])
    assert "bits_per_byte" not in evaluate(
        surprised, None, [{**batch, name: ids}], token_bytes=table
    )


def test_a_perplexity_past_all_numbers_is_infinite() -> None:
    assert evaluate(lambda *_: {"perplexity": (1e6, 1.0)}, None, [{}]) == {"perplexity": math.inf}
