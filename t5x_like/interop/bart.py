"""BART and mBART at Hugging Face: settings and names of weights."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
from flax import nnx

from t5x_like.interop import activation_names, mapping
from t5x_like.interop.mapping import Names, Rule, Transform
from t5x_like.layers import activations, heads, tasks
from t5x_like.models import bart
from t5x_like.models.finetuned import FineTuned

MODEL_TYPES = ("bart", "mbart")

_PREFIX = "model."
_GENERATION = "ForConditionalGeneration"
_CLASSES = "ForSequenceClassification"
_ANSWERS = "ForQuestionAnswering"
_EPSILON = 1e-5  # of every norm there
_ONE_ROW = Transform(lambda theirs: (theirs[0],), lambda ours: ours[None])

# Ours: theirs. What layers of both sides have, then what those of each have.
_LAYER = {"mlp/wi": "fc1", "mlp/wo": "fc2"}
_ATTENTIONS = {
    "encoder": {"attention": "self_attn"},
    "decoder": {"self_attention": "self_attn", "cross_attention": "encoder_attn"},
}
_NORMS = {
    "encoder": {"attention_norm": "self_attn_layer_norm", "mlp_norm": "final_layer_norm"},
    "decoder": {
        "self_norm": "self_attn_layer_norm",
        "cross_norm": "encoder_attn_layer_norm",
        "mlp_norm": "final_layer_norm",
    },
}
_PROJECTIONS = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "out": "out_proj"}

# Ours: theirs, in config.json.
_SETTINGS = {
    "vocab_size": "vocab_size",
    "d_model": "d_model",
    "num_encoder_layers": "encoder_layers",
    "num_decoder_layers": "decoder_layers",
    "max_positions": "max_position_embeddings",
    "pad_id": "pad_token_id",
    "scale_embedding": "scale_embedding",
    "dropout_rate": "dropout",
    "attention_dropout_rate": "attention_dropout",
    "activation_dropout_rate": "activation_dropout",
    "init_std": "init_std",
}
_OF_BOTH_SIDES = {"d_ff": "ffn_dim", "num_heads": "attention_heads"}
_DEFAULTS = {
    "vocab_size": 50265,
    "d_model": 1024,
    "encoder_layers": 12,
    "decoder_layers": 12,
    "encoder_ffn_dim": 4096,
    "decoder_ffn_dim": 4096,
    "encoder_attention_heads": 16,
    "decoder_attention_heads": 16,
    "max_position_embeddings": 1024,
    "pad_token_id": 1,
    "scale_embedding": False,
    "dropout": 0.1,
    "attention_dropout": 0.0,
    "activation_dropout": 0.0,
    "init_std": 0.02,
}


def from_hf(config: Mapping[str, Any], architecture: str) -> functools.partial[nnx.Module]:
    """Of a model with the head for generation, for classes or numbers, for answers, or without.

    Raises:
      ValueError: another head, or a setting that is not supported.
    """
    ours = _config(config)
    head = architecture.removeprefix("M").removeprefix("Bart")
    if head == _GENERATION:
        return functools.partial(bart.Bart, ours)
    body = functools.partial(bart.Reader, ours)
    if head == "Model":
        return functools.partial(FineTuned, body)
    if head == _ANSWERS:
        answers = functools.partial(heads.TokenHead, num_labels=2)
        return functools.partial(FineTuned, body, answers, task=tasks.spans)
    if head == _CLASSES:
        labels = _num_labels(config)
        rate = config.get("classifier_dropout") or 0.0
        classes = functools.partial(
            heads.SequenceHead,
            num_labels=labels,
            pool=heads.LastOf(config.get("eos_token_id", 2)),
            activation=activations.tanh,
            dropout_rates=(rate, rate),
        )
        task = tasks.numbers if labels == 1 else tasks.classes
        return functools.partial(FineTuned, body, classes, task=task)
    known = ", ".join((_GENERATION, _CLASSES, _ANSWERS, "Model"))
    raise ValueError(f"{architecture} is not read; of this family, {known} are")
