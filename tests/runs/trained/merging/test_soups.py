"""Merged parameters: means, TIES as PEFT has it, and what cannot be merged."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from t5x_like.runs.trained.merging import greedy_soup, merged_runs, soups


def models(count: int = 3) -> tuple[np.ndarray, list[np.ndarray]]:
    rng = np.random.default_rng(0)
    base = rng.normal(size=(6, 5)).astype(np.float32)
    return base, [base + rng.normal(size=base.shape).astype(np.float32) for _ in range(count)]


def test_a_mean_has_the_weights_of_its_models() -> None:
    _, some = models(2)
    np.testing.assert_allclose(soups.mean(some, [0.75, 0.25]), 0.75 * some[0] + 0.25 * some[1],
                               rtol=1e-6)  # fmt: skip


@pytest.mark.filterwarnings("ignore:The density 1.0")
@pytest.mark.parametrize("density", [0.2, 0.5, 1.0])
def test_ties_is_that_of_peft(density: float) -> None:
    torch = pytest.importorskip("torch")
    merge_utils = pytest.importorskip("peft.utils.merge_utils")
    base, some = models()
    want = merge_utils.ties([torch.tensor(x - base) for x in some], torch.ones(3), density, "total")
    got = soups.ties(base, some, density=density, scale=0.5)
    np.testing.assert_allclose(got, base + 0.5 * want.numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("higher", [True, False])
def test_a_greedy_soup_takes_what_makes_it_no_worse(higher: bool) -> None:
    rng = np.random.default_rng(1)
    some = rng.normal(size=(7, 3)).astype(np.float32)
    some[4] = some[2]  # as good, so that it joins
    sign = 1 if higher else -1
    measured: list[np.ndarray] = []

    def measure(params: Any) -> float:
        measured.append(params["w"])
        return sign * -float(np.square(params["w"]).sum())

    tried = [*greedy_soup.greedy(7, lambda n: {"w": some[n]}, measure, higher=higher)]
    alone = [sign * measure({"w": x}) for x in some]
    assert [of.number for of in tried] == sorted(range(7), key=lambda n: -alone[n])
    kept: list[int] = []
    for of in tried:
        assert of.alone == sign * alone[of.number]
        mean = {"w": np.mean(some[[*kept, of.number]], axis=0)}
        before = sign * measure({"w": np.mean(some[kept], axis=0)}) if kept else -np.inf
        assert of.together == pytest.approx(measure(mean), rel=1e-5)
        assert of.kept == (sign * of.together >= before - 1e-7)
        kept += [of.number] if of.kept else []
    assert 1 < len(kept) < 7


def test_settings_that_do_not_fit_are_refused(tmp_path_factory: pytest.TempPathFactory) -> None:
    place = str(tmp_path_factory.mktemp("merged") / "new")
    for given, error in (
        ({"how": "slerp"}, "there is no way 'slerp' to merge"),
        ({"density": 0.5}, "density and scale are settings of ties"),
        ({"how": "ties", "weights": [1, 2]}, "weights are a setting of a mean"),
        ({"how": "ties", "density": 2.0}, "density is above 0 and at most 1, not 2"),
        ({"how": "greedy", "weights": [1, 2]}, "weights are a setting of a mean, not of greedy"),
        ({"weights": [1]}, "there are 2 runs and 1 weights"),
        ({"steps": [1, 2]}, "steps and last are for the mean of one run"),
    ):
        with pytest.raises(ValueError, match=error):
            merged_runs.merge(["one", "two"], place, **given)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="ties is for what several runs agree on"):
        merged_runs.merge(["one"], place, how="ties")
    for given, error in (
        ({"steps": [5, 5]}, "two different steps"),
        ({"steps": [5], "last": 3}, "give one of them"),
        ({"last": 1}, "the last 2 checkpoints at least"),
        ({"last": 2, "step": "best"}, "without step"),
    ):
        with pytest.raises(ValueError, match=error):
            merged_runs.merge(["one"], place, **given)  # type: ignore[arg-type]


def test_a_mean_may_be_that_of_checkpoints_of_one_run(monkeypatch: pytest.MonkeyPatch) -> None:
    written: dict[str, Any] = {}

    def read(directory: str, step: int) -> SimpleNamespace:
        known = {"vocabulary": None, "labels": (), "original": None}
        params = {"w": np.full(2, step, np.float32)}
        return SimpleNamespace(directory=directory, step=step, params=params, **known)

    def write(target: str, make: Any, params: Any, *, title: str, **rest: Any) -> None:
        written.update(params=params, title=title)

    monkeypatch.setattr(merged_runs, "_read", read)
    monkeypatch.setattr(merged_runs.saved_model, "write", write)
    monkeypatch.setattr(merged_runs.saved_model, "constructor", lambda *_, **__: None)
    monkeypatch.setattr(merged_runs.Checkpoints, "steps", lambda _: [10, 2, 40])
    line = merged_runs.merge(["run"], "new", last=2)
    np.testing.assert_array_equal(written["params"]["w"], [25, 25])
    assert line == "new: The mean of steps 40, 10 of run."
    merged_runs.merge(["run"], "new", steps=[2, 10], weights=[3, 1])
    np.testing.assert_array_equal(written["params"]["w"], [4, 4])
    with pytest.raises(ValueError, match="has 3 checkpoints, not 4"):
        merged_runs.merge(["run"], "new", last=4)
