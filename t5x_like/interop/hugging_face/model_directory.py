"""Reads and writes a Hugging Face directory: config.json and weights, as one of our models."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from flax import nnx

from t5x_like.core import progress, whole_files
from t5x_like.core.abilities import GivesStates, can
from t5x_like.interop import mapping
from t5x_like.interop.hugging_face import families, head_classes
from t5x_like.interop.hugging_face.configuration.settings import Settings
from t5x_like.interop.hugging_face.files import safetensors_files

if TYPE_CHECKING:
    from t5x_like.core.protocols.data import TokenIds

CONFIG = "config.json"
GENERATION = "generation_config.json"
_GENERATES = ("ForConditionalGeneration", "LMHeadModel", "ForCausalLM")
_GENERATION_IDS = tuple(
    f"{role}_token_id"
    for role in ("bos", "eos", "pad", "decoder_start", "forced_bos", "forced_eos")
)


@dataclasses.dataclass(frozen=True)
class ImportedModel:
    """A model as it was read.

    Attributes:
      make: constructs the model from `rngs`.
      params: a plain dict of float32 arrays.
      architecture: the transformers class that the weights belong to.
      unused: tensors of the file that the class does not use.
      unread: settings of config.json, with their values, that have no meaning here.
    """

    make: functools.partial
    params: Any
    architecture: str
    unused: list[str]
    unread: list[str] = dataclasses.field(default_factory=list)


def read(directory: Path, *, architecture: str | None = None) -> ImportedModel:
    """Reads a directory's model; memory stays near one copy of its weights.

    Args:
      directory: has config.json, and model.safetensors or its shards.
      architecture: a transformers class, in place of the one that config.json names.

    Raises:
      FileNotFoundError: a file is not there.
      ValueError: a setting or class has no counterpart here, or the weights do not fit.
    """
    try:
        return _read(directory, architecture)
    except ValueError as error:
        if str(directory) in str(error):
            raise
        raise ValueError(f"{directory}: {error}") from error


def _read(directory: Path, architecture: str | None) -> ImportedModel:
    config = Settings(read_config(directory), directory / CONFIG)
    family = families.of_config(config)
    named = [architecture] if architecture else config.get("architectures") or []
    if not named:
        raise ValueError(
            f"{directory / CONFIG} names no class under architectures: name the one whose weights "
            "these are with --architecture, such as BertForMaskedLM"
        )
    make = family.from_hf(config, named[0])
    weights = safetensors_files.Weights(directory)
    constructor_for = getattr(family, "constructor_for", None)
    make = constructor_for(make, weights) if constructor_for else make
    model = nnx.eval_shape(lambda: make(rngs=nnx.Rngs(0)))
    _check_sizes(model, weights, directory)
    names = family.names(model)
    rules = progress.bar(names.rules, desc="reading", unit=" parameters", leave=False)
    params, unused = mapping.read(weights, model, names, rules=rules)
    return ImportedModel(make, params, named[0], unused, config.unread())


def _check_sizes(model: nnx.Module, weights: safetensors_files.Weights, directory: Path) -> None:
    """Raises ValueError where a parameter is larger than all tensors, before memory is taken."""
    for path, leaf in mapping.flat_parameters(model).items():
        if math.prod(leaf.shape) > weights.elements:
            raise ValueError(
                f"{directory / CONFIG} asks for {path} of the shape {leaf.shape}, but all tensors "
                f"beside it have {weights.elements:,} elements: they belong to different models"
            )


def read_config(directory: Path) -> dict[str, Any]:
    """The contents of config.json, unchecked.

    Raises:
      FileNotFoundError: there is none.
      ValueError: it is not a JSON object.
    """
    path = directory / CONFIG
    if not path.is_file():
        raise FileNotFoundError(
            f"{directory} has no {CONFIG}: name a directory that save_pretrained wrote or `hf "
            "download` made, or a model of the hub with its owner, as in "
            "google-bert/bert-base-uncased"
        )
    return whole_files.read_json(path)


def halves(model: nnx.Module, params: Any) -> dict[str, tuple[nnx.Module, Any]]:
    """The models to export: one, named "", or several by the names of their folders.

    Raises:
      ValueError: the model has no counterpart at Hugging Face.
    """
    head_classes.check_exported(model)
    family = families.of_model(model)
    several = getattr(family, "halves", None)
    parts = several(model, params) if several else None
    return parts or {"": (model, params)}


def write(
    directory: Path,
    model: nnx.Module,
    params: Any,
    *,
    ids: TokenIds | None = None,
    original: Mapping[str, Any] | None = None,
    labels: Sequence[str] = (),
    overwrite: bool = False,
    shard_bytes: int = safetensors_files.SHARD_BYTES,
) -> str:
    """Writes config.json and the weights, in shards where they are large.

    In config.json, what the model itself determines comes first. Other entries, such as special
    ids, names of labels and settings of generation, come from `original` if its class is the same.
    Special ids that it does not name come from the vocabulary, or else from the published ones.

    Args:
      directory: created if it does not exist.
      model: abstract or not.
      params: its parameters as a plain dict.
      ids: those of the vocabulary it was trained with, which config.json then names.
      original: the contents of the config.json that the model was imported with.
      labels: the names of the model's classes, in place of those of `original`.
      overwrite: whether existing weights may be replaced.
      shard_bytes: the most bytes in a file of weights.

    Returns:
      The transformers class that opens it.

    Raises:
      FileExistsError: there are weights already.
      ValueError: the model has no counterpart at Hugging Face.
    """
    family = families.of_model(model)
    config = _config(family, model, ids=ids, original=original or {}, labels=labels)
    tensors = mapping.tensors(params, model, family.names(model))
    shown = progress.bar(tensors, desc="writing", unit=" tensors", leave=False)
    safetensors_files.write(directory, shown, overwrite=overwrite, shard_bytes=shard_bytes)
    _write_json(directory / CONFIG, config)
    architecture = config["architectures"][0]
    if architecture.endswith(_GENERATES):
        named = {name: config[name] for name in _GENERATION_IDS if config.get(name) is not None}
        _write_json(directory / GENERATION, {"_from_model_config": True, **named})
    return architecture


def max_length(model: Any) -> int | None:
    """The most tokens of a text, special ones included; None where there is no limit."""
    limit: int | None = model.max_tokens if can(model, GivesStates) else None
    return limit


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    whole_files.write(path, (json.dumps(content, indent=2, sort_keys=True) + "\n").encode())


def _config(
    family: ModuleType,
    model: nnx.Module,
    *,
    ids: TokenIds | None,
    original: Mapping[str, Any],
    labels: Sequence[str],
) -> dict[str, Any]:
    """The contents of config.json, as `write` describes."""
    known = family.to_hf(model)
    # A small model may have no row for a published id.
    published = {
        name: None if value is None or value >= known["vocab_size"] else value
        for name, value in family.IDS[known["model_type"]].items()
    }
    config = with_ids(published, ids)
    if (original.get("architectures") or [None])[0] == known["architectures"][0]:
        config |= original
    if labels:
        config["id2label"] = {str(n): name for n, name in enumerate(labels)}
        config["label2id"] = {name: n for n, name in enumerate(labels)}
    if len(config.get("id2label") or ()) != known.get("num_labels"):
        config = {name: config[name] for name in config.keys() - {"id2label", "label2id"}}
    config.pop("torch_dtype", None)  # the old name of `dtype`
    for name in getattr(family, "NEVER_NULL", {}).get(known["model_type"], ()):
        config[name] = config.get(name) or 0
    return {**config, **known, "dtype": "float32"}


def with_ids(published: Mapping[str, int | None], ids: TokenIds | None) -> dict[str, Any]:
    """A family's special ids, as a vocabulary has them; None for those that it lacks.

    A vocabulary without padding fills up rows with another of its ids, which is not named.
    """
    if ids is None:
        return dict(published)
    ids_of = {role: getattr(ids, role) for role in ("bos", "eos", "sep")}
    if ids.pad not in (ids.unk, ids.eos):
        ids_of["pad"] = ids.pad
    new = {f"{role}_token_id": i for role, i in ids_of.items() if f"{role}_token_id" in published}
    start = published.get("decoder_start_token_id")
    if start is not None and start == published.get("eos_token_id"):
        new["decoder_start_token_id"] = ids.eos
    return {**published, **new}
