"""Curves read from logs and drawn."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from t5x_like.reporting import curves, drawing


def write(directory: Path, *lines: dict[str, object]) -> Path:
    directory.mkdir()
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (directory / "metrics.jsonl").write_text(text + '{"step": 9, "train/lo')
    return directory


def test_losses_of_training_and_of_each_evaluation(tmp_path: Path) -> None:
    run = curves.read_curves(
        write(
            tmp_path / "run",
            {"step": 1, "train/loss": 3.0, "train/z_loss": 0.1},
            {"step": 2, "train/loss": None},
            {"step": 2, "eval/a/loss": 2.0, "eval/b/token_loss": 0.0, "eval/a/accuracy": 0.5},
            {"step": 3, "train/loss": 1.5},
            {"step": 0, "baseline/a/loss": 4.0},
        )
    )
    assert {name: run.values[name] for name in run.losses()} == {
        "train/loss": ([1, 3], [3.0, 1.5]),
        "eval/a/loss": ([2], [2.0]),
        "eval/b/token_loss": ([2], [0.0]),
    }
    assert run.baselines == {"eval/a/loss": ([0], [4.0])}
    assert run.end == 3


def test_numbers_that_no_picture_can_show_are_left_out() -> None:
    lines = [{"step": 2**60, "train/loss": 1.0}, {"step": 1, "train/loss": 10**400}, {"step": 2}]
    assert curves.curves_of("run", lines).values == {}


def test_metrics_are_chosen_by_patterns() -> None:
    run = curves.curves_of("run", [{"step": 1, "train/loss": 1, "eval/a/loss": 2, "eval/b/x": 3}])
    assert curves.choose([run], "train/loss, eval/*") == ["train/loss", "eval/a/loss", "eval/b/x"]
    assert curves.choose([run], "*/loss") == ["eval/a/loss", "train/loss"]
    with pytest.raises(ValueError, match="no metric is named 'eval/losses'; nearest: eval/a/loss"):
        curves.choose([run], "train/loss,eval/losses")
    with pytest.raises(ValueError, match="known metrics: eval/a/loss, eval/b/x, train/loss"):
        curves.choose([run], "!")


def test_phases_and_baselines_are_drawn_and_names_are_text() -> None:
    lines = [
        {"step": 1, "train/loss": 3.0, "eval/$x$<b>/loss": 2.5},
        {"step": 0, "baseline/$x$<b>/loss": 2.75},
        {"step": 9, "train/loss": 2.0, "baseline/$x$<b>/loss": 2.25},
    ]
    run = curves.curves_of("run", lines, phases=[0, 5, 99])
    figure = drawing.draw([run], run.losses())
    (axes,) = figure.axes
    drawn = [(list(line.get_xdata()), list(line.get_ydata())) for line in axes.lines]
    assert ([0, 9], [2.75, 2.75]) in drawn
    assert [text.get_text().strip() for text in axes.texts] == ["phase 2"]
    page = drawing.svg([run], run.losses())
    assert page.startswith("<svg ")
    assert "$x$&lt;b&gt;" in page
    assert "<b>" not in page


@pytest.mark.parametrize("names", [["one"], ["one", "two"], ["same", "same"]])
def test_runs_and_tasks_are_told_apart_beside_a_legend(names: list[str]) -> None:
    lines: list[dict[str, object]] = [{"step": 0, "train/loss": 9.0}]
    for n, task in enumerate(("agnews", "subj", "trec"), 1):
        lines.append({"step": 0, f"baseline/{task}/loss": float(n)})
        lines.append({"step": 5, f"eval/{task}/loss": n - 0.5})
    runs = [curves.curves_of(name, lines) for name in names]
    figure = drawing.draw(runs, runs[0].losses())
    (axes,) = figure.axes
    assert len(axes.lines) == 7 * len(runs)
    looks = {
        (one.get_color(), one.get_marker(), one.get_markerfacecolor(), one.get_linestyle())
        for one in axes.lines
    }
    assert len(looks) == len(axes.lines)
    legend = axes.get_legend()
    assert legend is not None
    entries = [text.get_text() for text in legend.get_texts()]
    assert len({*entries}) == len(axes.lines), entries
    figure.draw_without_rendering()
    assert legend.get_window_extent().x0 >= axes.get_window_extent().x1


def test_runs_are_drawn_into_a_png(tmp_path: Path) -> None:
    runs = [
        write(tmp_path / name, {"step": 1, "train/loss": 3.0}, {"step": 1, "eval/a/loss": 2.0})
        for name in ("one", "two")
    ]
    drawing.plot(runs, tmp_path / "plots" / "curves.png")
    assert (tmp_path / "plots" / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"No metrics.jsonl in"):
        drawing.plot([tmp_path], tmp_path / "x.png")
    with pytest.raises(ValueError, match="has logged no loss yet"):
        drawing.plot([write(tmp_path / "empty")], tmp_path / "x.png")
    with pytest.raises(ValueError, match="at least one run"):
        drawing.plot([], tmp_path / "x.png")
    assert not (tmp_path / "x.png").exists()
