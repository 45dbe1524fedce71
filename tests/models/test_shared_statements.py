"""No two model files hold the same run of statements: shared parts live in layers/."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

MODELS = Path(__file__).parent.parent.parent / "t5x_like" / "models"
FILES = sorted(path for path in MODELS.glob("*.py") if path.stem != "__init__")
RUN = 6


def is_text(statement: ast.stmt) -> bool:
    """Whether a statement is a docstring, or text in a docstring's place."""
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def blocks(source: str) -> Iterator[list[str]]:
    """The statements of each block inside functions, nested ones too, without docstrings.

    A statement that has blocks counts as a whole in its place, and its blocks count again.
    """
    functions = [
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    seen = set()
    for node in itertools.chain.from_iterable(map(ast.walk, functions)):
        if id(node) in seen:
            continue
        seen.add(id(node))
        for field in ("body", "orelse", "finalbody"):
            block = getattr(node, field, None)
            if isinstance(block, list):
                yield [ast.unparse(statement) for statement in block if not is_text(statement)]


def runs(source: str) -> set[tuple[str, ...]]:
    """All runs of `RUN` statements in a row in a block."""
    return {
        tuple(block[start : start + RUN])
        for block in blocks(source)
        for start in range(len(block) - RUN + 1)
    }


def test_no_two_models_share_a_run_of_statements():
    found = {path.stem: runs(path.read_text("utf-8")) for path in FILES}
    shared = {
        (one, other): found[one] & found[other] for one, other in itertools.combinations(found, 2)
    }
    assert {pair: copies for pair, copies in shared.items() if copies} == {}


STATEMENTS = [f"x{i} = f(x{i - 1})" for i in range(1, RUN + 1)]


def function(statements: list[str], *, indent: str = "    ") -> str:
    return "def f(x0):\n" + "".join(f"{indent}{line}\n" for line in statements)


@pytest.mark.parametrize(
    "copy",
    [
        function(STATEMENTS),
        function(["y = 1", *STATEMENTS, "return y"]),
        function(['"""A docstring."""', *STATEMENTS]),
        function([f"{line}  # said otherwise" for line in STATEMENTS]),
        function([line.replace("(", "(\n").replace(")", ",\n)") for line in STATEMENTS]),
        function(["if x0:", *(f"    {line}" for line in STATEMENTS)]),
        function(["for x0 in x:", "    pass", "else:", *(f"    {line}" for line in STATEMENTS)]),
        function(["def g():", *(f"    {line}" for line in STATEMENTS)]),
        "class A:\n" + "".join(f"    {line}\n" for line in function(STATEMENTS).splitlines()),
    ],
)
def test_a_copy_is_found_wherever_and_however_it_is_written(copy):
    # Source layout and comments do not hide it.
    source = function(STATEMENTS)
    assert runs(source) & runs(copy.replace(",\n)", "\n)")) == {tuple(STATEMENTS)}


@pytest.mark.parametrize(
    "other",
    [
        function(STATEMENTS[1:]),
        function([*STATEMENTS[:3], "y = 1", *STATEMENTS[3:]]),
        function([*STATEMENTS[:-1], "x6 = g(x5)"]),
        "\n".join(["x0 = 1", *STATEMENTS]),  # not inside a function: constants, imports
    ],
)
def test_less_than_a_run_in_a_row_inside_functions_is_no_copy(other):
    assert not runs(function(STATEMENTS)) & runs(other)


def test_the_models_are_read():
    assert {"bert", "t5"} <= {path.stem for path in FILES}
    for path in FILES:
        assert any(blocks(path.read_text("utf-8"))), path.name
