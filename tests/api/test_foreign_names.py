"""Names of other libraries are answered with ours."""

from __future__ import annotations

import pytest

import t5x_like as t5x


@pytest.mark.parametrize(
    ("argument", "said"),
    [
        ("epochs", "no argument 'epochs': here it is train_steps"),
        ("train_step", "no argument 'train_step'; nearest: train_steps"),
        ("eval_period", r"no argument 'eval_period': it is given as gin=\['EVAL_PERIOD=VALUE'\]"),
    ],
)
def test_arguments_of_a_recipe(argument: str, said: str) -> None:
    with pytest.raises(TypeError, match=said):
        t5x.recipe("bert-mini", **{argument: 3})


def test_methods_of_a_model() -> None:
    model = t5x.LoadedModel(None, None, 0, "runs/x")
    with pytest.raises(TypeError, match="no argument 'top_k': here it is k"):
        model.fill("a [MASK]", top_k=3)
    with pytest.raises(AttributeError, match="has no 'generate': here it is predict"):
        model.generate("a")
    assert not hasattr(model, "no_such_thing")


def test_the_package_lists_public_names_alone() -> None:
    assert dir(t5x) == sorted([*t5x.__all__, "__version__"])
