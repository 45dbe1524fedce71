"""Reads T5X's checkpoints of T5, arrays in zarr folders beside one msgpack file; never writes."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
from flax import nnx, serialization

from t5x_like.core import progress
from t5x_like.interop import mapping
from t5x_like.interop.mapping import Names, Rule, Transform
from t5x_like.models import t5

_STATE = "checkpoint"
_ROOT = "target."
_OF_ORBAX = ("_METADATA", "_CHECKPOINT_METADATA", "manifest.ocdbt")
_LAYER_SECOND = Transform(
    to_ours=lambda theirs: (np.moveaxis(theirs, 1, 0),),
    to_theirs=lambda ours: np.moveaxis(ours, 0, 1),
)
"""Scanned models stack the layers along the second dimension."""


class Arrays:
    """The arrays of a checkpoint by their dotted names, read when asked for.

    Raises:
      FileNotFoundError: the directory is no checkpoint of T5X.
      ValueError: its msgpack file is damaged, or it was written by Orbax.
    """

    def __init__(self, directory: Path) -> None:
        if of_tensorflow(directory):
            raise ValueError(
                f"{directory} was written by TensorFlow, as the first public T5 was by Mesh "
                "TensorFlow: it is not read. The published ones are at Hugging Face, whose "
                "directories `t5x_like import` reads; T5X converts others to its own form"
            )
        if _is_of_orbax(directory):
            raise ValueError(
                f"{directory} was written by Orbax: of T5X's checkpoints, only the older form is "
                f"read, a folder of zarr for each large array beside one msgpack file, {_STATE}"
            )
        self._folders = {path.name: path for path in directory.glob(f"{_ROOT}*") if path.is_dir()}
        self._inline = _inline(directory / _STATE)
        if not self._folders and not self._inline:
            there = (directory / _STATE).is_file()
            found = f"its file {_STATE} holds none" if there else f"no file {_STATE}"
            raise FileNotFoundError(
                f"{directory} is no checkpoint of T5X with parameters: it has no folders {_ROOT}*, "
                f"and {found}; name the directory of one step, such as checkpoint_1000000"
            )

    def __contains__(self, name: object) -> bool:
        return name in self._folders or name in self._inline

    def names(self) -> tuple[str, ...]:
        return tuple(sorted({*self._folders, *self._inline}))

    def read(self, name: str) -> np.ndarray:
        """The array as float32, whatever its stored type."""
        if name in self._folders:
            return _zarr(self._folders[name]).astype(np.float32, copy=False)
        return np.asarray(self._inline[name]).astype(np.float32, copy=False)


def _zarr(folder: Path) -> np.ndarray:
    import tensorstore  # orbax brings it

    spec = {"driver": "zarr", "kvstore": {"driver": "file", "path": str(folder)}}
    try:
        return np.asarray(tensorstore.open(spec, open=True).result().read().result())
    except ValueError as error:
        raise ValueError(f"{folder} is damaged, or not an array of T5X ({error})") from error


def _inline(state: Path) -> dict[str, np.ndarray]:
    """Arrays that are small enough to be stored in the msgpack file itself."""
    if not state.is_file():
        return {}
    try:
        tree = serialization.msgpack_restore(state.read_bytes())
    except Exception as error:  # the library raises whatever its parser raised
        raise ValueError(f"{state} is damaged, or not a state of T5X: {error!r}") from error
    tree = tree.get("optimizer", tree) if isinstance(tree, dict) else {}
    found: dict[str, np.ndarray] = {}

    def visit(node: Any, name: str) -> None:
        if isinstance(node, np.ndarray):
            found[name] = node
        elif isinstance(node, dict):
            for key, value in node.items():
                visit(value, f"{name}.{key}" if name else key)

    visit(tree, "")
    return {name: array for name, array in found.items() if name.startswith(_ROOT)}


def is_checkpoint(directory: Path) -> bool:
    """Whether a directory looks like a checkpoint written by T5X, Orbax or TensorFlow."""
    zarr = any(directory.glob(f"{_ROOT}*/.zarray"))
    known = (directory / _STATE).is_file() or zarr
    return known or _is_of_orbax(directory) or of_tensorflow(directory)


def of_tensorflow(directory: Path) -> bool:
    """Whether TensorFlow wrote it: pairs of files, and a text file that names the newest."""
    state = directory / _STATE
    if state.is_file() and state.read_bytes()[:22] == b"model_checkpoint_path:":
        return True
    return any(directory.glob("*.ckpt*.index"))


def _is_of_orbax(directory: Path) -> bool:
    """Whether it is newer T5X's: metadata, and all arrays in one database or each in zarr."""
    if (directory / _STATE).is_file():
        return False
    parts = [path for path in directory.glob("*") if path.is_dir()]
    if any((part / _STATE).is_file() for part in parts):  # from its first releases
        return True
    return any((folder / name).exists() for folder in (directory, *parts) for name in _OF_ORBAX)


def read(directory: Path, config: t5.Config) -> tuple[functools.partial, Any]:
    """The constructor and the parameters of a T5 whose sizes are known.

    Args:
      directory: the directory of one step.
      config: the sizes, which T5X keeps in its gin files.

    Raises:
      FileNotFoundError: it is no checkpoint of T5X.
      ValueError: an array is missing, damaged, left over, or of another shape.
    """
    arrays = Arrays(directory)
    make = functools.partial(t5.T5, config=config)
    model = nnx.eval_shape(lambda: make(rngs=nnx.Rngs(0)))
    names = _names(model, scanned=f"{_ROOT}encoder.encoder.mlp.wo.kernel" in arrays)
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
    mlp = ("wi_0", "wi_1", "wo") if hasattr(model.encoder.layers.mlp, "wi_0") else ("wi", "wo")
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
    return Names(mapping.under(rules, theirs=_ROOT))
