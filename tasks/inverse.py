"""Tasks `inverse.*`: problems that are made from their answers, and a program that checks answers.

A problem is one line, and its first word names its family. `--module t5x_like.tasks.inverse`
registers a task for each entry of `TASKS`, and the mixture `inverse` of all. Only `register_tasks`
imports SeqIO.
"""

from __future__ import annotations

import collections
import functools
import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from t5x_like.data.extras import require


class Pair(NamedTuple):
    """A problem and an answer to it."""

    inputs: str
    targets: str


Polynomial = Mapping[int, int]
"""The coefficient of each power of x; zeros may be left out."""
Draw = np.random.Generator

SPLITS = ("train", "validation")
DRAWN = 20_000
"""How often a problem is drawn for each task; repeated problems are left out."""
_HELD_OUT = 0.1


def _sum(draw: Draw, digits: int) -> Pair:
    a, b = map(int, draw.integers(10**digits, size=2))
    return Pair(f"{a}+{b}", str(a + b))


def _difference(draw: Draw, digits: int) -> Pair:
    a, b = map(int, draw.integers(10**digits, size=2))
    return Pair(f"{a + b}-{a}", str(b))


def _count(draw: Draw, letters: int) -> Pair:
    answer = int(draw.integers(letters + 1))
    text = ["a"] * answer + [*map(str, draw.choice([*"bcd"], size=letters - answer))]
    draw.shuffle(text)
    return Pair(f"a in {''.join(text)}", str(answer))


def _factor(draw: Draw, factors: int) -> Pair:
    slopes, constants = draw.integers(1, 4, size=factors), draw.integers(-9, 10, size=factors)
    drawn = [{1: int(a), 0: int(b)} for a, b in zip(slopes, constants, strict=True)]
    answer = "".join(sorted(f"({_text(factor)})" for factor in drawn))
    return Pair(_text(_product(drawn)), answer)


def _integral(draw: Draw, degree: int) -> Pair:
    coefficients = [*map(int, draw.integers(-9, 10, size=degree - 1)), int(draw.integers(1, 10))]
    answer = dict(enumerate(coefficients, start=1))
    return Pair(_text(_derivative(answer)), _text(answer))


def _is_number(problem: str, answer: str) -> bool:
    a, sign, b = re.fullmatch(r"(\d+)([+-])(\d+)", problem).groups()  # type: ignore[union-attr]
    truth = int(a) + int(b) if sign == "+" else int(a) - int(b)
    return re.fullmatch(r"\d+", answer) is not None and answer.lstrip("0") == str(truth).lstrip("0")


def _is_count(problem: str, answer: str) -> bool:
    letter, _, text = problem.split(" ")
    return answer == str(text.count(letter))


def _are_factors(problem: str, answer: str) -> bool:
    factors = [_polynomial(factor) for factor in re.findall(r"\(([^()]*)\)", answer)]
    if not re.fullmatch(r"(\([^()]*\))+", answer) or not all(
        factor is not None and max(factor, default=0) == 1 for factor in factors
    ):
        return False
    return _product([factor for factor in factors if factor]) == _polynomial(problem)


def _is_integral(problem: str, answer: str) -> bool:
    polynomial = _polynomial(answer)
    return polynomial is not None and _derivative(polynomial) == _polynomial(problem)


class Family(NamedTuple):
    """A kind of problem.

    Attributes:
      draw: draws a problem of a size, without its first word, and an answer.
      check: whether a text answers a problem, which comes without its first word.
      size: what the size counts.
      sizes: the sizes that have a task.
    """

    draw: Callable[[Draw, int], Pair]
    check: Callable[[str, str], bool]
    size: str
    sizes: Sequence[int]


FAMILIES = {
    "sum": Family(_sum, _is_number, "digits of a number, at most", (2, 3, 4)),
    "difference": Family(_difference, _is_number, "digits of the answer, at most", (2, 3, 4)),
    "count": Family(_count, _is_count, "letters", (8, 16, 32)),
    "factor": Family(_factor, _are_factors, "linear factors", (2, 3)),
    "integral": Family(_integral, _is_integral, "degree of the answer", (3, 4, 5)),
}
TASKS = {
    f"inverse.{name}.{size}": (name, size)
    for name, family in FAMILIES.items()
    for size in family.sizes
}
"""The family and the size of each task."""


def pair(task: str, n: int, *, seed: int = 0) -> Pair:
    """The n-th problem that is drawn for a task, and its answer; a function of these arguments.

    Raises:
      KeyError: `TASKS` has no such task.
    """
    family, size = TASKS[task]
    drawn = FAMILIES[family].draw(np.random.default_rng([seed, n, *task.encode()]), size)
    return drawn._replace(inputs=f"{family} {drawn.inputs}")


def split_of(problem: str) -> str:
    """The split of a problem. Its text alone decides it, so that no problem is in both splits."""
    digest = hashlib.blake2b(problem.encode(), digest_size=8).digest()
    return "validation" if int.from_bytes(digest) < _HELD_OUT * 2**64 else "train"


def pairs(task: str, split: str, *, drawn: int = DRAWN, seed: int = 0) -> Iterator[Pair]:
    """The different problems of a split among the first `drawn` ones, each with an answer.

    Raises:
      KeyError: `TASKS` has no such task.
      ValueError: there is no such split.
    """
    if split not in SPLITS:
        raise ValueError(f"{task} has no split {split!r}, only {' and '.join(SPLITS)}")
    seen = set()
    for n in range(drawn):
        problem = pair(task, n, seed=seed)
        if problem.inputs not in seen and split_of(problem.inputs) == split:
            seen.add(problem.inputs)
            yield problem


