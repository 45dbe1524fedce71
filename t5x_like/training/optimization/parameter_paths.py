"""Parameters by their paths, written as `t5x_like inspect` prints them: `encoder.trunk.mlp.wi`."""

from __future__ import annotations

from typing import Any

import jax


def path_name(path: tuple) -> str:
    """The name of a path of `jax.tree_util` in a nested dict."""
    return jax.tree_util.keystr(path, simple=True, separator=".")


def by_path(tree: Any) -> dict[str, Any]:
    """{path: leaf} of a nested dict."""
    return {path_name(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}
