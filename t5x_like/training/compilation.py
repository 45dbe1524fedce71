"""XLA's options for a step, and the kind of random numbers, by the platform of the devices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from t5x_like.core.counter_random import COUNTER

_OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "tpu": {
        # A product with a split matrix is not taken apart into a loop of small products that pass
        # pieces on: on 16 chips the loops take longer than gathering the matrix.
        "xla_jf_spmd_threshold_for_windowed_einsum_mib": "1000000",
    },
}

RANDOM_NUMBERS: Mapping[str, Any] = {
    "counter": COUNTER,
    "rbg": "rbg",
    "threefry2x32": "threefry2x32",
}
"""Kinds of random numbers, and what `jax.random.key` takes as `impl` for each.

- `threefry2x32`: JAX's own, the same on every device and mesh. An accelerator spends more time on
  it than on the layers' norms.
- `counter`: one hash of each position (`core.counter_random`): the same on every device and mesh,
  and cheap enough to be computed again in the backward pass.
- `rbg`: XLA's generator, which TPUs have in hardware. Its numbers depend on the mesh, so that a run
  that is resumed on another mesh drops other elements.
"""


def compiler_options(platform: str, more: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a step on devices of this platform; those in `more` come first."""
    return {**_OPTIONS.get(platform, {}), **more}


def random_numbers(platform: str) -> str:
    """The kind of random numbers that dropout draws by default."""
    return "threefry2x32" if platform == "cpu" else "counter"
