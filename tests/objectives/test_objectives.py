"""Objectives are found by name, and the package stays pure NumPy."""

from __future__ import annotations

import subprocess
import sys
import types

import pytest

from t5x_like import objectives
from t5x_like.objectives import span_corruption
from t5x_like.objectives.parts.geometry import ConcatenateAndSplit


def test_presets_are_collected_from_the_modules():
    assert objectives.presets()["span_corruption"] == span_corruption.SpanCorruption()
    assert objectives.preset("span_corruption") == span_corruption.SpanCorruption()


def test_an_unknown_preset_names_the_nearest():
    with pytest.raises(
        ValueError, match=r"no objective 'span_coruption'.*nearest: span_corruption"
    ):
        objectives.preset("span_coruption")


def test_two_modules_cannot_claim_a_name(monkeypatch: pytest.MonkeyPatch):
    twin = types.ModuleType("t5x_like.objectives.lm")
    twin.PRESETS = {"span_corruption": object()}
    monkeypatch.setitem(sys.modules, "t5x_like.objectives.lm", twin)
    with pytest.raises(ValueError, match="defined twice"):
        objectives.presets()
    twin.SUMMARIES = {"span_corruption": "another"}
    with pytest.raises(ValueError, match="defined twice"):
        objectives.summaries()


def test_an_empty_sample_is_no_geometry():
    with pytest.raises(ValueError, match="at least one token"):
        ConcatenateAndSplit(0)


def test_objectives_import_nothing_heavy():
    code = (
        "import sys; from t5x_like import objectives; objectives.presets();"
        "print([m for m in ('jax', 'tensorflow', 'seqio', 'grain') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