def check(problem: str, answer: str) -> bool:
    """Whether a text answers a problem, in whatever order and with whatever constant.

    Raises:
      KeyError: the problem's first word is not a name in `FAMILIES`.
    """
    family, _, rest = problem.partition(" ")
    return FAMILIES[family].check(rest, answer)


def with_problem(text: str, example: Mapping[str, Any], is_target: bool) -> Pair | str:
    """The `postprocess_fn`: a target together with its problem, and a prediction as it is."""
    return Pair(example["inputs_pretokenized"].decode(), text) if is_target else text


def exact_match(targets: Sequence[Pair], predictions: Sequence[str]) -> dict[str, float]:
    """The share of predictions that are the text of the target."""
    right = [
        target.targets == prediction
        for target, prediction in zip(targets, predictions, strict=True)
    ]
    return {"exact_match": float(np.mean(right))}


def solved(targets: Sequence[Pair], predictions: Sequence[str]) -> dict[str, float]:
    """The share of predictions that answer their problem."""
    right = [
        check(target.inputs, prediction)
        for target, prediction in zip(targets, predictions, strict=True)
    ]
    return {"solved": float(np.mean(right))}


METRICS = (exact_match, solved, with_problem)
"""The metrics that the record of a task may name (`data.cache.records.metric_names`)."""


def chance(task: str, *, drawn: int = DRAWN) -> dict[str, float]:
    """The share of validation problems that are solved without a look at them.

    Returns:
      `most_frequent`: by the most frequent answer of training. `random`: by the answer of a
      random training problem.
    """
    answers = [problem.targets for problem in pairs(task, "train", drawn=drawn)]
    ((most_frequent, _),) = collections.Counter(answers).most_common(1)
    problems = list(pairs(task, "validation", drawn=drawn))
    chosen = np.random.default_rng(0).choice(len(answers), size=len(problems))
    return {
        "most_frequent": solved(problems, [most_frequent] * len(problems))["solved"],
        "random": solved(problems, [answers[n] for n in chosen])["solved"],
    }


def _text(polynomial: Polynomial) -> str:
    """The polynomial as people write it, the highest power first: `2x^3-x+4`."""
    terms = []
    for power, coefficient in sorted(polynomial.items(), reverse=True):
        if coefficient:
            variable = {0: "", 1: "x"}.get(power, f"x^{power}")
            number = "" if abs(coefficient) == 1 and variable else str(abs(coefficient))
            terms.append(f"{'-' if coefficient < 0 else '+'}{number}{variable}")
    return "".join(terms).removeprefix("+") or "0"


_TERM = re.compile(r"([+-])(\d{0,9})(?:(x)(?:\^(\d{1,2}))?)?")


def _polynomial(text: str) -> Polynomial | None:
    """The polynomial that a text writes, its terms in any order; None if it writes none."""
    signed = text if text.startswith(("+", "-")) else f"+{text}"
    terms = [match for match in _TERM.finditer(signed) if match[2] or match[3]]
    if not terms or "".join(match[0] for match in terms) != signed:
        return None
    powers: collections.Counter[int] = collections.Counter()
    for sign, number, x, power in (match.groups() for match in terms):
        powers[int(power or 1) if x else 0] += int(number or 1) * (-1 if sign == "-" else 1)
    return _without_zeros(powers)


def _product(factors: Sequence[Polynomial]) -> Polynomial:
    product: Polynomial = {0: 1}
    for factor in factors:
        terms: collections.Counter[int] = collections.Counter()
        for i, a in product.items():
            for j, b in factor.items():
                terms[i + j] += a * b
        product = _without_zeros(terms)
    return product


def _derivative(polynomial: Polynomial) -> Polynomial:
    return _without_zeros({power - 1: power * a for power, a in polynomial.items() if power})


def _without_zeros(polynomial: Polynomial) -> Polynomial:
    return {power: coefficient for power, coefficient in polynomial.items() if coefficient}


def _dataset(split: str, shuffle_files: bool, *, seed: int | None = None, task: str) -> Any:
    """The problems of a split as a `tf.data.Dataset` of texts; the arguments are SeqIO's."""
    del shuffle_files, seed
    tf = require("tensorflow", "data", purpose="the mixture inverse")
    inputs, targets = zip(*pairs(task, split), strict=True)
    return tf.data.Dataset.from_tensor_slices({"inputs": [*inputs], "targets": [*targets]})


def register_tasks() -> None:
    """Registers the tasks and their mixture with SeqIO, unless they are registered.

    Raises:
      MissingExtraError: SeqIO is not installed.
    """
    seqio = require("seqio", "data", purpose="the mixture inverse")
    if "inverse" in seqio.MixtureRegistry.names():
        return
    vocabulary = seqio.ByteVocabulary()
    for task in TASKS:
        seqio.TaskRegistry.add(
            task,
            source=seqio.FunctionDataSource(functools.partial(_dataset, task=task), splits=SPLITS),
            preprocessors=[
                seqio.preprocessors.tokenize,
                seqio.CacheDatasetPlaceholder(),
                seqio.preprocessors.append_eos_after_trim,
            ],
            output_features={name: seqio.Feature(vocabulary) for name in ("inputs", "targets")},
            postprocess_fn=with_problem,
            metric_fns=[exact_match, solved],
        )
    seqio.MixtureRegistry.add("inverse", [*TASKS], default_rate=1)
