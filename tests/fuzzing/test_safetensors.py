"""Weights: one file, or shards with an index."""

from __future__ import annotations

import json

import numpy as np
from hypothesis import strategies as st
from mutations import of_bytes, of_json, of_value, one_of

from t5x_like.interop.hugging_face.files import safetensors_files

TENSORS = {f"layer.{i}.weight": np.full((3, 4 + i), i, np.float32) for i in range(5)}


def make(folder):
    safetensors_files.write(folder / "single", TENSORS.items())
    safetensors_files.write(folder / "shards", TENSORS.items(), shard_bytes=120)
    index = folder / "shards" / safetensors_files.INDEX
    index.write_text(json.dumps(json.loads(index.read_bytes())))


def read(folder):
    weights = safetensors_files.Weights(folder)
    weights.elements  # noqa: B018 (computed when asked for)
    for name in weights.names():
        weights.shape(name)
        weights.read(name)


def damage(draw, files):
    def header(draw, content):
        size = 8 + int.from_bytes(content[:8], "little")
        changed = json.dumps(of_value(draw, json.loads(content[8:size]))).encode()
        return len(changed).to_bytes(8, "little") + changed + content[size:]

    name = draw(st.sampled_from(sorted(files)))
    change = (
        of_json if name.endswith(".json") else draw(st.sampled_from([header, header, of_bytes]))
    )
    return one_of(draw, files, change, [name])


def test_damaged_weights(fuzz):
    fuzz(__file__, damage)
