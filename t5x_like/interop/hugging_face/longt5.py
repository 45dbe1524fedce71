"""LongT5 at Hugging Face: configurations and names, which are those of a T5 but for its encoder."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from t5x_like.interop.hugging_face import head_classes, t5
from t5x_like.interop.mapping import TRANSPOSED, Names, Rule, norm, under
from t5x_like.models import finetuned, longt5

MODEL_TYPES = ("longt5",)
IDS = {"longt5": t5.IDS["t5"]}

_GENERATION = "LongT5ForConditionalGeneration"
_BODY = "LongT5Model"
_ENCODER = "LongT5EncoderModel"
_SUMMING = {"local": False, "transient-global": True}
"""By `encoder_attention_type`, whether tokens sum up blocks."""


def from_hf(config: Mapping[str, Any], architecture: str) -> functools.partial:
    """Makes the model of a config.json; see `families`."""
    known = (_GENERATION, _BODY, _ENCODER)
    if architecture not in known:
        raise ValueError(f"{architecture} is not supported; of this family, {', '.join(known)} are")
    kind = config.get("encoder_attention_type", "local")
    if kind not in tuple(_SUMMING):  # it may be of any type
        raise ValueError(
            f"encoder_attention_type of config.json must be {' or '.join(_SUMMING)}, got {kind!r}"
        )
    scaled = config.get("scale_decoder_outputs", config.get("tie_word_embeddings") is not False)
    ours = longt5.Config(
        **t5.settings_from_hf(config),
        tied_logits=architecture != _GENERATION or scaled,
        local_radius=config.get("local_radius", 127),
        summed_block=config.get("global_block_size", 16) if _SUMMING[kind] else None,
    )
    kind_of_body = longt5.Encoder if architecture == _ENCODER else longt5.LongT5
    body = functools.partial(kind_of_body, config=ours)
    if architecture == _GENERATION:
        return body
    return functools.partial(finetuned.FineTuned, body)


def to_hf(model: Any) -> dict[str, Any] | None:
    """config.json of a model; see `families`."""
    body = model.body if isinstance(model, finetuned.FineTuned) else model
    if not isinstance(body, longt5.LongT5 | longt5.Encoder):
        return None
    ours = body.config
    block = ours.summed_block
    config = {
        "model_type": "longt5",
        "architectures": [_architecture(model)],
        **t5.settings_to_hf(body),
        "encoder_attention_type": "local" if block is None else "transient-global",
        "local_radius": ours.local_radius,
    }
    return config if block is None else config | {"global_block_size": block}


def _architecture(model: Any) -> str:
    if not isinstance(model, finetuned.FineTuned):
        return _ENCODER if isinstance(model, longt5.Encoder) else _GENERATION
    ending = head_classes.ending_of(model)
    if ending != head_classes.BODY:
        raise ValueError(f"Hugging Face's LongT5 has no {ending}: it cannot be exported")
    return _ENCODER if isinstance(model.body, longt5.Encoder) else _BODY


def names(model: Any) -> Names:
    """The names of a model's weights; see `families`."""
    tuned = isinstance(model, finetuned.FineTuned)
    body = model.body if tuned else model
    summing = body.config.summed_block is not None
    attention = f"{'TransientGlobal' if summing else 'Local'}SelfAttention"
    rules = t5.body_rules(body, encoder_attention=attention)
    if summing:
        table = f"encoder.block.0.layer.0.{attention}.global_relative_attention_bias.weight"
        rules.append(Rule("encoder_summary_relative/table", table, TRANSPOSED))
        place = f"encoder.block.{{i}}.layer.0.{attention}.global_input_layer_norm"
        rules += norm("encoder/layers/attention/summary_norm", place, bias=False)
    return Names(under(rules, ours="body/") if tuned else rules, unused=t5.UNUSED)
