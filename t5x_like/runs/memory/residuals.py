"""The arrays between a forward pass and its backward pass, once a compiler has fused operations.

The derivative of a traced program names all arrays that its backward pass reads. XLA fuses
elementwise operations into whatever reads their results. So it keeps what a matrix product, a
kernel or a draw of random numbers gives, once, and not what casts, norms and activations make of
it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from jax.extend.core import Literal, Var, jaxprs_in_params

_FUSED = frozenset(
    """
    abs add add_any and bitcast_convert_type broadcast_in_dim clamp concatenate
    convert_element_type copy div eq erf exp exp2 expand_dims ge gt integer_pow iota is_finite le
    log log1p logistic lt max min mul name ne neg not or pow random_unwrap reshape round rsqrt
    select_n sharding_constraint shift_left shift_right_logical sign slice sqrt square squeeze
    stop_gradient sub tanh transpose xor
    """.split()
)
"""Operations that are done again wherever their results are read."""
_REDUCED = frozenset({"reduce_max", "reduce_min", "reduce_sum"})
"""Operations whose results, such as those of norms, are too small to count."""
_CALLS = frozenset({"custom_jvp_call", "custom_vjp_call", "jit", "pjit"})


def residuals(jaxpr: Any) -> list[Any]:
    """Shapes and dtypes of the arrays that are stored for a backward pass.

    Args:
      jaxpr: a forward pass, whose results are what its backward pass reads.

    Returns:
      The results of it that no fused operation makes from its arguments and from the other
      results. Where several are made from one array, that array takes their place if it is smaller.
    """
    results = {result for result in jaxpr.outvars if not isinstance(result, Literal)}
    made_from: dict[Var, frozenset[Var]] = {}
    groups: dict[frozenset[Var], list[Var]] = {}
    for equation in jaxpr.eqns:
        sources = _sources(equation, made_from)
        for var in equation.outvars:
            made_from[var] = frozenset({var}) if sources is None else sources
            if var in results:
                groups.setdefault(made_from[var], []).append(var)
                made_from[var] = frozenset()
    return [stored.aval for sources, group in groups.items() for stored in _fewest(sources, group)]


def array_bytes(one: Any) -> float:
    """The bytes of an array with a shape and a dtype."""
    return math.prod(one.shape) * one.dtype.itemsize


def equations(jaxpr: Any) -> Iterator[Any]:
    """The equations of a program, and of the programs that it calls."""
    for equation in jaxpr.eqns:
        yield equation
        for inner in jaxprs_in_params(equation.params):
            yield from equations(inner)


def _sources(equation: Any, made_from: dict[Var, frozenset[Var]]) -> frozenset[Var] | None:
    """The arrays that are neither arguments nor results, and that fused operations make an
    equation's results from; None if it is not fused."""
    name = equation.primitive.name
    if name in _REDUCED:
        return frozenset()
    if name in _CALLS:
        inner = [
            inner_equation
            for part in jaxprs_in_params(equation.params)
            for inner_equation in equations(part)
        ]
        if not all(inner_equation.primitive.name in _FUSED | _CALLS for inner_equation in inner):
            return None
    elif name not in _FUSED:
        return None
    read = [var for var in equation.invars if not isinstance(var, Literal)]
    return frozenset[Var]().union(*(made_from.get(var, frozenset()) for var in read))


def _fewest(sources: frozenset[Var], group: list[Var]) -> list[Var]:
    """The arrays to store, of those that are made from `sources` and of these themselves."""
    if len(group) == 1 or not sources:
        return group if sources else []
    return min([*sources], group, key=lambda some: sum(array_bytes(var.aval) for var in some))
