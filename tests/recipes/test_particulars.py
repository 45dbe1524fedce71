"""What single recipes have and others do not: starts, teachers, weights of losses, parts."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from t5x_like.config import gin_config, gin_files
from t5x_like.objectives import lm
from t5x_like.runs.run import Run


def test_what_a_run_starts_from_and_who_teaches_it(resolved: Callable[[str], Run]):
    student = resolved("distilbert")
    assert student.completer.directory == student.init_from.directory == "runs/bert_base"
    assert student.init_from.layers == (0, 2, 4, 7, 9, 11)
    config = gin_config.arguments_of(student.model)["config"]
    weights = (config.kl_weight, config.mlm_weight, config.cosine_weight)
    assert (weights, config.temperature) == ((5.0, 2.0, 1.0), 2.0)
    assert student.init_from.skip == ("^mlm[.](dense|norm)",)  # of its head, the bias is taken
    further = resolved("legal_bert")
    assert (further.init_from.directory, further.completer) == ("runs/bert_base", None)


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("electra_small", {"discriminator_weight": 50.0, "generator_width": 0.25}),
        ("electra_large", {"discriminator_weight": 50.0, "generator_width": 0.25}),
        ("xlnet_large", {"mem_len": 384, "init_std": 0.02}),
        ("albert_base", {"init_std": 0.02}),
        ("t5_1_1_base", {"z_loss": 1e-4}),
    ],
)
def test_what_models_are_trained_with(
    name: str, fields: dict[str, float], resolved: Callable[[str], Run]
):
    config = gin_config.arguments_of(resolved(name).model)["config"]
    assert {field: getattr(config, field) for field in fields} == fields


@pytest.mark.parametrize(
    ("name", "local"), [("ettin_68m", 160_000.0), ("ettin_68m_decoder", 10_000.0)]
)
def test_the_parts_of_an_ettin(name: str, local: float, resolved: Callable[[str], Run]):
    phases = [phase for _, phase in gin_config.without_gin(resolved(name)).in_phases()]
    first, *_, last_of_first, long, better = phases
    assert (first.options.batch_size, last_of_first.options.batch_size) == (384, 4608)
    configs = [one.model.keywords["config"] for one in (first, long, better)]
    thetas = [(config.global_theta, config.local_theta) for config in configs]
    assert thetas == [(10_000.0, 10_000.0), *[(160_000.0, local)] * 2]
    assert [one.optimizer.made_by.keywords["peak"] for one in (long, better)] == [3e-3, 1.5e-3]
    objectives = [one.data.chosen_objective for one in (first, long, better)]
    if "decoder" in name:
        assert objectives == [lm.LanguageModeling()] * 3
    else:
        assert [one.masked_rate for one in objectives] == [0.3, 0.3, 0.15]


def test_an_xlnet_remembers_what_its_rows_go_on_from():
    # Of more, its memory would hold the text of the next row.
    gin_config.load([str(gin_files.find_recipe("xlnet_base"))], ["REUSE_LEN=16"])
    run = gin_config.build(Run)
    config = gin_config.arguments_of(run.model)["config"]
    assert (
        run.data.chosen_objective.geometry({"inputs": 64}).reuse_length == config.reused(64) == 16
    )
