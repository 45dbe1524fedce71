"""What trains: frozen parameters stay to the last bit, and eight devices learn as one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from kinds_of_labels import ONE, losses, opened, untrained

import t5x_like as t5x
from t5x_like.layers.adapters import bottleneck, ia3, lora, prefix, prompt
from t5x_like.runs.trained.merging.merged_runs import merge
from t5x_like.training.checkpointing.checkpoint_items import CheckpointError
from t5x_like.training.optimization.parameter_paths import by_path

OWN = {
    "head": (),
    "bitfit": ("bias",),
    "lora": lora.TRAINED,
    "rslora": lora.TRAINED,
    "dora": lora.TRAINED,
    "ia3": ia3.TRAINED,
    "adapters": (*bottleneck.TRAINED, "scale", "bias"),
    "features": ("weights", "gamma"),
    "prefix": prefix.TRAINED,
    "prompt": prompt.TRAINED,
}
"""The last names of what trains besides the head."""
WEAK = ("head", "bitfit", "features", "prefix", "prompt")
"""The methods that learn little beside a body that has learned nothing."""
CELLS = [
    *(("bert", method) for method in OWN if method != "rslora"),
    pytest.param("bert", "rslora", marks=pytest.mark.matrix),  # LoRA with another factor
    *(pytest.param(of, "lora", marks=pytest.mark.matrix) for of in ("xlnet", "gpt2", "t5")),
    ("bart", "lora"),
    ("t5", "prefix"),
    ("gpt2", "prompt"),
]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    return untrained(tmp_path_factory.mktemp("models"))


@pytest.mark.slow
@pytest.mark.parametrize(("family", "method"), CELLS)
def test_what_does_not_train_stays(
    family: str, method: str, written: Callable[[str], str], tmp_path: Path
) -> None:
    rate = 0.01 if method in ("rslora", "adapters", "prefix") else 0.05
    with_dropout = t5x.Method(method, lora_dropout=0.1)
    way = with_dropout if method == "dora" else method
    given: dict[str, Any] = {"method": way, "learning_rate": rate}
    alone = opened(written(family), "classes", tmp_path, ONE, **given)
    seen = losses(alone, 30)
    least = 0.98 if method in WEAK else 0.8
    assert min(seen) < least * seen[0], seen
    batch = next(alone.batches(0))
    start = alone.program.init(jax.random.key(0))
    before = {path: np.array(value) for path, value in by_path(start.params).items()}
    after, _ = alone.program.step(start, batch, jax.random.key(1))
    after, _ = alone.program.step(after, batch, jax.random.key(1))
    changed = {
        path
        for path, value in by_path(after.params).items()
        if not np.array_equal(value, before[path])
    }
    trains = {
        path
        for path in before
        if path.startswith(("head.", "mixture.")) or path.rpartition(".")[2] in OWN[method]
    }
    if method == "adapters":  # of biases and scales those of norms
        trains = {p for p in trains if "norm." in p or p.rpartition(".")[2] not in OWN[method][-2:]}
        trains |= {path for path in before if path.startswith("head.")}
    unused = {path for path in trains if path.endswith("key.bias")}  # softmax does not see them
    assert trains - unused <= changed <= trains
    together = losses(opened(written(family), "classes", tmp_path, **given), 2)
    np.testing.assert_allclose(together, seen[:2], rtol=2e-4)


def test_settings_that_do_not_fit_are_refused(
    written: Callable[[str], str], tmp_path: Path
) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("text,label\n" + "".join(f"ada {n},{n % 2}\n" for n in range(40)))

    def run(family: str, **given: Any) -> t5x.Pretraining:
        place = {"model_dir": str(tmp_path / "run"), "cache_dir": str(tmp_path / "cache")}
        return t5x.finetune(written(family), train=str(file), **place, **given)

    made = run("bert", method=t5x.Method("lora", 2, places=("query", "wo"), lora_dropout=0.1))
    assert made.run.adapt.keywords["lora_dropout"] == 0.1
    new = 2 * (32 + 32) + 2 * (64 + 32)
    head = 32 * 32 + 32 + 32 * 2 + 2
    assert any(line.startswith(f"Trains {new + head:,} of ") for line in made.notes), made.notes
    for method, error in (
        ("lara", "there is no method 'lara'.*lora"),
        (t5x.Method(rank=4), "rank is a setting of the methods lora, rslora, dora, not of full"),
        (t5x.Method("ia3", width=4), "width is a setting of the methods adapters, not of ia3"),
        (t5x.Method("lora", places=("keys",)), "no matrix of a layer is named 'keys'"),
    ):
        with pytest.raises(ValueError, match=error):
            run("bert", method=method)
    with pytest.raises(ValueError, match="would start layers afresh that lora freezes"):
        run("bert", method="lora", reinit_layers=1)
    with pytest.raises(ValueError, match="head trains the head alone, and a model that writes"):
        run("t5", method="head")
    with pytest.raises(ValueError, match="bitfit trains biases, and this model has none"):
        run("t5", method="bitfit")


@pytest.mark.slow
def test_lora_resumes_is_asked_and_leaves_as_a_whole_model(
    written: Callable[[str], str], tmp_path: Path
) -> None:
    file = tmp_path / "rows.csv"
    lines = [f"{'ada' if n % 2 else 'bert'} sings {n % 30},{'yn'[n % 2]}" for n in range(96)]
    file.write_text("\n".join(["text,label", *lines]) + "\n")

    def run(name: str, **settings: Any) -> t5x.Pretraining:
        return t5x.finetune(
            written("bert"),
            train=str(file),
            method=t5x.Method("dora", rank=4, **settings),
            epochs=4,
            batch_size=16,
            learning_rate=0.02,
            model_dir=str(tmp_path / name),
            cache_dir=str(tmp_path / "cache"),
        )

    run("straight").train()
    for step in run("broken").steps():
        if step.step == 9:
            break
    with pytest.raises(CheckpointError, match=r"adapt\.alpha: 16\.0 then, 8 now\nChoose another"):
        run("broken", alpha=8).train()
    run("broken", alpha=16).train()
    straight, broken = (t5x.load(str(tmp_path / name)) for name in ("straight", "broken"))
    params = [by_path(model.run.params) for model in (straight, broken) if model.run]
    jax.tree.map(np.testing.assert_array_equal, *params)
    folder = tmp_path / "straight" / "checkpoints" / str(straight.step) / "params"
    listed = json.loads((folder / "_METADATA").read_text())["tree_metadata"].values()
    kept = {".".join(part["key"] for part in leaf["key_metadata"]) for leaf in listed}
    assert kept == {p for p in params[0] if p.startswith("head.") or "lora_" in p}
    texts = ["ada sings 3", "bert sings 8"]
    said = straight.predict(texts)
    assert [answer["label"] for answer in said] == ["n", "y"]
    with pytest.raises(ValueError, match="was fine-tuned with new parameters beside its matrices"):
        t5x.finetune(str(tmp_path / "straight"), train=str(file))
    other = straight.beside(tmp_path / "broken")
    assert other.predict(texts) == said
    arrays = [by_path(model.run.params) for model in (straight, other) if model.run]
    same = {path for path, x in arrays[0].items() if x is arrays[1][path]}
    assert same == arrays[0].keys() - kept
    runs = [str(tmp_path / name) for name in ("straight", "broken")]
    merge(runs[:1], str(tmp_path / "whole"))
    merge(runs, str(tmp_path / "soup"), weights=[3, 1])
    merge(runs, str(tmp_path / "ties"), how="ties", density=1.0)
    lines: list[str] = []
    merge(runs, str(tmp_path / "greedy"), how="greedy", report=lines.append)
    assert [line.endswith("kept") for line in lines] == [True, True]
    for name in ("whole", "soup", "ties", "greedy"):  # both runs are the same
        model = t5x.load(str(tmp_path / name))
        for answer, ours in zip(model.predict(texts), said, strict=True):
            assert answer["probabilities"] == pytest.approx(ours["probabilities"], abs=1e-5)
    with pytest.raises(ValueError, match="is not a run that left parameters to its base"):
        straight.beside(tmp_path / "whole")
    with pytest.raises(ValueError, match=r"these runs started from .*bert, None"):
        merge([runs[0], str(tmp_path / "whole")], str(tmp_path / "no"), how="ties")
    straight.export(tmp_path / "theirs")
    whole = t5x.load(str(tmp_path / "theirs")).predict(texts)
    for answer, ours in zip(whole, said, strict=True):
        assert answer["label"] == ours["label"]
        assert answer["probabilities"] == pytest.approx(ours["probabilities"], abs=1e-5)
