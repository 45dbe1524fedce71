"""Marks on parameters that come before a model's layers or after them.

Learning rates that fall with depth (`layerwise`) read the marks. Parameters of the layers
themselves need no mark: they are stacked.
"""

from __future__ import annotations

from typing import TypeVar

from flax import nnx

Part = TypeVar("Part", nnx.Module, nnx.Param)


def below(part: Part, *, stack: str = "") -> Part:
    """Marks parameters that come before the layers, or that all layers read: embeddings.

    Args:
      part: a module or a parameter.
      stack: the name of the stack of layers that alone reads them, such as "decoder"; "" where the
        path of the parameters says it, or where several stacks read them.
    """
    return _marked(part, f"below {stack}".rstrip())


def above(part: Part) -> Part:
    """Marks parameters that come after the layers: heads, final norms."""
    return _marked(part, "above")


def _marked(part: Part, depth: str) -> Part:
    variables = [part] if isinstance(part, nnx.Param) else [one for _, one in nnx.iter_graph(part)]
    for variable in variables:
        if isinstance(variable, nnx.Param):
            variable.set_metadata("depth", depth)
    return part
