"""The base of the configurations of all families: common fields, and early checks."""

from __future__ import annotations

import dataclasses
import numbers
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import jax.numpy as jnp
from jax.typing import DTypeLike

from t5x_like.layers.attention.attention_kernels import Kernel
from t5x_like.layers.attention.kernel_choice import automatic
from t5x_like.layers.stacks.remat import Policy, policy

_KINDS: Mapping[Any, tuple[tuple[type, ...], str]] = {
    "int": ((numbers.Integral,), "a whole number"),
    "int | None": ((numbers.Integral, type(None)), "a whole number or None"),
    "float": ((numbers.Real,), "a number"),
    "bool": ((bool,), "True or False"),
}
"""For a field's type, the types of its values, and their name in messages."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Transformer:
    """Fields that every family has; a family adds its own and sets other defaults.

    Values are checked by `check_fields`, with `may_be_zero`; `pad_id` must be a row of the table.
    The heads share the width evenly, unless `d_kv` is a field too.
    """

    vocab_size: int  # rows of the table: at least as many as the vocabulary's ids
    d_model: int
    d_ff: int
    num_heads: int
    dropout_rate: float = 0.1  # dropout of the residual stream
    dtype: DTypeLike = "float32"  # computation's dtype; parameters are float32
    scan_unroll: int | None = None  # layers compiled in a row: 1 scans, 0: all; None: `Stack`
    remat: str | Policy | None = None  # what is stored for the backward pass; None: what fits
    kernel: Kernel = automatic  # how attention is computed

    may_be_zero: ClassVar[tuple[str, ...]] = ("scan_unroll",)
    parameters_of: ClassVar[type | None] = None  # another family, whose parameters are the same

    def __post_init__(self) -> None:
        check_fields(self, may_be_zero=self.may_be_zero)
        family = type(self).__module__.rpartition(".")[2]
        if (pad_id := getattr(self, "pad_id", None)) is not None and pad_id >= self.vocab_size:
            limit = f"vocab_size={self.vocab_size}"
            raise ValueError(f"{family}.Config.pad_id must be below {limit}, got {pad_id}")
        policy(self.remat)
        if not _is_floating(self.dtype):
            raise ValueError(
                f"{family}.Config.dtype (DTYPE) must be a kind of number to compute in, such as "
                f"'bfloat16' or 'float32', got {self.dtype!r}"
            )
        if self.d_kv * self.num_heads != self.d_model and not _is_field(self, "d_kv"):
            raise ValueError(
                f"{family}.Config.num_heads={self.num_heads} does not divide "
                f"d_model={self.d_model}: the heads share the width evenly"
            )

    @property
    def d_kv(self) -> int:
        """Width of a head."""
        return self.d_model // self.num_heads


def check_fields(config: Any, *, may_be_zero: Sequence[str] = ()) -> None:
    """Checks the fields of a family's configuration, a dataclass, by their types and names.

    Whole numbers must be at least 1, or at least 0 where `may_be_zero` names them. Rates (fields
    named so) and `label_smoothing` must be in [0, 1), `z_loss` and penalties at least 0.

    Raises:
      ValueError: a value is not of the type of its field, or out of its range.
    """
    family = type(config).__module__.rpartition(".")[2]
    for field in dataclasses.fields(config):
        value: Any = getattr(config, field.name)
        name = f"{family}.Config.{field.name}"
        kinds, what = _KINDS.get(getattr(field.type, "__name__", field.type), ((object, bool), ""))
        if not _fits(value, kinds):
            raise ValueError(f"{name} must be {what}, got {value!r}")
        if field.name.endswith("_rate") or field.name == "label_smoothing":
            if not 0.0 <= value < 1.0:
                raise ValueError(f"{name} must be in [0, 1), got {value}")
            continue
        of_loss = field.name == "z_loss" or field.name.endswith("_penalty")
        if of_loss or (isinstance(value, int) and not isinstance(value, bool)):
            least = 0 if of_loss or field.name in may_be_zero else 1
            if not value >= least:
                raise ValueError(f"{name} must be at least {least}, got {value}")


def _fits(value: Any, kinds: tuple[type, ...]) -> bool:
    """Whether it is of one of the types; True and False are no numbers."""
    return isinstance(value, kinds) and not (isinstance(value, bool) and bool not in kinds)


def _is_floating(dtype: DTypeLike) -> bool:
    try:
        return bool(jnp.issubdtype(jnp.dtype(dtype), jnp.floating))
    except TypeError:
        return False


def _is_field(config: Transformer, name: str) -> bool:
    return name in {field.name for field in dataclasses.fields(config)}
