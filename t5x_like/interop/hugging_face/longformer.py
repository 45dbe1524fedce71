"""Longformer at Hugging Face: settings and names of weights, those of a RoBERTa and some more."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

from flax import nnx

from t5x_like.interop import mapping
from t5x_like.interop.hugging_face import bert, head_classes
from t5x_like.interop.hugging_face.configuration import unsupported_settings
from t5x_like.interop.mapping import Names
from t5x_like.models import longformer
from t5x_like.models.finetuned import FineTuned
from t5x_like.models.longformer import GlobalTokens

MODEL_TYPES = ("longformer",)

_KIND = dataclasses.replace(
    bert.ROBERTA, model_type="longformer", classes="Longformer", vocab_size=30522, decoder=None
)
_SEPARATOR = 2
IDS = {
    "longformer": {"bos_token_id": 0, "eos_token_id": _SEPARATOR, "sep_token_id": _SEPARATOR},
}
_WINDOW = 512
# The tokens that a class makes global where nobody says which are.
_GLOBAL: Mapping[str, GlobalTokens] = {
    head_classes.CLASSES: "first",
    head_classes.SPANS: "question",
    head_classes.CHOICES: "choice",
}
_SEPARATED = ("question", "choice")
_PROJECTIONS = ("query", "key", "value")
COPIES = {r"\.attention\.(query|key|value)\.": (r".attention.\1.", r".attention.\1_global.")}
"""Replaces paths of projections by those of both kinds, as `InitFrom.rename` does."""


def from_hf(config: Mapping[str, Any], architecture: str) -> functools.partial[Any]:
    """Makes a model with its pretraining head or a task's head, or a body, pooled or not.

    Raises:
      ValueError: another head, or a setting that is not supported.
    """
    unsupported_settings.check(config, unsupported_settings.ENCODER)
    ending = architecture.removeprefix(_KIND.classes)
    fields = bert.fields(config, _KIND)
    ours = longformer.Config(
        **fields,
        window=window(config, layers=fields["num_layers"]),
        global_tokens=_GLOBAL.get(ending, "given"),
        separator=_SEPARATOR if (given := config.get("sep_token_id")) is None else given,
    )
    if ending == bert.MASKED:
        bert.check_activation(_KIND, config.get("hidden_act", "gelu"))
        return functools.partial(longformer.Longformer, ours)
    body = functools.partial(longformer.Encoder, ours)
    return bert.with_head(ending, body, ours, kind=_KIND, config=config)


def window(config: Mapping[str, Any], *, layers: int) -> int | tuple[int, ...]:
    """The positions on each side, of all layers or one for each.

    Raises:
      ValueError: a width is not even, so that the sides would differ.
    """
    given: int | Sequence[int] = config.get("attention_window", _WINDOW)
    widths = (given,) if isinstance(given, int) else tuple(given)
    if any(width % 2 for width in widths):
        raise ValueError(f"config.json has attention_window {given!r}: only even ones are read")
    sides = tuple(width // 2 for width in widths)
    of_all = isinstance(given, int) or sides == sides[:1] * layers
    return sides[0] if of_all else sides


def to_hf(model: Any) -> dict[str, Any] | None:
    """config.json of a (possibly abstract) model; None if it is of another family.

    Raises:
      ValueError: Hugging Face's configuration cannot express this one.
    """
    if not _is_ours(model):
        return None
    config: longformer.Config = model.config
    ending = bert.ending_of(model)
    if config.padding_position is None:
        raise ValueError(
            "longformer.Config.padding_position is None, but Hugging Face's Longformer counts "
            "positions from the padding id: it cannot be exported"
        )
    if isinstance(model, FineTuned) and config.tied_global:
        raise ValueError(
            "longformer.Config.tied_global is True, but tasks train projections of global tokens "
            "at Hugging Face: it cannot be exported"
        )
    chosen = _GLOBAL.get(ending, "given")
    if config.global_tokens != chosen:
        raise ValueError(
            f"longformer.Config.global_tokens is {config.global_tokens!r}, but Hugging Face's "
            f"Longformer{ending} has {chosen!r}: it cannot be exported"
        )
    return {
        **bert.described(config, _KIND, ending=ending),
        "attention_window": widths(config.window),
        **({"sep_token_id": config.separator} if chosen in _SEPARATED else {}),
        **(head_classes.settings(model) if isinstance(model, FineTuned) else {}),
    }


def widths(window: int | Sequence[int]) -> int | list[int]:
    """The inverse of `window`."""
    return 2 * window if isinstance(window, int) else [2 * side for side in window]


def names(model: Any) -> Names:
    """The names of a model's weights in a file of its class."""
    decoder = f"{_KIND.mlm['decoder']}.weight"
    rules = bert.body(model.config, decoder=decoder)
    if not model.config.tied_global:
        for name in _PROJECTIONS:
            rules += mapping.linear(
                f"trunk/stack/layers/attention/{name}_global",
                f"encoder.layer.{{i}}.attention.self.{name}_global",
            )
    return bert.names_of(model, rules, kind=_KIND, ending=bert.ending_of(model))


def copies(model: Any) -> Mapping[str, Sequence[str]]:
    """`COPIES` where global tokens have the projections of the others."""
    return COPIES if model.config.tied_global else {}


def halves(model: Any, params: Any) -> dict[str, tuple[nnx.Module, Any]] | None:
    """A model whose global tokens have the projections of the others, with copies of them."""
    if not isinstance(model, longformer.Longformer) or not model.config.tied_global:
        return None
    apart = dataclasses.replace(model.config, tied_global=False)
    whole = nnx.eval_shape(lambda: longformer.Longformer(apart, rngs=nnx.Rngs(0)))
    flat = mapping.flat(params)
    for path in [*flat]:
        layer, _, name = path.partition("attention/")
        projection, _, part = name.partition("/")
        if projection in _PROJECTIONS:
            flat[f"{layer}attention/{projection}_global/{part}"] = flat[path]
    return {"": (whole, mapping.nested(flat))}


def _is_ours(model: Any) -> bool:
    if isinstance(model, FineTuned):
        return isinstance(model.body, longformer.Encoder)
    return isinstance(model, longformer.Longformer)
