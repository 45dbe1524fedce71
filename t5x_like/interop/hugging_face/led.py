"""LED at Hugging Face: settings and names of weights, those of a BART but for its encoder."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from t5x_like.interop.hugging_face import bart, head_classes, longformer
from t5x_like.interop.mapping import Names, linear, norm, under
from t5x_like.models import led

MODEL_TYPES = ("led",)
IDS = {"led": bart.IDS["bart"]}

_STEM, _PREFIX = "LED", "led."
_GENERATION = "ForConditionalGeneration"
_ENDINGS = (_GENERATION, head_classes.BODY, head_classes.SPANS)
_SETTINGS = {
    **bart.SETTINGS,
    "max_positions": ("max_encoder_position_embeddings", 16384),
    "max_decoder_positions": ("max_decoder_position_embeddings", 1024),
}
_PROJECTIONS = ("query", "key", "value", "query_global", "key_global", "value_global")


def from_hf(config: Mapping[str, Any], architecture: str) -> functools.partial[Any]:
    """Makes the model of a config.json; see `families`."""
    ending = architecture.removeprefix(_STEM)
    if architecture == ending or ending not in _ENDINGS:
        known = ", ".join(_STEM + name for name in _ENDINGS)
        raise ValueError(f"{architecture} is not supported; of this family, {known} are")
    fields = bart.read(config, _SETTINGS)
    ours = led.Config(
        **fields,
        window=longformer.window(config, layers=fields["num_encoder_layers"]),
        logits_bias=ending == _GENERATION,
    )
    if ending == _GENERATION:
        return functools.partial(led.Led, ours)
    return bart.of_task(ending, functools.partial(led.Reader, ours), config=config)


def constructor_for(make: functools.partial, weights: Any) -> functools.partial:
    """The constructor for what the weights hold: a bias of zeros, a buffer there, is none here."""
    return bart.constructor_for(make, weights)


def to_hf(model: Any) -> dict[str, Any] | None:
    """config.json of a model; see `families`."""
    config = model.config
    if not isinstance(config, led.Config):
        return None
    ending = _ending(model)
    if ending not in _ENDINGS:
        raise ValueError(f"Hugging Face has no {_STEM}{ending}: it cannot be exported")
    for name in ("pre_norm", "scale_embedding"):
        if getattr(config, name):
            raise ValueError(
                f"led.Config.{name} is True, but Hugging Face's LED has none: it cannot be exported"
            )
    return {
        "model_type": "led",
        "architectures": [_STEM + ending],
        "is_encoder_decoder": True,
        **bart.written(config, _SETTINGS),
        "attention_window": longformer.widths(config.window),
    }


def names(model: Any) -> Names:
    """The names of a model's weights; see `families`."""
    ending, config = _ending(model), model.config
    rules = bart.body_rules(config, of_encoder=())
    ours, theirs = "encoder/layers/", "encoder.layers.{i}.self_attn"
    rules += norm(f"{ours}attention_norm", f"{theirs}_layer_norm")
    rules += linear(f"{ours}attention/out", f"{theirs}.output")
    for name in _PROJECTIONS:
        rules += linear(f"{ours}attention/{name}", f"{theirs}.longformer_self_attn.{name}")
    rules = under(
        rules,
        ours="" if ending == _GENERATION else "body/model/",
        theirs="" if ending == head_classes.BODY else _PREFIX,
    )
    return bart.with_head(ending, rules, config=config, prefix=_PREFIX)


def _ending(model: Any) -> str:
    return _GENERATION if isinstance(model, led.Led) else head_classes.ending_of(model)
