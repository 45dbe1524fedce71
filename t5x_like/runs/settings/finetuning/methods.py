"""Which parameters train when a model is fine-tuned: all, those of the head, or small new ones."""

from __future__ import annotations

import functools
import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from flax import nnx

from t5x_like.core.spelling import nearest
from t5x_like.layers.adapters import bottleneck, ia3, lora, prefix, prompt, source_encoder
from t5x_like.layers.adapters.lora import OfMatrices
from t5x_like.runs.settings.finetuning import features, two_stages, unfreezing
from t5x_like.training.optimization.parameter_paths import by_path

if TYPE_CHECKING:
    from t5x_like.core.protocols.data import Vocabulary
    from t5x_like.runs.run import Phase
    from t5x_like.runs.settings.finetuning.finetuned_model import FineTunedModel

_HEAD = r"(head|mixture)\."


class _Way(NamedTuple):
    """A way of tuning.

    Attributes:
      rate: the highest learning rate that its paper recommends, for models of a hundred million
        parameters; None for that of the family.
      trained: patterns of the paths of parameters that train besides the head.
      adapt: gives the model new parameters; None where it gets none.
      takes: the settings of `Method` that it reads.
    """

    rate: float | None
    trained: Sequence[str] = ()
    adapt: Callable[..., Any] | None = None
    takes: Sequence[str] = ()


def _named(names: Sequence[str]) -> str:
    return rf".*\.({'|'.join(names)})$"


_LORA = _Way(5e-4, [_named(lora.TRAINED)], lora.adapt, ("rank", "alpha", "places", "lora_dropout"))
FULL, UNFREEZING, FEATURES, SOURCE = "full", "unfreezing", "features", "source_encoder"
_WAYS: Mapping[str, _Way] = {
    FULL: _Way(None),
    UNFREEZING: _Way(None),
    SOURCE: _Way(None, adapt=source_encoder.adapt, takes=("source_layers",)),
    "head": _Way(1e-3),
    FEATURES: _Way(1e-3, takes=("states",)),
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
    "prefix": _Way(5e-3, [_named(prefix.TRAINED)], prefix.adapt, ("virtual_tokens",)),
    "prompt": _Way(5e-3, [_named(prompt.TRAINED)], prompt.adapt, ("virtual_tokens", "prompt_text")),
}
METHODS = (*_WAYS,)
"""The names of the methods."""
_OF_PROMPTS = {"t5": 0.3, "mt5": 0.3, "umt5": 0.3}
"""Learning rates of prompts by family: T5's vectors are large (Lester et al., 2021, section 3)."""
_MIXED = "mix"
_WITH_SOURCE = ("bart", "mbart")
"""The families that a second encoder is for."""


