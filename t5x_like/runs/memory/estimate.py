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

from t5x_like.core.partitioning import map_parameters
from t5x_like.training import compilation
from t5x_like.training.compute_parameters import ComputeParameters

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
        each replica has whole.
      activations: what the forward pass stores.
      working: the largest array of the forward pass; the backward pass has its gradient.
      rows: batches and the memory of the model.
    """

    parameters: float
    optimizer: float
    computed: float
    gradients: float
    activations: float
    working: float
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
    stored = _bytes(state.params)
    activations, working = _forward(run, program, row, params)
    same = jax.tree.map(
        lambda a, b: (a.dtype, a.sharding) == (b.dtype, b.sharding), params, state.params
    )
    return Estimate(
        parameters=stored + _bytes(state.ema),
        optimizer=_bytes(state.opt_state),
        computed=0 if all(jax.tree.leaves(same)) else _bytes(params),
        gradients=_gradients(run, abstract) or stored,
        activations=activations / layout.batch_shards,
        working=working / layout.batch_shards,
        rows=_bytes(state.carry) + _batch_bytes(row, run) / layout.batch_shards,
    )


def _forward(
    run: Run, program: Program, row: Mapping[str, Any], params: Any
) -> tuple[float, float]:
    """Bytes that a microbatch stores for its backward pass, and of its largest array."""
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

    with run.layout.active():
        traced = jax.make_jaxpr(backward)(params, batch, carry, key)
    # Stored are parameters too, whole or one layer's.
    known = {shape for leaf in jax.tree.leaves(params) for shape in (leaf.shape, leaf.shape[1:])}
    stored = sum(
        _size(one) for one in traced.out_avals if rows in one.shape[:2] and one.shape not in known
    )
    sizes = (_size(one) for one in _results(traced.jaxpr) if rows in one.shape[:1])
    return stored, max(sizes, default=0.0)


def _gradients(run: Run, params: nnx.State) -> float:
    """Bytes of the sums over microbatches on each device, float32; 0 if there are none."""
    layout = run.layout
    if (run.options.microbatches or 1) == 1 or layout.num_replicas == 1:
        return 0.0
    sizes = map_parameters(
        lambda axes, shape: 4.0 * math.prod(layout.sharding(axes, shape).shard_shape(shape)), params
    )
    return math.fsum(jax.tree.leaves(sizes))


def _results(jaxpr: Any) -> Iterator[Any]:
    """The arrays that a program computes, in the programs that it calls too."""
    for equation in jaxpr.eqns:
        yield from (one.aval for one in equation.outvars if hasattr(one.aval, "shape"))
        for inner in jaxprs_in_params(equation.params):
            yield from _results(inner)


def _batch_bytes(row: Mapping[str, Any], run: Run) -> float:
    return run.options.batch_size * sum(map(_size, row.values()))


def _bytes(tree: Any) -> float:
    """Bytes of abstract arrays on one device."""
    return sum(
        math.prod(leaf.sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize
        for leaf in jax.tree.leaves(tree)
    )


def _size(leaf: Any) -> float:
    return math.prod(leaf.shape) * leaf.dtype.itemsize
