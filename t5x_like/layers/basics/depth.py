"""Marks on parameters: before a model's layers, after them, or in one of them.

Learning rates that fall with depth (`layerwise`) read the marks. Parameters of stacked layers need
no mark. A mark on a module replaces those of its parts.
"""

from __future__ import annotations

from typing import TypeVar

from flax import nnx

Part = TypeVar("Part")


def below(part: Part, *, stack: str = "") -> Part:
    """Marks parameters that come before the layers, or that all layers read: embeddings.

    Args:
      part: a module or a parameter.
      stack: the name of the stack of layers that alone reads them, such as "decoder"; "" where the
        path of the parameters says it, or where several stacks read them.
    """
    return _marked(part, f"below {stack}".rstrip())


def below_as_parts(part: Part) -> Part:
    """Marks stacked parameters that are no layers, but parts of what comes before these."""
    return _marked(part, "parts-below")


def above(part: Part) -> Part:
    """Marks parameters that come after the layers: heads, final norms."""
    return _marked(part, "above")


def at(part: Part, n: int, *, of: int) -> Part:
    """Marks parameters of a layer that is not stacked, as layers of different sizes cannot be.

    Args:
      part: a module or a parameter. If it is stacked, `n` is the number of its first layer.
      n: the number of the layer, counted from 0 at the input.
      of: how many layers there are.

    Raises:
      ValueError: there is no such layer.
    """
    if not 0 <= n < of:
        raise ValueError(f"depth.at: of {of} layers, counted from 0, none is layer {n}")
    return _marked(part, f"at {n} {of}")


def _marked(part: Part, depth: str) -> Part:
    variables = (
        [part] if isinstance(part, nnx.Param) else [node for _, node in nnx.iter_graph(part)]
    )
    for variable in variables:
        if isinstance(variable, nnx.Param):
            variable.set_metadata("depth", depth)
    return part
