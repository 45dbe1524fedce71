"""A directory of PEFT: adapter_config.json, and adapter_model.safetensors with a head."""

from __future__ import annotations

import dataclasses
import functools
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from flax import nnx
from safetensors.numpy import save_file

from t5x_like.core import whole_files
from t5x_like.interop import mapping
from t5x_like.interop.hugging_face import families
from t5x_like.interop.hugging_face.files import safetensors_files
from t5x_like.interop.mapping import Names
from t5x_like.interop.peft import heads, ia3_tensors, lora_tensors, placement, prompt_tensors
from t5x_like.interop.peft.lora_tensors import MAGNITUDE, A, B, Written
from t5x_like.layers.adapters.ia3 import Scaled
from t5x_like.layers.adapters.lora import LowRank
from t5x_like.layers.adapters.prompt import PromptedEmbedding

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
LABELS = "labels.json"
"""A file of ours, which PEFT does not read: the names of classes."""
_START = "base_model.model."
_IGNORED = frozenset(
    {
        *("task_type", "peft_type", "auto_mapping", "peft_version", "base_model_name_or_path"),
        *("revision", "inference_mode", "r", "target_modules", "exclude_modules", "lora_alpha"),
        *("fan_in_fan_out", "use_rslora", "modules_to_save", "rank_pattern", "alpha_pattern"),
        *("layers_to_transform", "layers_pattern", "megatron_config", "megatron_core"),
        *("loftq_config", "eva_config", "qalora_group_size", "use_dora", "runtime_config"),
        *("feedforward_modules", "init_ia3_weights", "lora_dropout", "init_lora_weights"),
        *("corda_config", "lora_ga_config", "ensure_weight_tying"),
        *("num_virtual_tokens", "token_dim", "num_transformer_submodules", "num_attention_heads"),
        *("num_layers", "prompt_tuning_init", "prompt_tuning_init_text", "tokenizer_kwargs"),
        "tokenizer_name_or_path",
    }
)
"""Settings that are read, or that change nothing that the tensors do not say."""
_INITIALISED = (True, False, "gaussian", "orthogonal", None)
"""The values of `init_lora_weights` that leave the matrices of the base as they are."""


def write(
    directory: Path,
    model: nnx.Module,
    plain: nnx.Module,
    params: Mapping[str, Any],
    *,
    base: str,
    labels: Sequence[str] = (),
) -> str:
    """Writes the adapters and the head of a model; returns PEFT's name of the method.

    Args:
      directory: a folder.
      model: the abstract adapted model.
      plain: the abstract model before it was adapted, which decides the names.
      params: the parameters of `model`, as a nested dict.
      base: the model of Hugging Face, by name or by directory, that the adapters belong to.
      labels: the names of the classes.

    Raises:
      ValueError: PEFT has no files for these adapters, or no modules for their matrices.
    """
    nodes = {
        "/".join(map(str, path)): node
        for path, node in nnx.iter_graph(model)
        if isinstance(node, LowRank | Scaled | PromptedEmbedding)
    }
    if not nodes:
        raise ValueError(
            "PEFT's files hold LoRA, rsLoRA, DoRA, (IA)3 and prompts, and this model has none of "
            "them: export it whole, without --adapter"
        )
    family = families.of_model(plain)
    names: Names = family.names(plain)
    config = family.to_hf(plain)
    path, node = next(iter(nodes.items()))
    if isinstance(node, PromptedEmbedding):
        settings = prompt_tensors.settings(node, config)
        tensors = {prompt_tensors.NAME: prompt_tensors.written(node, _at(params, path))}
    else:
        tensors, settings = _adapters(nodes, names, params)
    for rule in heads.rules(names):
        parts = [np.asarray(_at(params, path)) for path in rule.paths]
        tensors[_START + rule.name(0)] = rule.transform.to_theirs(*parts)
    saved = heads.modules(names)
    settings |= {
        "task_type": heads.task_type(config["architectures"][0], saved),
        "base_model_name_or_path": base,
        "modules_to_save": saved or None,
        "inference_mode": True,
    }
    directory.mkdir(parents=True, exist_ok=True)
    whole = {name: np.ascontiguousarray(x, np.float32) for name, x in tensors.items()}
    save_file(whole, directory / WEIGHTS, metadata={"format": "pt"})
    if labels:
        _write_json(directory / LABELS, [*labels])
    _write_json(directory / CONFIG, settings)
    return str(settings["peft_type"])


