"""LoRA and DoRA in PEFT's files: a matrix [R, I] and one [O, R] for each module.

Suffixes: I in, O out, R rank.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from t5x_like.interop.peft.placement import Placement
from t5x_like.layers.adapters import lora
from t5x_like.layers.adapters.lora import LowRank

A, B, MAGNITUDE = ".lora_A.weight", ".lora_B.weight", ".lora_magnitude_vector"
"""The ends of the names of tensors."""
Params = Mapping[str, np.ndarray]


class Written(NamedTuple):
    """The change of one of their matrices: its tensors by the ends of their names, and its scale.

    Attributes:
      tensors: {end of the name: tensor}.
      rank: R.
      alpha: the scale is alpha / R.
    """

    tensors: dict[str, np.ndarray]
    rank: int
    alpha: float

    @property
    def inputs(self) -> int:
        """I of the matrix."""
        return self.tensors[A].shape[1]

    @property
    def outputs(self) -> int:
        """O of the matrix."""
        return self.tensors[B].shape[0]


def written(
    placement: Placement, nodes: Mapping[str, LowRank], params: Mapping[str, Params]
) -> Iterator[tuple[str, Written]]:
    """(module, its change) of a placement, where a layer of it has one.

    Args:
      placement: where the matrices are.
      nodes: {path: adapted matrix}.
      params: {path of a matrix: its parameters by name}, adapted or not.
    """
    adapted = [path for path in placement.paths if path in nodes]
    if not adapted:
        return
    stacked = placement.rule.stacked
    for layer in range(len(params[adapted[0]]["kernel"]) if stacked else 1):
        parts = [
            _part(nodes.get(path), params[path], layer if stacked else None)
            for path in placement.paths
        ]
        if any(part.rank for part in parts):
            yield placement.module(layer), _side_by_side(parts)


class _Part(NamedTuple):
    """One of our matrices in one layer: A [I, R], B [R, O], magnitudes [O] or None."""

    a: np.ndarray
    b: np.ndarray
    scale: float
    magnitudes: np.ndarray | None

    @property
    def rank(self) -> int:
        return self.a.shape[-1]


def _part(node: LowRank | None, params: Params, layer: int | None) -> _Part:
    def of_layer(x: np.ndarray) -> np.ndarray:
        return np.asarray(x if layer is None else x[layer], np.float32)

    kernel = of_layer(params["kernel"])
    norms = np.asarray(lora.column_norms(kernel))
    if node is None:
        empty = np.zeros((kernel.shape[0], 0), np.float32)
        return _Part(empty, np.zeros((0, kernel.shape[1]), np.float32), 0.0, norms)
    magnitudes = params.get("lora_magnitude")
    rank = max(node.ranks[layer or 0], 0 if magnitudes is None else 1)  # norms learn by themselves
    return _Part(
        of_layer(params["lora_a"])[:, :rank],
        of_layer(params["lora_b"])[:rank],
        float(node.layer_scales(params)[() if layer is None else layer]),
        None if magnitudes is None else norms + of_layer(magnitudes),
    )


def _side_by_side(parts: Sequence[_Part]) -> Written:
    """One change of matrices side by side: B has a block for each of them."""
    rank = sum(part.rank for part in parts)
    scale = max(part.scale for part in parts)
    b = np.zeros((rank, sum(part.b.shape[1] for part in parts)), np.float32)
    row = column = 0
    for part in parts:
        rows, columns = part.b.shape
        # Where scales differ, the smaller ones are in B.
        b[row : row + rows, column : column + columns] = part.b * (part.scale / scale or 0)
        row, column = row + rows, column + columns
    tensors = {A: np.concatenate([part.a for part in parts], axis=1).T, B: b.T}
    if any(part.rank and part.magnitudes is not None for part in parts):
        tensors[MAGNITUDE] = np.concatenate([part.magnitudes for part in parts])
    whole = {name: np.ascontiguousarray(x, np.float32) for name, x in tensors.items()}
    return Written(whole, rank, scale * rank)


def settings(changes: Mapping[str, Written]) -> dict[str, Any]:
    """The settings of adapter_config.json that say ranks and scales.

    Args:
      changes: {module: its change}.
    """
    ranks = {module: change.rank for module, change in changes.items()}
    alphas = {module: change.alpha for module, change in changes.items()}
    (rank, _), (alpha, _) = (Counter(x.values()).most_common(1)[0] for x in (ranks, alphas))
    return {
        "peft_type": "LORA",
        "r": rank,
        "lora_alpha": int(alpha) if alpha == int(alpha) else alpha,
        "rank_pattern": {module: x for module, x in ranks.items() if x != rank},
        "alpha_pattern": {module: x for module, x in alphas.items() if x != alpha},
        "use_dora": any(MAGNITUDE in change.tensors for change in changes.values()),
        "bias": "none",
    }


class Read(NamedTuple):
    """The changes of our matrices, as `lora.adapt` takes them.

    Attributes:
      adapt: gives a model the parameters.
      params: {path of a parameter: its value}.
    """

    adapt: functools.partial[Any]
    params: dict[str, np.ndarray]


def read(
    placements: Sequence[Placement],
    changes: Mapping[str, Written],
    kernels: Mapping[str, Any],
    *,
    lora_dropout: float = 0.0,
) -> Read:
    """The parameters that give the same changes.

    Args:
      placements: those of a model.
      changes: {module: its change}, of which all are at one of the placements.
      kernels: {path of a matrix: its kernel}; where there are no magnitudes, shapes are enough.
      lora_dropout: the rate of dropout in training.

    Raises:
      ValueError: a change is that of a larger or smaller matrix.
    """
    ranks: dict[str, list[int]] = {}
    alphas: dict[str, list[float]] = {}
    params: dict[str, np.ndarray] = {}
    for placement in placements:
        stacked = placement.rule.stacked
        layers = kernels[placement.paths[0]].shape[0] if stacked else 1
        of_layers = [changes.get(placement.module(layer)) for layer in range(layers)]
        if not any(of_layers):
            continue
        ends = np.cumsum([kernels[path].shape[-1] for path in placement.paths])
        inputs = kernels[placement.paths[0]].shape[-2]
        for layer, change in enumerate(of_layers):
            if change and (change.inputs, change.outputs) != (inputs, ends[-1]):
                raise ValueError(
                    f"{placement.module(layer)} is [{ends[-1]}, {inputs}] in this base, and its "
                    f"adapter is for [{change.outputs}, {change.inputs}]: name another base"
                )
        for path, end in zip(placement.paths, ends, strict=True):
            outputs = slice(int(end) - kernels[path].shape[-1], int(end))
            ranks[path] = [change.rank if change else 0 for change in of_layers]
            alphas[path] = [change.alpha if change else 1.0 for change in of_layers]
            values = _of_matrix(of_layers, kernels[path], outputs, stacked=stacked)
            params |= {f"{path}/{name}": value for name, value in values.items()}
            scales = lora.scales(np.array(ranks[path]), np.array(alphas[path]))
            if (scales != scales[0]).any():
                params[f"{path}/lora_scale"] = scales.astype(np.float32)
    dora = any(change and MAGNITUDE in change.tensors for change in changes.values())
    places = tuple(dict.fromkeys(path.rpartition("/")[2] for path in ranks))
    adaptable = [path for placement in placements for path in placement.paths]
    others = any(path.endswith(places) and path not in ranks for path in adaptable)
    adapt = functools.partial(
        lora.adapt,
        rank=_settings(ranks, {"": 0} if others else {}),
        alpha=_settings(alphas, {"": 1} if others else {}),
        places=places,
        magnitudes=dora,
        lora_dropout=lora_dropout,
    )
    return Read(adapt, params)


def _of_matrix(
    of_layers: Sequence[Written | None], kernel: Any, outputs: slice, *, stacked: bool
) -> dict[str, np.ndarray]:
    """The parameters of a matrix, for all layers or the only one."""
    rank = max(change.rank for change in of_layers if change)
    layers = len(of_layers)
    inputs, width = kernel.shape[-2:]
    a = np.zeros((layers, inputs, rank), np.float32)
    b = np.zeros((layers, rank, width), np.float32)
    magnitudes = np.zeros((layers, width), np.float32)
    for layer, change in enumerate(of_layers):
        if change is None:
            continue
        a[layer, :, : change.rank] = change.tensors[A].T
        b[layer, : change.rank] = change.tensors[B].T[:, outputs]
        if MAGNITUDE in change.tensors:
            whole = np.asarray(kernel)
            norms = lora.column_norms(whole[layer] if stacked else whole)
            magnitudes[layer] = change.tensors[MAGNITUDE].reshape(-1)[outputs] - norms
    values = {"lora_a": a, "lora_b": b}
    if any(change and MAGNITUDE in change.tensors for change in of_layers):
        values["lora_magnitude"] = magnitudes
    return values if stacked else {name: x[0] for name, x in values.items()}


def _settings(values: Mapping[str, Sequence[float]], others: Mapping[str, float]) -> Any:
    """One number where all are equal, else {pattern: numbers of layers}, with those of others."""
    if len(numbers := {x for of_layers in values.values() for x in of_layers}) == 1 and not others:
        return numbers.pop()
    return {
        **others,
        **{
            f"^{path.replace('/', '[.]')}$": (
                of_layers[0] if len({*of_layers}) == 1 else [*of_layers]
            )
            for path, of_layers in values.items()
        },
    }
