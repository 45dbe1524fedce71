"""A second encoder before BART's: what its two stages train, and a run through both."""

from __future__ import annotations

import functools
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from kinds_of_labels import untrained

import t5x_like as t5x
from t5x_like.layers.adapters import source_encoder
from t5x_like.models import bart
from t5x_like.runs.settings.finetuning import two_stages
from t5x_like.training.optimization import layerwise
from t5x_like.training.optimization.freezing import trainable_mask
from t5x_like.training.optimization.parameter_paths import by_path

CONFIG = bart.Config(
    vocab_size=40,
    d_model=16,
    d_ff=24,
    num_heads=4,
    pad_id=0,
    init_std=0.3,
    num_encoder_layers=3,
    num_decoder_layers=1,
    max_positions=12,
    dropout_rate=0.0,
    attention_dropout_rate=0.0,
)
MAKE = functools.partial(bart.Bart, CONFIG)


def test_the_first_stage_trains_what_reads_the_new_language() -> None:
    model = nnx.eval_shape(
        lambda: source_encoder.adapt(MAKE(rngs=nnx.Rngs(0)), rngs=nnx.Rngs(1), source_layers=2)
    )
    state = nnx.state(model, nnx.Param)
    shapes, numbers = nnx.to_pure_dict(state), layerwise.numbers_of(state)
    first, last = two_stages.phases(MAKE, 40)
    assert (first.steps, last.steps, last.frozen) == (36, None, ())
    for path, mask in by_path(trainable_mask(shapes, first.frozen or (), numbers)).items():
        is_projection = path.startswith("encoder.layers.attention.") and ".out." not in path
        whole = path.startswith("source.") or path.endswith("coder_entry.positions")
        wanted = [True, False, False] if is_projection else [whole] * np.size(mask)
        assert np.atleast_1d(mask).tolist() == wanted, path
    with pytest.raises(ValueError, match="in two stages, and the run has one step"):
        two_stages.phases(MAKE, 1)


def test_its_states_stand_for_token_vectors_and_padding_does_not_count() -> None:
    model = source_encoder.adapt(MAKE(rngs=nnx.Rngs(0)), rngs=nnx.Rngs(1))
    tokens = jnp.array([[5, 6, 7, 0, 0], [8, 9, 10, 11, 12]])
    seen = model.encode(tokens).last
    model.embedding.table[...] = model.embedding.table[...] + 1.0
    np.testing.assert_array_equal(model.encode(tokens).last, seen)  # of the encoder's side alone
    alone = model.encode(tokens[:1, :3]).last
    np.testing.assert_allclose(seen[:1, :3], alone, atol=1e-5)
    with pytest.raises(ValueError, match="a second encoder has a layer at least, not 0"):
        source_encoder.adapt(MAKE(rngs=nnx.Rngs(0)), rngs=nnx.Rngs(1), source_layers=0)


@pytest.mark.slow
def test_a_run_learns_in_two_stages(tmp_path: Path) -> None:
    written = untrained(tmp_path / "models")
    file = tmp_path / "pairs.tsv"
    lines = [f"{n % 30} {'ada' if n % 2 else 'bert'}\tsings {'yn'[n % 2]}" for n in range(40)]
    file.write_text("\n".join(["inputs\ttargets", *lines]) + "\n")

    def run(name: str, of: str = "bart") -> t5x.Pretraining:
        return t5x.finetune(
            written(of),
            train=str(file),
            method="source_encoder",
            epochs=7,
            batch_size=16,
            learning_rate=0.01,
            model_dir=str(tmp_path / name),
            cache_dir=str(tmp_path / "cache"),
        )

    run("two_stages").train()
    learned = t5x.load(str(tmp_path / "two_stages"))
    assert learned.run
    params = by_path(learned.run.params)
    base = by_path(nnx.to_pure_dict(nnx.state(t5x.load(written("bart")).model, nnx.Param)))
    assert any("source." in path for path in params)
    matrix = "decoder.layers.mlp.wi.kernel"
    assert not np.array_equal(params[matrix], base[matrix])  # the second stage
    with pytest.raises(ValueError, match="second encoders are not a part of the model"):
        learned.export(tmp_path / "theirs")
    with pytest.raises(ValueError, match="source_encoder is for texts to write by bart, mbart"):
        run("no", "t5")
