"""The modules of a Hugging Face model that hold matrices of ours, by which PEFT names adapters.

Suffixes: I in, O out.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from t5x_like.interop.mapping import TRANSPOSED, Names, Rule

_KERNEL, _WEIGHT = "/kernel", ".weight"


class Placement(NamedTuple):
    """One of their matrices, which holds one of ours or several side by side.

    Attributes:
      paths: the paths of our matrices, such as `encoder/layers/attention/query`.
      rule: the rule of their kernels.
      transposed: whether theirs is [O, I], as PyTorch's linear layers are; else it is [I, O].
    """

    paths: Sequence[str]
    rule: Rule
    transposed: bool

    def module(self, layer: int) -> str:
        """The name of their module of a layer, or of the only one."""
        return self.rule.name(layer).removesuffix(_WEIGHT)


def placements(names: Names) -> list[Placement]:
    """Those of all matrices of a model that PEFT can adapt: XLNet's in attention are no modules."""
    return [
        Placement(
            [path.removesuffix(_KERNEL) for path in rule.paths], rule, rule.transform is TRANSPOSED
        )
        for rule in names.rules
        if all(path.endswith(_KERNEL) for path in rule.paths)
        and rule.name(0).endswith(_WEIGHT)
        and (rule.transform is TRANSPOSED or _is_side_by_side(rule))
    ]


def _is_side_by_side(rule: Rule) -> bool:
    """Whether theirs is ours, in the order of the paths, along the last axis."""
    parts = [np.full((2, 3), n) for n, _ in enumerate(rule.paths)]
    return np.array_equal(rule.transform.to_theirs(*parts), np.concatenate(parts, axis=-1))


def modules(names: Names, shapes: Mapping[str, Sequence[int]]) -> set[str]:
    """The names of all their modules that have parameters.

    Args:
      names: those of the model.
      shapes: {path: shape} of our parameters, as `mapping.flat_parameters` names them.
    """
    return {
        rule.name(layer).rpartition(".")[0]
        for rule in names.rules
        for layer in (range(shapes[rule.paths[0]][0]) if rule.stacked else (0,))
    }


def targets(wanted: Collection[str], among: Collection[str]) -> list[str]:
    """The shortest names by which PEFT finds some modules and no others.

    Args:
      wanted: the names of these modules.
      among: those of all modules.
    """
    short = {name.rpartition(".")[2] for name in wanted}
    shared = {last for last in short if not {x for x in among if _ends(x, last)} <= {*wanted}}
    whole = {name for name in wanted if name.rpartition(".")[2] in shared}
    return sorted((short - shared) | whole)


def _ends(module: str, last: str) -> bool:
    return module == last or module.endswith(f".{last}")
