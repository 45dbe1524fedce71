"""An estimate of the memory that a step needs, by arithmetic alone: no compiler is asked.

Parameters, optimizer and gradients are known by their shapes and shardings; what the forward pass
stores for the backward pass is known by tracing the derivative. How far ahead a compiler gathers
parameters is not: that is a guess which agrees with what it does (tests/runs/memory).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from flax import nnx

from t5x_like.core.devices.memory import SHARED, SUMMED_AT_ONCE, usable_bytes
from t5x_like.core.partitioning import Layout, device_bytes, map_parameters
from t5x_like.runs.memory.residuals import array_bytes, equations, residuals
from t5x_like.training import compilation
from t5x_like.training.compute_parameters import ComputeParameters, largest_gradient

if TYPE_CHECKING:
    from t5x_like.runs.run import Run
    from t5x_like.training.step import Program


_LAYERS_AHEAD = 2
"""Layers whose parameters a device has whole at once, where it stores parts of them (FSDP)."""
_KEPT_IN_LOOPS = 0.1
"""The share that is stored of what could be made again, where a step loops over microbatches."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Estimate:
    """Bytes on each device.

    Attributes:
      parameters: those that are stored between steps, with their average if there is one.
      optimizer: the state of the optimizer.
      computed: parameters in the form that a step computes with, as far as it is kept.
      gradients: their sums over microbatches, which each replica has whole. Without microbatches
        they take the room of what has been read.
      largest_gradient: the largest by itself, whole: it is, before devices get parts.
      first_gradient: that of the matrix which gives logits, which there is with all activations.
      layers: parameters of layers, whole, while they are used; with microbatches also the gradients
        of one, before they are added.
      activations: what a compiler stores of the forward pass.
      shared: what all rows share besides parameters, such as the biases of attention, and its
        gradients before they are summed.
      rows: batches and the memory of the model.
      read: all that the backward pass reads of the forward pass, and the largest array of it, whose
        gradient there is too. A compiler may store all of it where there is room.
    """

    parameters: float
    optimizer: float
    computed: float
    gradients: float
    largest_gradient: float
    first_gradient: float
    layers: float
    activations: float
    shared: float
    rows: float
    read: float

    @property
    def total(self) -> float:
        """The bytes that a step needs."""
        first = self.activations + self.first_gradient
        return self._lasting + self.layers + max(first, self.largest_gradient)

    @property
    def besides_rows(self) -> float:
        """The bytes that last as long as a step, whatever the rows of a microbatch."""
        return self._lasting + self.largest_gradient

    @property
    def _lasting(self) -> float:
        state = self.parameters + self.optimizer + self.computed
        return state + self.gradients + self.shared + self.rows


def estimate(run: Run, program: Program, row: Mapping[str, Any]) -> Estimate:
    """The estimate for a step.

    Args:
      run: a run with the settings of one phase.
      program: its program.
      row: a row of its batches, {name: shape and dtype}.
    """
    layout, state = run.layout, program.abstract_state
    _, abstract = nnx.split(run.abstract_model, nnx.Param)
    compute = ComputeParameters.of(abstract, layout)
    params = jax.tree.map(
        lambda leaf, dtype, where: jax.ShapeDtypeStruct(leaf.shape, dtype, sharding=where),
        state.params,
        compute.dtypes,
        compute.gathered,
    )
    stored = device_bytes(state.params)
    same = jax.tree.map(
        lambda a, b: (a.dtype, a.sharding) == (b.dtype, b.sharding), params, state.params
    )
    forward = _forward(run, program, row, params)
    sums = _gradients(run, abstract)
    largest = largest_gradient(layout, abstract)
    return Estimate(
        parameters=stored + device_bytes(state.ema),
        optimizer=device_bytes(state.opt_state),
        computed=0 if all(jax.tree.leaves(same)) else device_bytes(params),
        gradients=(sums or stored) if (run.options.microbatches or 1) > 1 else 0.0,
        largest_gradient=largest,
        first_gradient=largest / (2 if _has_narrow_logits(layout, abstract) else 1),
        layers=_whole_layers(layout, abstract, compute) + sums,
        rows=device_bytes(state.carry) + _batch_bytes(row, run) / layout.batch_shards,
        **forward,
    )


