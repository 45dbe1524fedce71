"""Pages of modelled figures hold what their scripts make of the results."""

from __future__ import annotations

from types import ModuleType

import plans
import pytest
import recorded
import scaling
import tpu_steps

from t5x_like.config import gin_files

SCRIPTS = [plans, scaling, tpu_steps]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_the_page_has_the_tables_of_the_results(script: ModuleType) -> None:
    text = script.PAGE.read_text(encoding="utf-8")
    _, _, rest = text.partition(script.BEGIN)
    found, end, _ = rest.partition(script.END)
    lines = recorded.read(script.LINES)
    if script is plans:
        want = plans.tables(lines)
    elif script is scaling:
        want = scaling.table(lines)
    else:
        want = tpu_steps.table(lines)
    assert end
    assert found == f"\n{want}\n"


def test_every_program_is_a_published_recipe() -> None:
    assert {recipe for recipe, _ in tpu_steps.PROGRAMS.values()} <= set(plans.published())
    assert set(tpu_steps.BEFORE) <= set(tpu_steps.PROGRAMS)
    assert {one["name"] for one in recorded.read(tpu_steps.LINES)} <= set(tpu_steps.PROGRAMS)


def test_a_recipe_that_does_not_fit_stands_out() -> None:
    line = {
        "recipe": "bert_base",
        "topology": "v5e-16",
        "fits": False,
        "estimated": True,
        "gigabytes": 20.04,
        "microbatches": 4,
        "rows": 256,
    }
    assert "| bert_base | 256 | **~20.0 (4)** |" in plans.tables([line])
    smaller = {**line, "topology": "v5e-1", "gigabytes": 80.0}
    refused = {"recipe": "bert_base", "topology": "v5e-256", "fits": False, "refused": "few rows"}
    larger = {**line, "topology": "v5e-4", "fits": True, "gigabytes": 10.0}
    assert "| - |  |  | ~v5e-4 |" in plans.tables([line, smaller, refused, larger])
    assert all(name in gin_files.published_recipes() for name in plans.published())