def _adapters(
    nodes: Mapping[str, Any], names: Names, params: Mapping[str, Any]
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The tensors of adapted matrices, and the settings that say where and of what kind they are.

    Raises:
      ValueError: a matrix is in none of their modules.
    """
    places = placement.placements(names)
    known = {path for place in places for path in place.paths}
    if lost := sorted(nodes.keys() - known):
        raise ValueError(
            f"PEFT cannot adapt {lost[0]}, which is not a module in transformers: export the "
            "model whole, without --adapter"
        )
    of_matrix = {path: _at(params, path) for path in known}
    shapes = {path: leaf.shape for path, leaf in mapping.flat(params).items()}
    all_modules = placement.modules(names, shapes)
    low = {path: node for path, node in nodes.items() if isinstance(node, LowRank)}
    targets = functools.partial(placement.targets, among=all_modules)
    settings: dict[str, Any]
    if low:
        changes = dict(
            change for place in places for change in lora_tensors.written(place, low, of_matrix)
        )
        settings = lora_tensors.settings(changes) | {
            "target_modules": targets(changes),
            "lora_dropout": next(iter(low.values())).input_dropout,
        }
        tensors = {
            f"{_START}{module}{end}": x
            for module, change in changes.items()
            for end, x in change.tensors.items()
        }
        adapted = [place for place in places if set(place.paths) & low.keys()]
        return tensors, settings | {"fan_in_fan_out": not adapted[0].transposed}
    scaled = {path: node for path, node in nodes.items() if isinstance(node, Scaled)}
    vectors = dict(
        vector for place in places for vector in ia3_tensors.written(place, scaled, of_matrix)
    )
    inner = [module for module, x in vectors.items() if x.shape[0] == 1]
    settings = {
        "peft_type": "IA3",
        "target_modules": targets(vectors),
        "feedforward_modules": targets(inner),
        "fan_in_fan_out": not places[0].transposed,
    }
    return {f"{_START}{module}{ia3_tensors.VECTOR}": x for module, x in vectors.items()}, settings


@dataclasses.dataclass(frozen=True)
class AdapterFiles:
    """An adapter as it was read.

    Attributes:
      directory: where it is.
      config: adapter_config.json.
      tensors: {name in a model of transformers: tensor}, adapters and parts of a head.
      labels: the names of the classes, where we wrote it.
    """

    directory: Path
    config: Mapping[str, Any]
    tensors: Mapping[str, np.ndarray]
    labels: Sequence[str]

    @property
    def base(self) -> str | None:
        """The model of Hugging Face that it says it belongs to."""
        return self.config.get("base_model_name_or_path")

    def has_head(self, names: Names) -> bool:
        """Whether a part of a model's head is in the files."""
        return any(rule.name(0) in self.tensors for rule in heads.rules(names))

    def head(self, names: Names) -> dict[str, np.ndarray]:
        """{path of a parameter: its value} of a model's head.

        Raises:
          ValueError: the files lack a part of it that differs from the base's.
        """
        missing = [x for rule in heads.rules(names) if (x := rule.name(0)) not in self.tensors]
        pooler = [name for name in missing if names.prefix and name.startswith(names.prefix)]
        if lost := [name for name in missing if name not in pooler]:
            raise ValueError(
                f"{self.directory} lacks {lost[0]}, a part of the head: it was not saved. Save it "
                "again with the head in modules_to_save"
            )
        return {
            path: x
            for rule in heads.rules(names)
            if rule.name(0) in self.tensors
            for path, x in zip(
                rule.paths, rule.transform.to_ours(self.tensors[rule.name(0)]), strict=True
            )
        }

    def adapters(
        self, names: Names, model: nnx.Module, arrays: Mapping[str, Any]
    ) -> tuple[functools.partial[Any], dict[str, np.ndarray]]:
        """What adapts a model (`Run.adapt`), and {path of a parameter: its value}.

        Args:
          names: those of the model.
          model: the abstract model.
          arrays: {path: parameter} of the base.

        Raises:
          ValueError: a tensor is at no matrix of the model.
        """
        if self.config["peft_type"] == "PROMPT_TUNING":
            prompt, count = self.tensors[prompt_tensors.NAME], self.config["num_virtual_tokens"]
            return prompt_tensors.read(prompt, count, model, arrays)
        end = "/kernel"
        kernels = {path.removesuffix(end): x for path, x in arrays.items() if path.endswith(end)}
        places = placement.placements(names)
        known = {
            place.module(layer)
            for place in places
            for layer in range(kernels[place.paths[0]].shape[0] if place.rule.stacked else 1)
        }
        ends = (A, B, MAGNITUDE, ia3_tensors.VECTOR)
        given: dict[str, dict[str, np.ndarray]] = {}
        head = {rule.name(0) for rule in heads.rules(names)}
        for name, tensor in self.tensors.items():
            of = next((end for end in ends if name.endswith(end)), "")
            module = name.removesuffix(of)
            if of and module in known:
                given.setdefault(module, {})[of] = tensor
            elif name not in head:
                raise ValueError(
                    f"{self.directory}: {name} belongs to no matrix of the base that has adapters "
                    "here, nor to its head: name the base that it was made for with --base, and "
                    "the class of its head with --architecture"
                )
        if self.config["peft_type"] == "IA3":
            vectors = {module: parts[ia3_tensors.VECTOR] for module, parts in given.items()}
            inner = [module for module, x in vectors.items() if x.shape[0] == 1]
            return ia3_tensors.read(places, vectors, kernels, feedforward=inner)
        changes = {module: self._change(module, parts) for module, parts in given.items()}
        rate = self.config.get("lora_dropout") or 0.0
        return lora_tensors.read(places, changes, kernels, lora_dropout=rate)

    def _change(self, module: str, parts: dict[str, np.ndarray]) -> Written:
        if not {A, B} <= parts.keys():
            raise ValueError(f"{self.directory} has one half of the change of {module} alone")
        rank = len(parts[A])
        alpha = _of_pattern(self.config, "alpha_pattern", module, self.config["lora_alpha"])
        if self.config.get("use_rslora"):
            alpha *= rank**0.5
        return Written(parts, rank, float(alpha))


def read(directory: Path) -> AdapterFiles:
    """Reads a directory of PEFT.

    Raises:
      FileNotFoundError: a file is missing.
      ValueError: it is of a method, or has a setting, that has no counterpart here.
    """
    config = whole_files.read_json(directory / CONFIG)
    kind = config.get("peft_type")
    if kind not in ("LORA", "IA3", "PROMPT_TUNING"):
        raise ValueError(
            f"{directory / CONFIG} is of {kind}: LoRA (with DoRA, rsLoRA), IA3 and prompts are read"
        )
    odd = {name: x for name, x in config.items() if name not in _IGNORED and x not in _NOTHING}
    if config.get("init_lora_weights", True) not in _INITIALISED:
        odd["init_lora_weights"] = config["init_lora_weights"]
    if odd:
        name, value = next(iter(odd.items()))
        raise ValueError(
            f"{directory / CONFIG} has {name} = {value!r}, which changes the model and has no "
            "counterpart here"
        )
    weights = safetensors_files.Weights(directory, single=WEIGHTS)
    tensors = {name.removeprefix(_START): weights.read(name) for name in weights.names()}
    labels = directory / LABELS
    known = json.loads(labels.read_text()) if labels.exists() else []
    return AdapterFiles(directory, config, tensors, known)


_NOTHING: tuple[Any, ...] = (None, False, "none", {}, [])
"""Values of settings that say nothing."""


def _of_pattern(config: Mapping[str, Any], patterns: str, module: str, usual: float) -> float:
    """The value of a module, as PEFT finds it: the first pattern that ends its name."""
    for pattern, value in (config.get(patterns) or {}).items():
        if re.match(rf"(.*\.)?({pattern})$", module):
            return float(value)
    return usual


def _at(params: Mapping[str, Any], path: str) -> Any:
    node: Any = params
    for part in path.split("/"):
        node = node[part]
    return {name: np.asarray(x) for name, x in node.items()} if isinstance(node, Mapping) else node


def _write_json(path: Path, content: Any) -> None:
    whole_files.write(path, (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode())