class Method(NamedTuple):
    """What trains, of `METHODS`; None for the usual.

    Attributes:
      name: its name.
      rank, alpha: of LoRA, rsLoRA and DoRA: the rank, and alpha, by which changes are scaled; for
        all matrices, by layer or by path (`lora.adapt`).
      places: the names of the matrices that get new parameters, as in `places.NAMES`.
      lora_dropout: of LoRA and its kin: the rate of dropout of what the first new matrix reads.
      width: the hidden units of adapters.
      states: the states that the head reads of a frozen body: "mix", "last" or "concat:4"
        (`features.with_states`).
      virtual_tokens: how many a prefix or a prompt has.
      prompt_text: the text whose tokens a prompt starts as.
      source_layers: the layers of a second encoder, before BART's own.
    """

    name: str | None = None
    rank: OfMatrices | None = None
    alpha: OfMatrices | None = None
    places: Sequence[str] | None = None
    lora_dropout: float | None = None
    width: int | None = None
    states: str | None = None
    virtual_tokens: int | None = None
    prompt_text: str | None = None
    source_layers: int | None = None

    @property
    def is_full(self) -> bool:
        """Whether all parameters train in the end."""
        return self.name in (None, FULL, UNFREEZING, SOURCE)

    @property
    def _way(self) -> _Way:
        return _WAYS[self.name or FULL]

    def check(self, *, reinit_layers: int | None) -> None:
        """Checks the settings.

        Args:
          reinit_layers: how many layers start afresh.

        Raises:
          ValueError: there is no such method, it has not these settings, or it freezes layers that
            start afresh.
        """
        if self.name is not None and self.name not in METHODS:
            raise ValueError(
                f"there is no method {self.name!r}{nearest(self.name, METHODS, of='methods')}"
            )
        if reinit_layers and self.name not in (None, FULL):
            raise ValueError(f"reinit_layers would start layers afresh that {self.name} freezes")
        given = [name for name in self._fields[1:] if getattr(self, name) is not None]
        for name in given:
            if name not in self._way.takes:
                of = [method for method, way in _WAYS.items() if name in way.takes]
                raise ValueError(
                    f"{name} is a setting of the methods {', '.join(of)}, not of "
                    f"{self.name or FULL}"
                )

    def on(self, model: FineTunedModel) -> FineTunedModel:
        """The model with what a method changes of its constructor.

        Raises:
          ValueError: it has no head that could read other states.
        """
        if self.name == FEATURES and model.form is not None:
            return features.with_states(model, self.states or _MIXED)
        writes = model.form is None and model.model_type in _WITH_SOURCE
        if self.name == SOURCE and not writes:
            raise ValueError(
                f"{SOURCE} is for texts to write by {', '.join(_WITH_SOURCE)}, not for a "
                f"{model.model_type}"
            )
        if self.name == "prompt" and model.max_tokens is not None:
            return model._replace(max_tokens=model.max_tokens - self._settings()["virtual_tokens"])
        return model

    def adapt(self, vocabulary: Vocabulary) -> functools.partial[Any] | None:
        """The function that gives a model its new parameters (`Run.adapt`); None for none.

        Args:
          vocabulary: that of the model.

        Raises:
          ValueError: the text of a prompt has no tokens.
        """
        if self._way.adapt is None:
            return None
        given = self._settings()
        if (text := given.pop("prompt_text", None)) is not None:
            given["like"] = tuple(map(int, vocabulary.encode(text)))
            if not given["like"]:
                raise ValueError(f"the text of a prompt has no tokens: {text!r}")
        return functools.partial(self._way.adapt, **given)

    def _settings(self) -> dict[str, Any]:
        """The settings that `adapt` takes, where they are given, and how many virtual tokens."""
        usual = {"virtual_tokens": _VIRTUAL_TOKENS} if "virtual_tokens" in self._way.takes else {}
        settings = {name: getattr(self, name) for name in self._way.takes}
        given = {name: value for name, value in settings.items() if value is not None}
        if "places" in given:
            given["places"] = tuple(given["places"])
        return {**usual, **given}

    def macros(self, model_type: str) -> dict[str, Any]:
        """The macros of what trains, and of what a checkpoint holds; none where all does.

        Args:
          model_type: the family.
        """
        if self.name == UNFREEZING:
            return {"LAYER_DECAY": unfreezing.LAYER_DECAY}
        if self.is_full:
            return {}
        trained = "|".join([_HEAD, *self._way.trained])
        of_family = _OF_PROMPTS if self.name == "prompt" else {}
        return {
            "FROZEN": (f"^(?!{trained})",),
            "CHECKPOINT_FROZEN": False,
            "PEAK_LEARNING_RATE": of_family.get(model_type, self._way.rate),
            "LAYER_DECAY": None,
        }

    def phases(self, model: FineTunedModel, steps: int) -> list[Phase]:
        """The phases of a run of so many steps; none where what trains stays the same.

        Raises:
          ValueError: as in `unfreezing.phases` and `two_stages.phases`.
        """
        if self.name == SOURCE:
            return two_stages.phases(model.make, steps)
        if self.name != UNFREEZING:
            return []
        return unfreezing.phases(model.make, steps, model_type=model.model_type)

    def line(self, make: functools.partial[Any], vocabulary: Vocabulary) -> str:
        """A sentence about the share of the parameters that trains.

        Args:
          make: the constructor of the model that is fine-tuned.
          vocabulary: that of the model.

        Raises:
          ValueError: nothing would train besides the head where something should, or no head is
            there; or the model has no place for new parameters.
        """
        adapt = self.adapt(vocabulary)

        def made() -> Any:
            model = make(rngs=nnx.Rngs(0))
            return model if adapt is None else adapt(model, rngs=nnx.Rngs(0))

        state = nnx.state(nnx.eval_shape(made), nnx.Param)
        sizes = {
            path: math.prod(leaf.shape) for path, leaf in by_path(nnx.to_pure_dict(state)).items()
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


def lines_about(phases: Sequence[Phase]) -> Iterator[str]:
    """A sentence about the phases of a run, where it has some."""
    if phases:
        ends = itertools.accumulate(phase.steps or 0 for phase in phases[:-1])
        yield f"More parameters train after step {', '.join(map(str, ends))}: all in the last part."


_VIRTUAL_TOKENS = 20
"""The usual number: more hardly helped (Lester et al., 2021, section 3.2)."""
