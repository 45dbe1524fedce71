"""Parameters by their paths, written as `t5x_like inspect` prints them: `encoder.trunk.mlp.wi`."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator, Mapping
from typing import Any, Generic, TypeVar

import jax
import optax

Fact = TypeVar("Fact")


def path_name(path: tuple) -> str:
    """The name of a path of `jax.tree_util` in a nested dict."""
    return jax.tree_util.keystr(path, simple=True, separator=".")


def by_path(tree: Any) -> dict[str, Any]:
    """{path: leaf} of a nested dict."""
    return {path_name(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}


class Facts(Generic[Fact]):
    """A fact about each parameter of a model, by its path, which an optimizer may ask for.

    An optimizer sees a plain tree of arrays, of which only names and shapes are known. `told` makes
    one that knows more while it runs.
    """

    def __init__(self, name: str) -> None:
        self._known: contextvars.ContextVar[Mapping[str, Fact]] = contextvars.ContextVar(name)

    def known(self) -> Mapping[str, Fact]:
        """{path: fact} of the model whose optimizer runs; {} of a plain tree."""
        return self._known.get({})

    def told(
        self, tx: optax.GradientTransformation, facts: Mapping[str, Fact]
    ) -> optax.GradientTransformation:
        """`tx`, for which these are the `known` facts."""

        def init(params: Any) -> Any:
            with self._telling(facts):
                return tx.init(params)

        def update(grads: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
            with self._telling(facts):
                return tx.update(grads, state, params)

        return optax.GradientTransformation(init, update)

    @contextlib.contextmanager
    def _telling(self, facts: Mapping[str, Fact]) -> Iterator[None]:
        token = self._known.set(facts)
        try:
            yield
        finally:
            self._known.reset(token)
