"""What the configurations of all families share: common fields, and checks before any work."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from jax.typing import DTypeLike

from t5x_like.layers import attention_kernels
from t5x_like.layers.attention_kernels import Kernel
from t5x_like.layers.stack import Policy


@dataclasses.dataclass(frozen=True, kw_only=True)
class Transformer:
    """Fields that every family has; a family adds its own and sets other defaults.

    Whole numbers must be at least 1, or at least 0 where `may_be_zero` names them; rates, which are
    the fields named so, in [0, 1).
    """

    vocab_size: int  # rows of the table: at least the ids of the vocabulary
    d_model: int
    d_ff: int
    num_heads: int
    dropout_rate: float = 0.1  # of the residual stream
    dtype: DTypeLike = "float32"  # of the computation; parameters are float32
    scan_unroll: int = 1  # layers compiled in a row: 1 scans, 0 unrolls the whole stack
    remat: Policy | None = None  # what the backward pass finds stored; None: everything
    kernel: Kernel = attention_kernels.plain  # how attention is computed

    may_be_zero: ClassVar[tuple[str, ...]] = ("scan_unroll",)

    def __post_init__(self) -> None:
        family = type(self).__module__.rpartition(".")[2]
        for field in dataclasses.fields(self):
            name, value = field.name, getattr(self, field.name)
            if isinstance(value, int) and not isinstance(value, bool):
                least = 0 if name in self.may_be_zero else 1
                if value < least and not name.endswith("_rate"):
                    raise ValueError(
                        f"{family}.Config.{name} must be at least {least}, got {value}"
                    )
            if name.endswith("_rate") and not 0.0 <= value < 1.0:
                raise ValueError(f"{family}.Config.{name} must be in [0, 1), got {value}")

    @property
    def d_kv(self) -> int:
        """Width of a head.

        Raises:
          ValueError: the heads do not divide the model's width.
        """
        if self.d_model % self.num_heads:
            raise ValueError(
                f"num_heads={self.num_heads} does not divide d_model={self.d_model}: the heads "
                "share the width evenly"
            )
        return self.d_model // self.num_heads
