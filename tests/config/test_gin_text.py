"""What gin text says, and that what is none is one error on every Python."""

from __future__ import annotations

import pytest

from t5x_like.config import gin_text


@pytest.mark.parametrize("text", ["NAME = 'a", "NAME = (1,", "NAME = data.txt", '"""'])
def test_what_is_no_gin_text_is_a_syntax_error(text: str) -> None:
    with pytest.raises(SyntaxError):
        gin_text.read(text)


def test_bindings_and_imports_are_read_and_nothing_is_done() -> None:
    found = gin_text.read(
        "from no.such import module\nNAME = 3\na/module.Thing.part = @no_such()\n"
    )
    assert found.modules == ["no.such.module"]
    assert {str(binding): value for binding, value in found.values.items()} == {
        "NAME": 3,
        "a/module.Thing.part": gin_text.Reference("no_such"),
    }
    assert found.references == ["no_such"]
