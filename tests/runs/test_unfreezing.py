"""Gradual unfreezing: what trains in each phase, and a run through its phases."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flax import nnx
from kinds_of_labels import untrained

import t5x_like as t5x
from t5x_like.layers.heads import label_heads
from t5x_like.models import albert, bert, t5
from t5x_like.models.finetuned import FineTuned
from t5x_like.runs.settings.finetuning import unfreezing
from t5x_like.training.optimization import layerwise
from t5x_like.training.optimization.freezing import trainable_mask
from t5x_like.training.optimization.parameter_paths import by_path

SIZES: dict[str, Any] = {"vocab_size": 40, "d_model": 16, "d_ff": 24, "num_heads": 4}


def trained(make: functools.partial[Any], steps: int) -> list[dict[str, np.ndarray]]:
    """{path: what trains} in each phase."""
    state = nnx.state(nnx.eval_shape(lambda: make(rngs=nnx.Rngs(0))), nnx.Param)
    numbers, shapes = layerwise.numbers_of(state), nnx.to_pure_dict(state)
    phases = unfreezing.phases(make, steps, model_type="other")
    assert [phase.steps for phase in phases[:-1]] == [steps // len(phases)] * (len(phases) - 1)
    return [by_path(trainable_mask(shapes, phase.frozen or (), numbers)) for phase in phases]


def test_layers_follow_the_head_from_the_top() -> None:
    body = functools.partial(bert.Encoder, bert.Config(num_layers=3, max_positions=12, **SIZES))
    head = functools.partial(label_heads.TokenHead, num_labels=2)
    seen = trained(functools.partial(FineTuned, body, head), 9)
    wanted = [[], [2], [1, 2], [0, 1, 2]]
    for phase, layers in zip(seen, wanted, strict=True):
        for path, mask in phase.items():
            if path.startswith("head."):
                assert mask.all()
            elif "layers" in path:
                assert np.flatnonzero(np.broadcast_to(mask, 3)).tolist() == layers
            else:  # embeddings, with the lowest layer
                assert mask.all() == (len(layers) == 3)


def test_both_stacks_of_a_t5_are_freed_at_once_from_their_tops() -> None:
    config = t5.Config(d_kv=4, num_encoder_layers=3, num_decoder_layers=2, **SIZES)
    seen = trained(functools.partial(t5.T5, config), 10)
    for phase, free in zip(seen, (1, 2, 3), strict=True):
        for path, mask in phase.items():
            if path.endswith("_norm.scale") and "layers" not in path:
                assert mask.all()  # the last norms are above the stacks
            elif "layers" in path:
                count = 2 if path.startswith("decoder") else 3
                assert np.broadcast_to(mask, count).sum() == min(free, count)
            else:
                assert mask.all() == (free == 3)


def test_what_cannot_be_freed_in_turn_is_refused() -> None:
    shared = functools.partial(
        albert.Albert, albert.Config(num_layers=3, max_positions=12, **SIZES)
    )
    with pytest.raises(ValueError, match="all layers of this model are one"):
        unfreezing.phases(shared, 9, model_type="albert")
    config = t5.Config(d_kv=4, num_encoder_layers=3, num_decoder_layers=2, **SIZES)
    with pytest.raises(ValueError, match=r"3 phases, one for each layer .* the run 2 steps"):
        unfreezing.phases(functools.partial(t5.T5, config), 2, model_type="t5")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    return untrained(tmp_path_factory.mktemp("models"))


@pytest.mark.slow
def test_a_run_frees_its_layers_and_resumes(written: Callable[[str], str], tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("text,label\n" + "".join(f"ada sings {n},{n % 2}\n" for n in range(40)))

    def run(name: str) -> t5x.Pretraining:
        return t5x.finetune(
            written("bert"),
            train=str(file),
            method="unfreezing",
            epochs=4,
            batch_size=16,
            model_dir=str(tmp_path / name),
            cache_dir=str(tmp_path / "cache"),
        )

    run("straight").train()
    for step in run("broken").steps():
        if step.step == 5:
            break
    run("broken").train()
    first, straight, broken = (
        by_path(t5x.load(str(tmp_path / name), step=step).run.params)  # type: ignore[union-attr]
        for name, step in (("straight", 6), ("straight", None), ("broken", None))
    )
    for path, value in straight.items():
        np.testing.assert_array_equal(value, broken[path])
    base = by_path(nnx.to_pure_dict(nnx.state(t5x.load(written("bert")).model, nnx.Param)))
    query = "trunk.stack.layers.attention.query.kernel"
    np.testing.assert_array_equal(first[f"body.{query}"], base[f"encoder.{query}"])
    assert not np.array_equal(straight[f"body.{query}"], base[f"encoder.{query}"])
