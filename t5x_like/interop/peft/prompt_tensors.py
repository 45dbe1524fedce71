"""Prompts of encoder-decoders in PEFT's files: one matrix of vectors, twice.

PEFT has a row for each virtual token of the encoder and of the decoder, and reads the first half
alone. Suffixes: P virtual tokens, E width of the embeddings.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
from flax import nnx

from t5x_like.layers.adapters import prompt
from t5x_like.layers.adapters.prompt import PromptedEmbedding

NAME = "prompt_embeddings"
"""The name of the tensor."""
_READ = ("t5", "mt5", "umt5", "bart")
"""The model types whose token vectors are not scaled after PEFT's are put before them."""


def settings(node: PromptedEmbedding, config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of adapter_config.json that say what a prompt is.

    Args:
      node: the table with the prompt.
      config: config.json of the model.

    Raises:
      ValueError: PEFT's prompts mean something else for this model.
    """
    if config["model_type"] not in _READ or not config["architectures"][0].endswith("Generation"):
        raise ValueError(
            f"prompts of {', '.join(_READ)} that write texts are exchanged with PEFT: for a "
            f"{config['architectures'][0]} it would read another token or scale than this run"
        )
    return {
        "peft_type": "PROMPT_TUNING",
        "num_virtual_tokens": len(node.like),
        "token_dim": node.table.shape[1],
        "num_transformer_submodules": 2,
        "num_layers": config.get("num_layers") or config["encoder_layers"],
        "num_attention_heads": config.get("num_heads") or config["encoder_attention_heads"],
        "prompt_tuning_init": "RANDOM",
    }


def written(node: PromptedEmbedding, params: Mapping[str, Any]) -> np.ndarray:
    """Float32 [2 P, E], of the parameters of a table by name."""
    vectors_PE = np.asarray(params["table"])[[*node.like]] + np.asarray(params["prompt"])
    return np.concatenate([vectors_PE, vectors_PE])


def read(
    vectors: np.ndarray, count: int, model: nnx.Module, arrays: Mapping[str, Any]
) -> tuple[functools.partial[Any], dict[str, np.ndarray]]:
    """What adapts a model, and {path of a parameter: its value}.

    Args:
      vectors: PEFT's, of which the first `count` rows are read.
      count: P.
      model: the abstract model without a prompt.
      arrays: {path: parameter} of the base.

    Raises:
      ValueError: there are fewer rows, or they are wider or narrower than those of the base.
    """
    path = "/".join(map(str, prompt.table_of(model)[0]))
    row_E = np.asarray(arrays[f"{path}/table"])[0]
    if len(vectors) < count or vectors.shape[1] != len(row_E):
        raise ValueError(
            f"{NAME} is {list(vectors.shape)}, and this base has vectors of {len(row_E)} numbers, "
            f"of which {count} are wanted: name another base"
        )
    # Each is the first vector of the table, and what differs from it.
    adapt = functools.partial(prompt.adapt, virtual_tokens=count, like=(0,))
    return adapt, {f"{path}/prompt": vectors[:count] - row_E}
