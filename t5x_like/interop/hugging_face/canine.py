"""CANINE at Hugging Face: settings and names of weights.

Transformers has no class that pretrains one: a model with these heads is exported as its body, with
the pooler of pairs of sentences.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

from flax import nnx

from t5x_like.interop import mapping
from t5x_like.interop.hugging_face import bert, head_classes
from t5x_like.interop.hugging_face.configuration import activation_names, unsupported_settings
from t5x_like.interop.mapping import Names, Rule
from t5x_like.models import canine, canine_pretraining
from t5x_like.models.finetuned import FineTuned

MODEL_TYPES = ("canine",)

_KIND = bert.Kind(
    model_type="canine",
    classes="Canine",
    vocab_size=canine.Config.vocab_size,
    pad_id=0,
    mlm={},
    decoder=None,
    roberta=False,
)
IDS = {"canine": {"pad_token_id": 0, "bos_token_id": 0xE000, "eos_token_id": 0xE001}}
_ROWS = "num_hash_buckets"
_OWN = {
    "vocab_size": ("vocab_size", canine.Config.vocab_size),  # which transformers does not read
    "num_hashes": ("num_hash_functions", 8),
    "num_buckets": (_ROWS, 16384),
    "block": ("local_transformer_stride", 128),
    "downsampling": ("downsampling_rate", 4),
    "upsampling_width": ("upsampling_kernel_size", 4),
}
_DEFAULTS = {"max_positions": 16384, "type_vocab_size": 16}
_SETTINGS = {
    **{
        ours: (theirs, _DEFAULTS.get(ours, default))
        for ours, (theirs, default) in bert.SETTINGS.items()
    },
    **_OWN,
}
_OF_MOLECULES = (head_classes.CLASSES, head_classes.CHOICES, head_classes.BODY)
"""The classes whose heads read the molecule of [CLS]; others read characters."""


def from_hf(config: Mapping[str, Any], architecture: str) -> functools.partial[Any]:
    """Makes a model with a task's head, or a body, pooled or not.

    The table of positions has as many rows as one of characters, whatever the setting for
    positions says: so many may be read here.

    Raises:
      ValueError: another head, or a setting that is not supported.
    """
    # No class of this family has the latter.
    fixed = {**unsupported_settings.ENCODER, "classifier_dropout": None}
    unsupported_settings.check(config, fixed)
    ending = architecture.removeprefix(_KIND.classes)
    fields = {ours: config.get(*theirs) for ours, theirs in _SETTINGS.items()}
    ours = canine.Config(
        **{**fields, "max_positions": fields["num_buckets"]},
        activation=activation_names.read(config.get("hidden_act", "gelu")),
        heads_read="molecules" if ending in _OF_MOLECULES else "characters",
    )
    body = functools.partial(canine.Encoder, ours)
    return bert.with_head(ending, body, ours, kind=_KIND, config=config)


def to_hf(model: Any) -> dict[str, Any] | None:
    """config.json of a (possibly abstract) model; None if it is of another family.

    That of a pretrained model is its body's (`halves`).

    Raises:
      ValueError: Hugging Face's configuration cannot express this one.
    """
    pretrained = isinstance(model, canine_pretraining.Canine)
    fine_tuned = isinstance(model, FineTuned) and isinstance(model.body, canine.Encoder)
    if not (pretrained or fine_tuned):
        return None
    config: canine.Config = model.config
    ending = _ending_of_body(model) if pretrained else bert.ending_of(model)
    if config.max_positions != config.num_buckets:
        raise ValueError(
            f"canine.Config.max_positions is {config.max_positions} and num_buckets "
            f"{config.num_buckets}, but Hugging Face's CANINE has as many positions as rows of a "
            "table of characters: it cannot be exported"
        )
    if not config.type_vocab_size:
        raise ValueError(
            "canine.Config.type_vocab_size is 0, but Hugging Face's CANINE has types: it cannot be "
            "exported"
        )
    read = "molecules" if ending in _OF_MOLECULES else "characters"
    if fine_tuned and config.heads_read != read:
        raise ValueError(
            f"canine.Config.heads_read is {config.heads_read!r}, but the head of Hugging Face's "
            f"Canine{ending} reads {read}: it cannot be exported"
        )
    return {
        "model_type": _KIND.model_type,
        "architectures": [_KIND.classes + ending.removesuffix("(add_pooling_layer=False)")],
        **{theirs: getattr(config, ours) for ours, (theirs, _) in _SETTINGS.items()},
        "hidden_act": activation_names.name_of(config.activation),
        **(head_classes.settings(model) if fine_tuned else {}),
    }


def names(model: Any) -> Names:
    """The names of a model's weights in a file of its class.

    Every class has a pooler, also where its head does not read it: then a file gets a new one.
    """
    config, ending = model.config, bert.ending_of(model)
    theirs = "" if ending in (head_classes.BODY, bert.BARE) else _KIND.prefix
    rules = mapping.under(_body(config), ours="body/", theirs=theirs)
    if ending != bert.BARE:
        rules += bert.task_head(ending, _KIND, theirs)
    pooled = ending in _OF_MOLECULES
    return Names(
        rules,
        prefix=_KIND.prefix,
        constants={} if pooled else bert.fresh_pooler(config, theirs),
        unused=() if pooled else ("pooler.", f"{_KIND.prefix}pooler."),
    )


def halves(model: Any, params: Any) -> dict[str, tuple[nnx.Module, Any]] | None:
    """A pretrained model as its body, with the pooler where it has one."""
    if not isinstance(model, canine_pretraining.Canine):
        return None
    ending = _ending_of_body(model)
    pooled = ending == head_classes.BODY
    config = dataclasses.replace(model.config, heads_read="molecules" if pooled else "characters")
    body = functools.partial(canine.Encoder, config)
    make = bert.with_head(ending, body, config, kind=_KIND, config={})
    whole = nnx.eval_shape(lambda: make(rngs=nnx.Rngs(0)))
    parts = {"body": params["encoder"]}
    if pooled:
        parts["head"] = {"pooler": params["sentence"]["pooler"]}
    return {"": (whole, parts)}


def _ending_of_body(model: canine_pretraining.Canine) -> str:
    return bert.BARE if model.sentence is None else head_classes.BODY


def _body(config: canine.Config) -> list[Rule]:
    """Rules for an encoder."""
    return [
        Rule(
            "embedding/tokens/tables/table",
            "char_embeddings.HashBucketCodepointEmbedder_{i}.weight",
        ),
        Rule("embedding/positions", "char_embeddings.char_position_embeddings.weight"),
        Rule("embedding/types", "char_embeddings.token_type_embeddings.weight"),
        *mapping.norm("embedding/norm", "char_embeddings.LayerNorm"),
        *bert.layers("initial", "initial_char_encoder"),
        *_convolution("downsampling", "chars_to_molecules", config.downsampling),
        *bert.layers("stack", "encoder"),
        *_convolution("upsampling", "projection", config.upsampling_width),
        *bert.layers("final", "final_char_encoder"),
    ]


def _convolution(ours: str, theirs: str, width: int) -> list[Rule]:
    dense = f"{ours}/convolution/dense"
    return [
        Rule(f"{dense}/kernel", f"{theirs}.conv.weight", mapping.convolution(width)),
        Rule(f"{dense}/bias", f"{theirs}.conv.bias"),
        *mapping.norm(f"{ours}/norm", f"{theirs}.LayerNorm"),
    ]
