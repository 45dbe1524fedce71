"""Which parameters train when a model is fine-tuned: all, those of the head, or small new ones."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from flax import nnx

from t5x_like.core.spelling import nearest
from t5x_like.layers.adapters import bottleneck, ia3, lora
from t5x_like.layers.adapters.lora import OfMatrices
from t5x_like.training.optimization.parameter_paths import by_path

_HEAD = r"head\."


class _Way(NamedTuple):
    """A way of tuning.

    Attributes:
      rate: the highest learning rate that its paper recommends, for models of a hundred million
        parameters.
      trained: patterns of the paths of parameters that train besides the head.
      adapt: gives the model new parameters; None where it gets none.
      takes: the settings of `Method` that `adapt` takes.
    """

    rate: float
    trained: Sequence[str] = ()
    adapt: Callable[..., Any] | None = None
    takes: Sequence[str] = ()


def _named(names: Sequence[str]) -> str:
    return rf".*\.({'|'.join(names)})$"


_LORA = _Way(5e-4, [_named(lora.TRAINED)], lora.adapt, ("rank", "alpha", "places"))
FULL = "full"
_WAYS: Mapping[str, _Way] = {
    "head": _Way(1e-3),
    "bitfit": _Way(4e-4, [_named(("bias",))]),
    "lora": _LORA,
    "rslora": _LORA._replace(adapt=functools.partial(lora.adapt, rank_stabilised=True)),
    "dora": _LORA._replace(adapt=functools.partial(lora.adapt, magnitudes=True)),
    "ia3": _Way(3e-3, [_named(ia3.TRAINED)], ia3.adapt, ("places",)),
    "adapters": _Way(
        3e-4,
        [_named(bottleneck.TRAINED), r".*norm\.(scale|bias)$"],
        bottleneck.adapt,
        ("width", "places"),
    ),
}
METHODS = (FULL, *_WAYS)
"""The names of the methods."""


class Method(NamedTuple):
    """What trains, of `METHODS`; None for the usual.

    Attributes:
      name: its name.
      rank, alpha: of LoRA, rsLoRA and DoRA: the rank, and alpha, by which changes are scaled; for
        all matrices, by layer or by path (`lora.adapt`).
      places: the names of the matrices that get new parameters, as in `places.NAMES`.
      width: the hidden units of adapters.
    """

    name: str | None = None
    rank: OfMatrices | None = None
    alpha: OfMatrices | None = None
    places: Sequence[str] | None = None
    width: int | None = None

    @property
    def is_full(self) -> bool:
        """Whether all parameters train."""
        return self.name in (None, FULL)

    @property
    def rate(self) -> float:
        """The usual learning rate of a method that is not `FULL`."""
        return self._way.rate

    @property
    def _way(self) -> _Way:
        return _WAYS[str(self.name)]

    def check(self, *, reinit_layers: int | None) -> None:
        """Checks the settings.

        Args:
          reinit_layers: how many layers start afresh.

        Raises:
          ValueError: there is no such method, it has not these settings, or it freezes layers that
            start afresh.
        """
        if reinit_layers and not self.is_full:
            raise ValueError(f"reinit_layers would start layers afresh that {self.name} freezes")
        if self.name is not None and self.name not in METHODS:
            raise ValueError(
                f"there is no method {self.name!r}{nearest(self.name, METHODS, of='methods')}"
            )
        given = [name for name in self._fields[1:] if getattr(self, name) is not None]
        takes = () if self.is_full else self._way.takes
        for name in given:
            if name not in takes:
                of = [method for method, way in _WAYS.items() if name in way.takes]
                raise ValueError(
                    f"{name} is a setting of the methods {', '.join(of)}, not of "
                    f"{self.name or FULL}"
                )

    def adapt(self) -> functools.partial[Any] | None:
        """The function that gives a model its new parameters (`Run.adapt`); None for none."""
        if self.is_full or (way := self._way).adapt is None:
            return None
        settings = {name: getattr(self, name) for name in way.takes}
        given = {name: value for name, value in settings.items() if value is not None}
        if "places" in given:
            given["places"] = tuple(given["places"])
        return functools.partial(way.adapt, **given)

    def macros(self) -> dict[str, Any]:
        """The macros of what trains, and of what a checkpoint holds; none where all does."""
        if self.is_full:
            return {}
        trained = "|".join([_HEAD, *self._way.trained])
        return {
            "FROZEN": (f"^(?!{trained})",),
            "CHECKPOINT_FROZEN": False,
            "PEAK_LEARNING_RATE": self.rate,
            "LAYER_DECAY": None,
        }

    def line(self, make: Callable[..., Any]) -> str:
        """A sentence about the share of the parameters that trains.

        Args:
          make: the constructor of the model that is fine-tuned.

        Raises:
          ValueError: nothing would train besides the head where something should, or no head is
            there; or the model has no place for new parameters.
        """
        adapt = self.adapt()

        def made() -> Any:
            model = make(rngs=nnx.Rngs(0))
            return model if adapt is None else adapt(model, rngs=nnx.Rngs(0))

        sizes = {
            path: math.prod(leaf.shape)
            for path, leaf in by_path(
                nnx.to_pure_dict(nnx.state(nnx.eval_shape(made), nnx.Param))
            ).items()
        }
        head = sum(size for path, size in sizes.items() if re.match(_HEAD, path))
        others = sum(
            size
            for path, size in sizes.items()
            if any(re.match(pattern, path) for pattern in self._way.trained)
            and not re.match(_HEAD, path)
        )
        if self._way.trained and not others:
            raise ValueError(
                f"{self.name} trains biases, and this model has none: take another method, such "
                "as lora"
            )
        if not self._way.trained and not head:
            raise ValueError(
                f"{self.name} trains the head alone, and a model that writes texts has none: "
                "take another method, such as lora, or kind"
            )
        share = (head + others) / sum(sizes.values())
        of_head = f", {head:,} of them in the head" if head else ""
        return (
            f"Trains {head + others:,} of {sum(sizes.values()):,} parameters ({share:.2%}) by "
            f"{self.name}{of_head}; checkpoints hold these alone."
        )
