"""Rules that map our parameters to tensors of a Hugging Face file, used in both directions.

Our parameters are named by their path in the model, such as `encoder/layers/mlp/wi/kernel`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np
from flax import nnx

Arrays = tuple[np.ndarray, ...]


class Transform(NamedTuple):
    """Turns one of their arrays into one or several of ours, and back; one layer at a time."""

    to_ours: Callable[[np.ndarray], Arrays]
    to_theirs: Callable[..., np.ndarray]


SAME = Transform(lambda theirs: (theirs,), lambda ours: ours)
TRANSPOSED = Transform(lambda theirs: (theirs.T,), lambda ours: ours.T)
"""PyTorch's linear layers hold [out, in]."""


def joined(parts: int) -> Transform:
    """Matrices [in, out] that are joined in one of PyTorch's, [outs, in]."""
    return Transform(
        lambda theirs: tuple(part.T for part in np.split(theirs, parts)),
        lambda *ours: np.concatenate([part.T for part in ours]),
    )


def convolution(width: int) -> Transform:
    """A matrix [width * in, out] and PyTorch's [out, in, width]."""
    return Transform(
        lambda theirs: (theirs.transpose(2, 1, 0).reshape(-1, len(theirs)),),
        lambda ours: ours.reshape(width, -1, ours.shape[1]).transpose(2, 1, 0),
    )


@dataclasses.dataclass(frozen=True)
class Rule:
    """Our parameters `ours` are the tensor `theirs` of Hugging Face.

    Attributes:
      ours: a path, or the paths of all parameters that the one tensor holds.
      theirs: a name. With `{i}` in it, or as a function of i, it names one tensor for each of ours
        that are stacked along the first dimension.
      transform: between `theirs` and `ours`.
      aliases: other names for it in files (tied weights are stored once, under any of them).
    """

    ours: str | tuple[str, ...]
    theirs: str | Callable[[int], str]
    transform: Transform = SAME
    aliases: tuple[str, ...] = ()

    @property
    def paths(self) -> tuple[str, ...]:
        return (self.ours,) if isinstance(self.ours, str) else self.ours

    @property
    def stacked(self) -> bool:
        return not isinstance(self.theirs, str) or "{i}" in self.theirs

    def name(self, i: int) -> str:
        """The name of layer `i`'s tensor, or of the only tensor where nothing is stacked."""
        return self.theirs.format(i=i) if isinstance(self.theirs, str) else self.theirs(i)


def linear(ours: str, theirs: str | Callable[[int], str], *, bias: bool = True) -> list[Rule]:
    """Rules for a `Linear` and PyTorch's: `theirs` without `.weight`."""
    rules = [Rule(f"{ours}/kernel", _ending(theirs, ".weight"), TRANSPOSED)]
    return [*rules, Rule(f"{ours}/bias", _ending(theirs, ".bias"))] if bias else rules


def norm(ours: str, theirs: str | Callable[[int], str], *, bias: bool = True) -> list[Rule]:
    """Rules for a `LayerNorm`, or for an `RMSNorm` where there is no bias."""
    rules = [Rule(f"{ours}/scale", _ending(theirs, ".weight"))]
    return [*rules, Rule(f"{ours}/bias", _ending(theirs, ".bias"))] if bias else rules


def under(rules: Iterable[Rule], *, ours: str = "", theirs: str = "") -> list[Rule]:
    """The rules of a part, for a model that holds it under these prefixes."""
    return [
        dataclasses.replace(
            rule,
            ours=tuple(ours + path for path in rule.paths),
            theirs=_beginning(theirs, rule.theirs),
            aliases=tuple(theirs + alias for alias in rule.aliases),
        )
        for rule in rules
    ]


def _beginning(start: str, name: str | Callable[[int], str]) -> str | Callable[[int], str]:
    return start + name if isinstance(name, str) else lambda i: start + name(i)


def _ending(name: str | Callable[[int], str], end: str) -> str | Callable[[int], str]:
    return name + end if isinstance(name, str) else lambda i: name(i) + end


@dataclasses.dataclass(frozen=True)
class Names:
    """All rules of one model.

    Attributes:
      rules: each of our parameters is in exactly one.
      prefix: of the body's names in a file with a head, such as `bert.`; a file of the body alone
        lacks it.
      constants: tensors, as they are written, that Hugging Face keeps and we do not.
      unused: prefixes of names of tensors that a file may hold without use (tied copies, buffers).
      fresh: draws, when writing, tensors that Hugging Face has and we do not; reading skips them.
    """

    rules: Sequence[Rule]
    prefix: str = ""
    constants: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    unused: tuple[str, ...] = ()
    fresh: Callable[[], Iterable[tuple[str, np.ndarray]]] = tuple


