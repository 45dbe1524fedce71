"""Writes checkpoints like T5X: with zarr folders and a msgpack file, or later by Orbax."""

import jax
import numpy as np
import orbax.checkpoint as ocp
import tensorstore
from flax import serialization


def tree_of(params, config, *, scanned=False):
    """Our T5 parameters under T5X's names, `target/` of its state."""
    target = {"token_embedder": {"embedding": params["embedding"]["table"]}}
    parts = {
        "encoder": {"attention_norm": "pre_attention_layer_norm", "attention": "attention"},
        "decoder": {
            "self_norm": "pre_self_attention_layer_norm",
            "self_attention": "self_attention",
            "cross_norm": "pre_cross_attention_layer_norm",
            "cross_attention": "encoder_decoder_attention",
        },
    }
    for side, names in parts.items():
        layers = params[side]["layers"]
        renamed = {theirs: layers[ours] for ours, theirs in names.items()}
        renamed |= {"pre_mlp_layer_norm": layers["mlp_norm"], "mlp": layers["mlp"]}
        found = {f"{side}_norm": params[f"{side}_norm"]}
        if scanned:
            renamed["relpos_bias"] = {"rel_embedding": layers["relative"]["table"]}
            found[side] = jax.tree.map(lambda x: np.moveaxis(np.asarray(x), 0, 1), renamed)
        else:
            found["relpos_bias"] = {"rel_embedding": params[f"{side}_relative"]["table"]}
            for i in range(config.num_encoder_layers):
                found[f"layers_{i}"] = jax.tree.map(lambda x, i=i: np.asarray(x)[i], renamed)
        target[side] = found
    if "output" in params:
        target["decoder"]["logits_dense"] = params["output"]
    return target


def write(directory, target, *, inline_below=20):
    """Arrays of fewer elements go into the msgpack file, which describes the others."""
    directory.mkdir()
    described = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(target):
        keys = [key.key for key in path]
        node = described
        for key in keys[:-1]:
            node = node.setdefault(key, {})
        array = np.asarray(leaf)
        if array.size < inline_below:
            node[keys[-1]] = array
            continue
        folder = directory / ".".join(["target", *keys])
        spec = {
            "driver": "zarr",
            "kvstore": {"driver": "file", "path": str(folder)},
            "metadata": {
                "shape": list(array.shape),
                "chunks": [max(1, n // 2) for n in array.shape],
                "dtype": array.dtype.str,
                "compressor": {"id": "gzip"},
            },
        }
        tensorstore.open(spec, create=True).result().write(array).result()
        node[keys[-1]] = {"driver": "zarr", "metadata": {"shape": list(array.shape)}}
    state = {"version": 3, "optimizer": {"target": described, "state": {"step": np.int32(7)}}}
    (directory / "checkpoint").write_bytes(serialization.msgpack_serialize(state))


def write_by_orbax(directory, target, *, root="target", item="state", **options):
    """The state as one item; `options` are `use_ocdbt` and `use_zarr3` of Orbax's handler."""
    slots = {"encoder": {"encoder_norm": {"scale": {"v": np.ones(4, np.float32)}}}}
    target = jax.tree.map(np.asarray, target)
    state = {root: target, "state": {"step": np.int32(7), "param_states": slots}}
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler(**options)) as writer:
        writer.save(directory / item, args=ocp.args.PyTreeSave(state))