def _forward(run: Run, program: Program, row: Mapping[str, Any], params: Any) -> dict[str, float]:
    """Bytes of a microbatch on a device: `activations`, `shared` and `read` of the estimate."""
    microbatches = run.options.microbatches or 1
    rows = run.options.batch_size // microbatches
    impl = run.options.random_numbers or compilation.random_numbers(run.layout.platform)
    key = jax.eval_shape(lambda: jax.random.key(0, impl=compilation.RANDOM_NUMBERS[impl]))
    batch = {
        name: jax.ShapeDtypeStruct((rows, *array.shape), array.dtype) for name, array in row.items()
    }
    carry = jax.eval_shape(lambda: run.abstract_model.initial_carry(rows))

    def backward(params: Any, batch: Any, carry: Any, key: Any) -> Any:
        def loss(params: Any) -> jax.Array:
            model = nnx.merge(program.graphdef, params)
            return model.loss(batch, key, carry, model.weights(batch))[0]

        return jax.vjp(loss, params)[1]

    with program.layout.active():
        traced = jax.make_jaxpr(backward)(params, batch, carry, key)
    # Stored are parameters too, whole or one layer's, and transposed.
    known = {shape for leaf in jax.tree.leaves(params) for shape in (leaf.shape, leaf.shape[1:])}
    known |= {shape[::-1] for shape in known}
    read = [array for array in traced.out_avals if array.shape not in known]
    stored_arrays = [array for array in residuals(traced.jaxpr) if array.shape not in known]
    all_equations = list(equations(traced.jaxpr))
    # Some have a copy for each part of the batch, so that its gradient stays on its devices.
    parts = run.layout.batch_shards
    shared = sum(
        array_bytes(array) / (parts if parts in array.shape[:1] else 1)
        for array in read
        if not _has_rows(array, rows)
    )
    named = [
        equation.outvars[0].aval
        for equation in all_equations
        if equation.params.get("name") == SHARED
    ]
    gradients = _shared_gradients(run, [array for array in named if not _has_rows(array, rows)])
    results = (result.aval for equation in all_equations for result in equation.outvars)
    largest = max(
        (array_bytes(array) for array in results if rows in getattr(array, "shape", ())[:1]),
        default=0.0,
    )

    def of_rows(arrays: Iterable[Any]) -> float:
        return sum(array_bytes(array) for array in arrays if _has_rows(array, rows))

    stored, most = of_rows(stored_arrays) / parts, (of_rows(read) + largest) / parts
    if microbatches > 1:
        stored += _KEPT_IN_LOOPS * (most - stored)
    else:  # they take the room of what has been read: on average half is free
        gradients = max(0.0, gradients - stored / 2)
    return {"activations": stored, "shared": shared + gradients, "read": most}


def _shared_gradients(run: Run, arrays: Iterable[Any]) -> float:
    """Bytes of the gradients of what all layers read, before they are summed over devices."""
    gradients = sum(map(array_bytes, arrays))
    limit = usable_bytes(run.layout.mesh)
    if not gradients or limit is None:
        return 0.0
    at_once = min(_layers(run) * gradients, max(gradients, SUMMED_AT_ONCE * limit))
    return at_once + 2 * gradients  # with the sum of those before, and the next sum


def _whole_layers(layout: Layout, params: nnx.State, compute: ComputeParameters) -> float:
    """Bytes of the parameters that a step gathers by layers: all, or with FSDP those in use."""
    axes = layout.mesh_axes("embed")
    split = math.prod(layout.mesh.shape[axis] for axis in axes) > 1
    whole = layout.without(axes, of="embed")

    def elements(names: Sequence[str | None], shape: Sequence[int]) -> int:
        if len(shape) == len(names):
            return 0
        layer_shape = tuple(shape[len(shape) - len(names) :])
        layers = min(shape[0], _LAYERS_AHEAD) if split else shape[0]
        return layers * math.prod(whole.sharding(names, layer_shape).shard_shape(layer_shape))

    sizes = jax.tree.map(
        lambda count, dtype: count * jnp.dtype(dtype).itemsize,
        map_parameters(elements, params),
        compute.dtypes,
    )
    return float(sum(jax.tree.leaves(sizes)))


def _has_narrow_logits(layout: Layout, params: nnx.State) -> bool:
    """Whether logits come from a matrix of their own, whose gradient has 16 bits (`narrowed`)."""
    is_head = map_parameters(lambda axes, shape: len(axes) == 2 and axes[-1] == "vocab", params)
    return layout.platform == "tpu" and any(jax.tree.leaves(is_head))


def _layers(run: Run) -> int:
    """The number of layers in the longest stack."""
    _, params = nnx.split(run.abstract_model, nnx.Param)
    stacked = map_parameters(lambda axes, shape: shape[0] if len(shape) > len(axes) else 1, params)
    return max(jax.tree.leaves(stacked))


def _has_rows(array: Any, rows: int) -> bool:
    """Whether an array is [rows, ...], or is stacked, [N, rows, ...]."""
    return rows in array.shape[:1] or (rows in array.shape[1:2] and array.shape[0] > 1)


def _gradients(run: Run, params: nnx.State) -> float:
    """Bytes of the sums over microbatches on each device, float32; 0 if there are none."""
    layout = run.layout
    if (run.options.microbatches or 1) == 1 or layout.num_replicas == 1:
        return 0.0
    sizes = map_parameters(
        lambda axes, shape: 4.0 * math.prod(layout.sharding(axes, shape).shard_shape(shape)), params
    )
    return math.fsum(jax.tree.leaves(sizes))


def _batch_bytes(row: Mapping[str, Any], run: Run) -> float:
    return run.options.batch_size * sum(map(array_bytes, row.values()))