class Reader(Protocol):
    """A source of tensors: `safetensors_files.Weights`."""

    def __contains__(self, name: object) -> bool: ...

    def names(self) -> tuple[str, ...]: ...

    def read(self, name: str) -> np.ndarray: ...


def flat_parameters(model: nnx.Module) -> dict[str, Any]:
    """{path: array or shape} of a model, abstract or not."""
    return flat(nnx.to_pure_dict(nnx.state(model, nnx.Param)))


def read(
    weights: Reader, model: nnx.Module, names: Names, *, rules: Iterable[Rule] | None = None
) -> tuple[dict[str, Any], list[str]]:
    """The parameters of an abstract `model`, float32, as the nested dict that its state is.

    Besides what has been read, it holds one tensor. `rules` are those of `names`; a caller can pass
    an iterable that shows progress.

    Returns:
      The parameters, and the names of the file's tensors that have no use.

    Raises:
      ValueError: a tensor is missing or has another shape; or the rules do not fit the model.
    """
    shapes = {path: leaf.shape for path, leaf in flat_parameters(model).items()}
    _check_complete(names.rules, shapes)
    arrays: dict[str, np.ndarray] = {}
    used: set[str] = set()
    missing: list[str] = []
    for rule in names.rules if rules is None else rules:
        for path in rule.paths:
            arrays[path] = np.empty(shapes[path], np.float32)
        for i in range(len(arrays[rule.paths[0]]) if rule.stacked else 1):
            name = _present(weights, rule, i, prefix=names.prefix)
            if name is None:
                missing.append(rule.name(i))
                break  # a wrong number of layers may be huge
            used.add(name)
            for path, array in zip(
                rule.paths, rule.transform.to_ours(weights.read(name)), strict=True
            ):
                target = arrays[path][i] if rule.stacked else arrays[path]
                if array.shape != target.shape:
                    raise ValueError(
                        f"{name} gives {path} the shape {array.shape}, but the configuration "
                        f"beside it says {target.shape}: they belong to different models"
                    )
                target[...] = array
    if missing:
        more = " and others" if len(missing) > 4 else ""
        raise ValueError(
            f"these weights lack {', '.join(missing[:4])}{more}: they are not of the class that "
            "config.json names under architectures; save them with that class, or name another"
        )
    known = (*names.unused, *names.constants)
    left = [name for name in weights.names() if name not in used and not name.startswith(known)]
    return nested(arrays), left


def tensors(params: Any, model: nnx.Module, names: Names) -> Iterator[tuple[str, np.ndarray]]:
    """Yields Hugging Face's float32 tensors, made from our parameters as `read` returns them.

    Raises:
      ValueError: the rules do not fit the model.
    """
    leaves = flat(params)
    _check_complete(names.rules, leaves)
    for rule in names.rules:
        ours = [np.asarray(leaves[path]) for path in rule.paths]
        for i in range(len(ours[0]) if rule.stacked else 1):
            parts = [array[i] for array in ours] if rule.stacked else ours
            yield rule.name(i), np.ascontiguousarray(rule.transform.to_theirs(*parts))
    yield from names.constants.items()
    yield from names.fresh()


def _check_complete(rules: Iterable[Rule], ours: Iterable[str]) -> None:
    named = [path for rule in rules for path in rule.paths]
    if sorted(named) != sorted(ours):
        odd = sorted(set(named) ^ set(ours)) or sorted(p for p in named if named.count(p) > 1)
        raise ValueError(f"the rules do not name each parameter once: {', '.join(odd[:6])}")


def _present(weights: Reader, rule: Rule, i: int, *, prefix: str) -> str | None:
    """The name in the file: with or without the body's prefix; old names of norms count too."""
    for name in (rule.name(i), *rule.aliases):
        bare = name.removeprefix(prefix)
        for whole in (name, bare, prefix + bare):
            old = whole.replace("Norm.weight", "Norm.gamma").replace("Norm.bias", "Norm.beta")
            for candidate in (whole, old):
                if candidate in weights:
                    return candidate
    return None


def flat(params: Any) -> dict[str, Any]:
    """{path: leaf} of a nested dict; paths as `encoder/layers/mlp/wi/kernel`."""
    leaves = jax.tree_util.tree_leaves_with_path(params)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in leaves}


def nested(leaves: Mapping[str, Any]) -> dict[str, Any]:
    """The inverse of `flat`."""
    tree: dict[str, Any] = {}
    for path, array in leaves.items():
        *parents, last = path.split("/")
        node = tree
        for parent in parents:
            node = node.setdefault(parent, {})
        node[last] = array
    return tree
