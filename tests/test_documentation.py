"""The worked examples of the documentation work."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from t5x_like import objectives
from t5x_like.cli import main

DOCS = Path(__file__).parent.parent / "docs"


@pytest.fixture
def neighbour_swap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Puts the objective of new_objective.md beside ours; returns the code of its test."""
    page = (DOCS / "new_objective.md").read_text(encoding="utf-8")
    module, test = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (tmp_path / "neighbour_swap.py").write_text(module)
    monkeypatch.setattr(objectives, "__path__", [*objectives.__path__, str(tmp_path)])
    monkeypatch.delitem(sys.modules, "t5x_like.objectives.neighbour_swap", raising=False)
    yield test
    sys.modules.pop("t5x_like.objectives.neighbour_swap", None)


def test_the_new_objective_is_found_and_passes_its_test(neighbour_swap: str):
    assert objectives.summaries()["neighbour_swap"] == "restore the order of swapped neighbours"
    names: dict = {}
    exec(compile(neighbour_swap, "new_objective.md", "exec"), names)
    tests = [value for name, value in names.items() if name.startswith("test_")]
    assert len(tests) == 2
    for test in tests:
        test()


def test_the_new_objective_is_shown(
    neighbour_swap: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "text.txt").write_text(
        "\n\n".join(f"document {i} of a few words" for i in range(40))
    )
    named = [f"--corpus={tmp_path / 'text.txt'}", "--vocabulary=bytes", f"--cache_dir={tmp_path}"]
    assert main.main(["show", *named, "--objective=neighbour_swap", "--length=32"]) == 0
    assert "inputs length: 32 of 32 (0% padding)" in capsys.readouterr().out


def test_every_objective_has_its_example():
    page = (DOCS / "objectives.md").read_text(encoding="utf-8")
    variants = re.compile(r"_(rate|length)_\d+$")
    for name in objectives.presets():
        assert variants.search(name) or f"\n### {name}\n" in page, name
