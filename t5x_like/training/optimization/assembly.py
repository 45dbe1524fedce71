"""An optimizer as a step runs it: on what trains, layer by layer, with rates by depth."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
import optax
from flax import nnx

from t5x_like.core.partitioning import map_parameters
from t5x_like.training.optimization import freezing, histories, layerwise, weight_decay
from t5x_like.training.optimization.methods import hidden_matrices
from t5x_like.training.optimization.parameter_paths import path_name


@dataclasses.dataclass(frozen=True, kw_only=True)
class Assembled:
    """The optimizer of a program.

    Attributes:
      tx: the transformation of gradients and parameters without the frozen ones (`freezing.split`).
      mask: what trains, as `freezing.trainable_mask` has it.
      stacked: how many leading dimensions of each parameter are stacked layers.
      groups: the groups of its state, by paths of parameters.
    """

    tx: optax.GradientTransformation
    mask: Any
    stacked: Any
    groups: Mapping[str, histories.Group]

    def split(self, tree: Any) -> tuple[Any, Any]:
        """The leaves that train, and the others (`freezing.split`)."""
        return freezing.split(tree, self.mask)

    def of_trained_layers(self, grads: Any) -> Any:
        """Gradients with zeros for frozen layers."""
        zeros = jax.tree.map(lambda _: np.float32(0), grads)
        return freezing.chosen_layers(grads, zeros, self.split(self.mask)[0])

    def init(self, params: Any) -> Any:
        """The first state, for all parameters."""
        return self.tx.init(self.split(params)[0])

    def update(self, grads: Any, opt_state: Any, params: Any) -> tuple[Any, Any]:
        """Parameters and state after a step; frozen parameters are left out of all three."""
        updates, opt_state = self.tx.update(grads, opt_state, params)
        new = optax.apply_updates(params, updates)
        return freezing.chosen_layers(new, params, self.split(self.mask)[0]), opt_state

    def continued(self, old: Any, params: Any, step: jax.Array) -> Any:
        """The state in this phase, after `step` steps, from that of the phase before."""
        return histories.continued(old, self.init(params), self.groups, step=step)

    def changes(self, old: Any, now: Any) -> bool:
        """Whether a state of the phase before has another structure than one of this phase."""
        names = any(group.name != group.before for group in self.groups.values())
        return names or describe(old) != describe(now)


def describe(opt_state: Any) -> dict[str, Any]:
    """{path: (shape, dtype)} of a state of an optimizer."""
    return {
        jax.tree_util.keystr(path): (leaf.shape, leaf.dtype)
        for path, leaf in jax.tree_util.tree_leaves_with_path(opt_state)
    }


def assemble(
    optimizer: optax.GradientTransformation,
    params: nnx.State,
    *,
    frozen: Sequence[str],
    earlier: Sequence[Sequence[str]],
    layer_decay: float | None,
) -> Assembled:
    """An optimizer for these (abstract) parameters.

    Args:
      optimizer: an optax transformation, for single layers.
      params: the parameters of the model, with their metadata.
      frozen: what does not train (`freezing.trainable_mask`).
      earlier: what did not train in each phase before this one.
      layer_decay: the factor of the learning rate from layer to layer (`layerwise.layer_scales`).

    Raises:
      ValueError: a pattern matches nothing, all is frozen, or a parameter has no depth.
    """
    shapes, depths = nnx.to_pure_dict(params), layerwise.depths(params)
    stacked = map_parameters(lambda axes, shape: len(shape) - len(axes), params)
    layers = layerwise.layer_numbers(shapes, stacked, depths)
    masks = [freezing.trainable_mask(shapes, patterns, layers) for patterns in (*earlier, frozen)]
    groups = histories.groups(layerwise.sizes(shapes, stacked), masks)
    names = jax.tree_util.tree_map_with_path(
        lambda path, at: groups[path_name(path)].name if at.any() else None, masks[-1]
    )
    tx = weight_decay.with_decay_of(optimizer, params)
    tx = hidden_matrices.with_matrices_of(tx, params)
    tx = layerwise.layerwise(tx, freezing.split(stacked, masks[-1])[0], names)
    if layer_decay is not None:
        scales = layerwise.layer_scales(shapes, stacked, depths, decay=layer_decay)
        tx = layerwise.scale_updates(tx, freezing.split(scales, masks[-1])[0])
    return Assembled(tx=tx, mask=masks[-1], stacked=stacked, groups=groups)
