"""An estimate of the memory that a step needs, by arithmetic alone: no compiler is asked.

Parameters, optimizer and gradients are known by their shapes and shardings; what the forward pass
stores for the backward pass is known by tracing the derivative. What a compiler adds (copies,
padding) or saves (by computing again) is not.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import jax
from flax import nnx
from jax.extend.core import jaxprs_in_params

from t5x_like.core.device_memory import SHARED, SUMMED_AT_ONCE, usable_bytes
from t5x_like.core.partitioning import device_bytes, map_parameters
from t5x_like.training import compilation
from t5x_like.training.compute_parameters import ComputeParameters, largest_gradient

if TYPE_CHECKING:
    from t5x_like.runs.run import Run
    from t5x_like.training.step import Program


@dataclasses.dataclass(frozen=True, kw_only=True)
class Estimate:
    """Bytes on each device.

    Attributes:
      parameters: those that are stored between steps, with their average if there is one.
      optimizer: the state of the optimizer.
      computed: parameters in the form that a step computes with.
      gradients: of the parameters, as the optimizer reads them; with microbatches their sums, which
        each replica has whole. Also the largest by itself, whole: it is, before devices get parts.
      activations: what the forward pass stores.
      working: the largest array of the forward pass; the backward pass has its gradient.
      shared: what all rows share besides parameters, such as the biases of attention, and its
        gradients before they are summed.
      rows: batches and the memory of the model.
    """

    parameters: float
    optimizer: float
    computed: float
    gradients: float
    activations: float
    working: float
    shared: float
    rows: float

    @property
    def total(self) -> float:
        return math.fsum(dataclasses.astuple(self))

    @property
    def of_rows(self) -> float:
        """The part that grows with the rows of a microbatch."""
        return self.activations + self.working


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
    activations, working, shared = _forward(run, program, row, params)
    same = jax.tree.map(
        lambda a, b: (a.dtype, a.sharding) == (b.dtype, b.sharding), params, state.params
    )
    return Estimate(
        parameters=stored + device_bytes(state.ema),
        optimizer=device_bytes(state.opt_state),
        computed=0 if all(jax.tree.leaves(same)) else device_bytes(params),
        gradients=(_gradients(run, abstract) or stored) + largest_gradient(layout, abstract),
        activations=activations / layout.batch_shards,
        working=working / layout.batch_shards,
        shared=shared,
        rows=device_bytes(state.carry) + _batch_bytes(row, run) / layout.batch_shards,
    )


def _forward(
    run: Run, program: Program, row: Mapping[str, Any], params: Any
) -> tuple[float, float, float]:
    """Bytes that a microbatch stores for its backward pass, of its largest array, and shared."""
    rows = run.options.batch_size // (run.options.microbatches or 1)
    impl = run.options.random_numbers or compilation.random_numbers(run.layout.platform)
    key = jax.eval_shape(lambda: jax.random.key(0, impl=compilation.RANDOM_NUMBERS[impl]))
    batch = {name: jax.ShapeDtypeStruct((rows, *one.shape), one.dtype) for name, one in row.items()}
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
    kept = [one for one in traced.out_avals if one.shape not in known]
    equations = list(_equations(traced.jaxpr))
    read_by_all = [one.outvars[0].aval for one in equations if one.params.get("name") == SHARED]
    stored = sum(_size(one) for one in kept if _has_rows(one, rows))
    # Some have a copy for each part of the batch, so that its gradient stays on its devices.
    parts = run.layout.batch_shards
    shared = sum(
        _size(one) / (parts if parts in one.shape[:1] else 1)
        for one in kept
        if not _has_rows(one, rows)
    )
    # Gradients of arrays of rows take the room of what has been read.
    gradients = sum(_size(one) for one in read_by_all if not _has_rows(one, rows))
    limit = usable_bytes(run.layout.mesh)
    if gradients and limit is not None:
        at_once = min(_layers(run) * gradients, max(gradients, SUMMED_AT_ONCE * limit))
        shared += at_once + 2 * gradients  # with the sum of those before, and the next sum
    results = (one.aval for equation in equations for one in equation.outvars)
    sizes = (_size(one) for one in results if rows in getattr(one, "shape", ())[:1])
    return stored, max(sizes, default=0.0), shared


def _layers(run: Run) -> int:
    """Those of the longest stack."""
    _, params = nnx.split(run.abstract_model, nnx.Param)
    stacked = map_parameters(lambda axes, shape: shape[0] if len(shape) > len(axes) else 1, params)
    return max(jax.tree.leaves(stacked))


def _has_rows(one: Any, rows: int) -> bool:
    """Whether an array is [rows, ...], or is stacked, [N, rows, ...]."""
    return rows in one.shape[:1] or (rows in one.shape[1:2] and one.shape[0] > 1)


def _gradients(run: Run, params: nnx.State) -> float:
    """Bytes of the sums over microbatches on each device, float32; 0 if there are none."""
    layout = run.layout
    if (run.options.microbatches or 1) == 1 or layout.num_replicas == 1:
        return 0.0
    sizes = map_parameters(
        lambda axes, shape: 4.0 * math.prod(layout.sharding(axes, shape).shard_shape(shape)), params
    )
    return math.fsum(jax.tree.leaves(sizes))


def _equations(jaxpr: Any) -> Iterator[Any]:
    """Those of a program, and of the programs that it calls."""
    for equation in jaxpr.eqns:
        yield equation
        for inner in jaxprs_in_params(equation.params):
            yield from _equations(inner)


def _batch_bytes(row: Mapping[str, Any], run: Run) -> float:
    return run.options.batch_size * sum(map(_size, row.values()))


def _size(leaf: Any) -> float:
    return math.prod(leaf.shape) * leaf.dtype.itemsize
