"""Reads T5X's checkpoints of T5, under the names that T5X gives their parameters; never writes."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
from flax import nnx

from t5x_like.core import progress
from t5x_like.interop import mapping
from t5x_like.interop.mapping import Names, Rule, Transform
from t5x_like.interop.t5x_arrays import ROOT, Arrays
from t5x_like.layers.basics.mlp import GatedMlp
from t5x_like.models import t5

_LAYER_SECOND = Transform(
    to_ours=lambda theirs: (np.moveaxis(theirs, 1, 0),),
    to_theirs=lambda ours: np.moveaxis(ours, 0, 1),
)
"""Scanned models stack the layers along the second dimension."""


def read(directory: Path, config: t5.Config) -> tuple[functools.partial, Any]:
    """The constructor and the parameters of a T5 whose sizes are known.

    Args:
      directory: the directory of one step.
      config: the sizes, which T5X keeps in its gin files.

    Raises:
      FileNotFoundError: it is not a checkpoint of T5X with parameters.
      ValueError: an array is missing, damaged, left over, or of another shape.
    """
    arrays = Arrays(directory)
    make = functools.partial(t5.T5, config=config)
    model = nnx.eval_shape(lambda: make(rngs=nnx.Rngs(0)))
    names = _names(model, scanned=f"{ROOT}encoder.encoder.mlp.wo.kernel" in arrays)
    rules = progress.bar(names.rules, desc="reading", unit=" parameters", leave=False)
    params, left = mapping.read(arrays, model, names, rules=rules)
    if left:
        more = f" and {len(left) - 4} more" if len(left) > 4 else ""
        raise ValueError(
            f"the model has no place for {', '.join(left[:4])}{more} of {directory}: choose one "
            "with --model that has as many layers and, if the checkpoint has one, its own output"
        )
    return make, params


def _names(model: t5.T5, *, scanned: bool) -> Names:
    """Raises ValueError where only one of model and checkpoint has a table for each layer."""
    rules = [
        Rule("embedding/table", "token_embedder.embedding"),
        Rule("encoder_norm/scale", "encoder.encoder_norm.scale"),
        Rule("decoder_norm/scale", "decoder.decoder_norm.scale"),
    ]
    if model.output is not None:
        rules.append(Rule("output/kernel", "decoder.logits_dense.kernel"))
    if scanned != model.config.relative_bias_per_layer:
        raise ValueError(
            "this checkpoint has a relative position bias "
            + ("in every layer (a scanned model)" if scanned else "for all layers of a side")
            + ", and the model does not: choose another with --model, or set "
            f"--gin.t5.Config.relative_bias_per_layer={scanned}"
        )
    gated = isinstance(model.encoder.layers.mlp, GatedMlp)
    mlp = ("wi_0", "wi_1", "wo") if gated else ("wi", "wo")
    for side in ("encoder", "decoder"):
        parts = {
            "encoder": {"attention_norm": "pre_attention_layer_norm", "attention": "attention"},
            "decoder": {
                "self_norm": "pre_self_attention_layer_norm",
                "self_attention": "self_attention",
                "cross_norm": "pre_cross_attention_layer_norm",
                "cross_attention": "encoder_decoder_attention",
            },
        }[side]
        leaves = {"mlp_norm/scale": "pre_mlp_layer_norm.scale"}
        leaves |= {f"mlp/{name}/kernel": f"mlp.{name}.kernel" for name in mlp}
        for ours, theirs in parts.items():
            if ours.endswith("norm"):
                leaves[f"{ours}/scale"] = f"{theirs}.scale"
                continue
            for name in ("query", "key", "value", "out"):
                leaves[f"{ours}/{name}/kernel"] = f"{theirs}.{name}.kernel"
        if scanned:
            leaves["relative/table"] = "relpos_bias.rel_embedding"
            rules += [
                Rule(f"{side}/layers/{ours}", f"{side}.{side}.{theirs}", _LAYER_SECOND)
                for ours, theirs in leaves.items()
            ]
        else:
            rules.append(Rule(f"{side}_relative/table", f"{side}.relpos_bias.rel_embedding"))
            rules += [
                Rule(f"{side}/layers/{ours}", f"{side}.layers_{{i}}.{theirs}")
                for ours, theirs in leaves.items()
            ]
    return Names(mapping.under(rules, theirs=ROOT))
