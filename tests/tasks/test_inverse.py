from __future__ import annotations

import itertools
import statistics
import subprocess
import sys

import numpy as np
import pytest

from t5x_like.tasks import inverse

DRAWN = 300


def drawn(task: str, split: str) -> list[inverse.Pair]:
    return list(inverse.pairs(task, split, drawn=DRAWN))


@pytest.mark.parametrize("task", inverse.TASKS)
def test_the_checker_accepts_every_answer_and_refuses_those_of_other_problems(task: str):
    pairs = drawn(task, "train")
    assert all(inverse.check(*one) for one in pairs)
    for one, other in itertools.pairwise(pairs):
        if one.targets != other.targets and not task.startswith("inverse.integral"):
            assert not inverse.check(one.inputs, other.targets)
        assert not inverse.check(one.inputs, f"{one.targets}9")
        assert not inverse.check(one.inputs, "")


@pytest.mark.parametrize(
    ("problem", "right", "wrong"),
    [
        ("sum 17+25", ["42", "042"], ["41", "4 2", "17+25", "-42", "x"]),
        ("sum 0+0", ["0"], ["", "1"]),
        ("difference 42-17", ["25"], ["59", "-25"]),
        ("count a in abca", ["2"], ["3", "1", "aa"]),
        (
            "factor 2x^2-2",
            ["(2x-2)(x+1)", "(x+1)(2x-2)", "(1+x)(x-1+x-1)", "(-x-1)(2-2x)"],
            ["(2x^2-2)", "2(x-1)(x+1)", "(x-1)(x+1)", "(2)(x-1)(x+1)", "(2x-2)(x+1", "()()"],
        ),
        ("factor x^2-2x", ["(x)(x-2)"], ["x(x-2)", "(0)(x)"]),
        (
            "integral 6x^2-2",
            ["2x^3-2x", "-2x+2x^3", "2x^3-2x+7", "x^3-2x+x^3-9"],
            ["2x^3", "6x^2-2", "2x^3-2x+", "2x^3--2x", "12x", "2y^3-2x", "2x^3 - 2x"],
        ),
    ],
)
def test_answers_count_in_any_order_and_with_any_constant(
    problem: str, right: list[str], wrong: list[str]
):
    assert [text for text in right if not inverse.check(problem, text)] == []
    assert [text for text in wrong if inverse.check(problem, text)] == []


def test_answers_of_a_model_may_be_any_text():
    draw = np.random.default_rng(0)
    problems = [inverse.pair(task, 0).inputs for task in inverse.TASKS]
    for _ in range(300):
        text = "".join(draw.choice([*"0129x^+-()² "], size=12))
        for problem in problems:
            inverse.check(problem, text)


@pytest.mark.parametrize("task", inverse.TASKS)
def test_a_problem_is_in_one_split_and_comes_once(task: str):
    problems = {split: [one.inputs for one in drawn(task, split)] for split in inverse.SPLITS}
    every = [*problems["train"], *problems["validation"]]
    assert len(set(every)) == len(every)
    assert set(every) == {inverse.pair(task, n).inputs for n in range(DRAWN)}
    assert 0.02 < len(problems["validation"]) / len(every) < 0.2
    # Another seed draws other problems, and a problem of both seeds keeps its split.
    other = [one.inputs for one in inverse.pairs(task, "train", drawn=DRAWN, seed=1)]
    assert other != problems["train"]
    assert not set(other) & set(problems["validation"])


def test_a_pair_is_the_same_in_every_process():
    tasks = [*inverse.TASKS]
    code = "from t5x_like.tasks import inverse; import sys\n"
    code += (
        "print([inverse.pair(task, 7, seed=3) for task in sys.argv[1:]], 'seqio' in sys.modules)"
    )
    said = subprocess.check_output([sys.executable, "-c", code, *tasks], text=True)
    assert said.strip() == f"{[inverse.pair(task, 7, seed=3) for task in tasks]} False"


@pytest.mark.parametrize("family", inverse.FAMILIES)
def test_problems_grow_with_their_size(family: str):
    lengths = [
        statistics.mean(len(one.inputs) for one in drawn(f"inverse.{family}.{size}", "train"))
        for size in inverse.FAMILIES[family].sizes
    ]
    assert lengths == sorted(set(lengths))


def size_of(task: str, one: inverse.Pair) -> int:
    """The size of a problem, read from its text."""
    family, _ = inverse.TASKS[task]
    if family == "sum":
        return max(map(len, one.inputs.removeprefix("sum ").split("+")))
    if family == "difference":
        return len(one.targets)
    if family == "count":
        return len(one.inputs.removeprefix("count a in "))
    return one.targets.count("(") if family == "factor" else int(one.targets.split("^")[1][0])


@pytest.mark.parametrize("task", inverse.TASKS)
def test_a_task_has_problems_of_its_size(task: str):
    _, size = inverse.TASKS[task]
    assert max(size_of(task, one) for one in drawn(task, "train")) == size


def test_metrics_are_shares_of_texts_and_of_verdicts():
    pairs = [inverse.Pair("factor x^2-1", "(x+1)(x-1)"), inverse.Pair("sum 1+1", "2")]
    example = {"inputs_pretokenized": pairs[0].inputs.encode()}
    targets = [inverse.with_problem(pairs[0].targets, example, is_target=True), pairs[1]]
    assert targets == pairs
    predictions = [inverse.with_problem("(x-1)(x+1)", example, is_target=False), "3"]
    assert inverse.exact_match(targets, predictions) == {"exact_match": 0.0}
    assert inverse.solved(targets, predictions) == {"solved": 0.5}
    assert inverse.exact_match(targets, ["(x+1)(x-1)", "2"]) == {"exact_match": 1.0}


def test_chance_is_that_of_an_answer_without_its_problem():
    for value in inverse.chance("inverse.count.8", drawn=2000).values():
        assert 0.03 < value < 0.3


def test_an_unknown_split_is_refused():
    with pytest.raises(ValueError, match="no split 'test', only train and validation"):
        next(inverse.pairs("inverse.sum.2", "test"))


@pytest.mark.slow
def test_the_tasks_are_registered_when_their_module_is_named():
    seqio = pytest.importorskip("seqio")

    from t5x_like.data import user_modules
    from t5x_like.data.seqio import registered_tasks

    for _ in range(2):
        assert user_modules.import_module("t5x_like.tasks.inverse") == "t5x_like.tasks.inverse"
    found = registered_tasks.find_tasks("inverse", module="t5x_like.tasks.inverse")
    assert found is not None
    assert {task.name: task.weight for task in found} == dict.fromkeys(inverse.TASKS, 1)
    metrics, postprocess, missing = found[0].metrics.functions()
    assert (metrics, postprocess, missing) == (
        [inverse.exact_match, inverse.solved],
        inverse.with_problem,
        [],
    )
    task = seqio.get_mixture_or_task("inverse.factor.2")
    dataset = task.get_dataset({"inputs": 32, "targets": 32}, split="validation", shuffle=False)
    examples = list(dataset.as_numpy_iterator())
    assert [one["targets_pretokenized"].decode() for one in examples] == [
        one.targets for one in inverse.pairs("inverse.factor.2", "validation")
    ]
    assert bytes([*(examples[0]["inputs"][:-1] - 3)]) == examples[0]["inputs_pretokenized"]
