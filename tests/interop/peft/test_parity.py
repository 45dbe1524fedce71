"""Adapters of PEFT compute and learn the same here, and those of ours do there, heads included."""

from __future__ import annotations

import functools
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import parity
import pytest
from flax import nnx
from safetensors.numpy import load_file, save_file

import t5x_like as t5x
from t5x_like.api.exporting.adapter_export import export_adapter
from t5x_like.interop import mapping
from t5x_like.interop.hugging_face import families, model_directory
from t5x_like.interop.peft import placement
from t5x_like.runs import saved_model
from t5x_like.runs.settings import imported, imported_adapter

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
peft = pytest.importorskip("peft")

SIZES: dict[str, dict[str, Any]] = {
    "Bert": {
        "vocab_size": 60,
        "hidden_size": 24,
        "intermediate_size": 40,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "max_position_embeddings": 20,
    },
    "Electra": {
        "vocab_size": 60,
        "hidden_size": 24,
        "embedding_size": 16,
        "intermediate_size": 40,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "max_position_embeddings": 20,
    },
    "GPT2": {
        "vocab_size": 60,
        "n_embd": 24,
        "n_layer": 2,
        "n_head": 4,
        "n_positions": 20,
        "pad_token_id": 0,
    },
    "T5": {
        "vocab_size": 60,
        "d_model": 24,
        "d_ff": 40,
        "d_kv": 6,
        "num_heads": 4,
        "num_layers": 2,
    },
    "Bart": {
        "vocab_size": 60,
        "d_model": 24,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "encoder_ffn_dim": 40,
        "decoder_ffn_dim": 40,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 4,
        "max_position_embeddings": 20,
    },
}
CLASSES, TAGS = "ForSequenceClassification", "ForTokenClassification"
WRITES = "ForConditionalGeneration"
LORA: dict[str, dict[str, Any]] = {
    "Bert": {
        "r": 4,
        "lora_alpha": 8,
        "lora_dropout": 0.2,
        "rank_pattern": {"layer.1.attention.self.query": 2},
    },
    "Electra": {"r": 3, "target_modules": ["query", "dense"], "exclude_modules": ".*classifier.*"},
    "GPT2": {"r": 2, "lora_alpha": 5, "fan_in_fan_out": True},
    "T5": {"r": 4, "use_rslora": True},
    "Bart": {"r": 2, "alpha_pattern": {"decoder.layers.0.self_attn.q_proj": 9}},
}
PROMPT = {"task_type": "SEQ_2_SEQ_LM", "num_virtual_tokens": 4}
CASES: list[tuple[str, str, Callable[[], Any]]] = [
    *(
        (family, head, functools.partial(peft.LoraConfig, task_type=task, **LORA[family]))
        for family, head, task in (
            ("Bert", CLASSES, "SEQ_CLS"),
            ("Electra", TAGS, "TOKEN_CLS"),
            ("GPT2", CLASSES, "SEQ_CLS"),
            ("T5", WRITES, "SEQ_2_SEQ_LM"),
            ("Bart", WRITES, "SEQ_2_SEQ_LM"),
        )
    ),
    ("Bert", TAGS, functools.partial(peft.LoraConfig, task_type="TOKEN_CLS", use_dora=True)),
    (
        *("GPT2", CLASSES),
        functools.partial(
            peft.IA3Config,
            task_type="SEQ_CLS",
            target_modules=["c_attn", "mlp.c_proj"],
            feedforward_modules=["mlp.c_proj"],
            fan_in_fan_out=True,
        ),
    ),
    ("T5", WRITES, functools.partial(peft.IA3Config, task_type="SEQ_2_SEQ_LM")),
    *(
        (family, WRITES, functools.partial(peft.PromptTuningConfig, **PROMPT))
        for family in ("T5", "Bart")
    ),
]
IGNORED = pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")
NAMES = [
    *("bert", "electra", "gpt2", "t5", "bart", "bert-dora", "gpt2-ia3", "t5-ia3"),
    *("t5-prompt", "bart-prompt"),
]


def inputs(head: str) -> tuple[dict[str, Any], dict[str, Any]]:
    rng = np.random.default_rng(0)
    read, write = rng.integers(5, 60, (3, 10)), rng.integers(5, 60, (3, 6))
    theirs = {"input_ids": torch.tensor(read), "attention_mask": torch.ones(3, 10).long()}
    ours = {"encoder_input_tokens": read, "encoder_attention_mask": np.ones_like(read)}
    if head == WRITES:
        theirs["decoder_input_ids"] = torch.tensor(write)
        ours |= {"decoder_input_tokens": write, "decoder_target_tokens": write}
    return theirs, {name: jnp.asarray(x, jnp.int32) for name, x in ours.items()}


def answers(model: Any, head: str, family: str) -> jax.Array:
    _, batch = inputs(head)
    if family == "GPT2":
        batch = {"decoder_input_tokens": batch["encoder_input_tokens"]}
    if head != WRITES:
        logits: jax.Array = model.logits(batch)
        return logits
    scores = model.token_scores(model.hidden(batch).last).logits()
    return scores * 1.0


def random_adapter(model: Any) -> None:
    torch.manual_seed(1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if any(part in name for part in ("lora_", "ia3", "modules_to_save", "prompt")):
                parameter.add_(torch.randn_like(parameter) * 0.2)


@pytest.mark.slow
@IGNORED
@pytest.mark.parametrize(("family", "head", "config"), CASES, ids=NAMES)
def test_peft_s_adapter_is_ours_and_ours_is_peft_s(
    family: str, head: str, config: Callable[[], Any], tmp_path: Path
) -> None:
    labels = {} if head == WRITES else {"num_labels": 3}
    base = parity.theirs(family, head, **SIZES[family], **labels)
    base.save_pretrained(tmp_path / "theirs")
    read = model_directory.read(tmp_path / "theirs")
    imported.write(str(tmp_path / "base"), read, source=tmp_path / "theirs", name="theirs")
    cls = type(base)
    adapted = peft.get_peft_model(cls.from_pretrained(tmp_path / "theirs"), config()).eval()
    random_adapter(adapted)
    adapted.save_pretrained(tmp_path / "adapter")
    imported_adapter.write(
        str(tmp_path / "ours"), tmp_path / "adapter", base=str(tmp_path / "base")
    )

    theirs, _ = inputs(head)
    want = adapted(**theirs).logits
    model = t5x.load(str(tmp_path / "ours")).model
    parity.close(answers(model, head, family), want)
    weights = np.random.default_rng(4).normal(size=want.shape).astype(np.float32)
    (want * torch.tensor(weights)).sum().backward()
    gradients = nnx.jit(nnx.grad(lambda m: (answers(m, head, family) * weights).sum()))(model)
    same_gradients(gradients, str(tmp_path / "ours"), adapted)

    written = export_adapter(str(tmp_path / "ours"), tmp_path / "again", base="theirs")
    method = str(config().peft_type.value)
    assert written.startswith(f"{tmp_path / 'again'}: {method}")
    torch.manual_seed(3)  # a head that is lost would be another one
    fresh = cls.from_pretrained(tmp_path / "theirs")
    if head != WRITES:
        (getattr(fresh, "score", None) or fresh.classifier).weight.data.normal_()
    again = peft.PeftModel.from_pretrained(fresh, str(tmp_path / "again"))
    parity.close(answers(model, head, family), again.eval()(**theirs).logits)
    said = json.loads((tmp_path / "again" / "adapter_config.json").read_text())
    assert said["task_type"] == config().task_type
    assert said.get("lora_dropout") == getattr(config(), "lora_dropout", None)


def same_gradients(gradients: Any, ours: str, theirs: Any) -> None:
    """Asserts equality of the gradients of all adapters within 1e-4 of the largest."""
    make = saved_model.constructor(ours)
    plain = nnx.eval_shape(lambda: make(rngs=nnx.Rngs(0)))
    names = families.of_model(plain).names(plain)
    got: dict[str, Any] = nnx.to_pure_dict(gradients)
    want = {
        name.removeprefix("base_model.model.").replace(".default", ""): p.grad.numpy()
        for name, p in theirs.named_parameters()
        if p.grad is not None and ("lora_" in name or "ia3_l" in name)
    }
    if not want:
        (ours,) = (x for path, x in mapping.flat(got).items() if path.endswith("/prompt"))
        (prompt,) = (p.grad for name, p in theirs.named_parameters() if "prompt" in name)
        same(ours, prompt[: len(ours)].numpy())
        return
    for place in placement.placements(names):
        parts = [
            functools.reduce(lambda x, key: x[key], path.split("/"), got) for path in place.paths
        ]
        for layer in range(2):
            lora = [(p["lora_a"][layer], p["lora_b"][layer]) for p in parts if "lora_a" in p]
            module = place.module(layer)
            if f"{module}.lora_A.weight" in want:
                a, b = sum(a.T for a, _ in lora), np.concatenate([b.T for _, b in lora])
                their_a, their_b = (want.pop(f"{module}.lora_{x}.weight") for x in "AB")
                rank = len(their_a)
                assert not np.any(a[rank:])
                assert not np.any(b[:, rank:])
                same(a[:rank], their_a)
                same(b[:, :rank], their_b)
                if f"{module}.lora_magnitude_vector.weight" in want:
                    norms = parts[0]["lora_magnitude"][layer]
                    same(norms, want.pop(f"{module}.lora_magnitude_vector.weight"))
            elif f"{module}.ia3_l" in want:
                scale = np.concatenate([p["ia3_scale"][layer] for p in parts])
                same(scale, want.pop(f"{module}.ia3_l").reshape(-1))
    assert not want


def same(got: Any, want: np.ndarray) -> None:
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-4 * max(np.abs(want).max(), 1e-2))


@pytest.mark.slow
@IGNORED
def test_adapters_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    base = parity.theirs("Bert", CLASSES, **SIZES["Bert"], num_labels=3)
    base.save_pretrained(tmp_path / "theirs")
    read = model_directory.read(tmp_path / "theirs")
    imported.write(str(tmp_path / "base"), read, source=tmp_path / "theirs", name="theirs")
    adapted = peft.get_peft_model(base, peft.LoraConfig(task_type="SEQ_CLS"))
    adapted.save_pretrained(tmp_path / "adapter")

    def refused(error: str, tensors: Callable[[dict], dict] = dict, **settings: Any) -> None:
        folder = tmp_path / "changed"
        shutil.copytree(tmp_path / "adapter", folder, dirs_exist_ok=True)
        config = json.loads((folder / "adapter_config.json").read_text()) | settings
        (folder / "adapter_config.json").write_text(json.dumps(config))
        whole = load_file(tmp_path / "adapter" / "adapter_model.safetensors")
        save_file(tensors(whole), folder / "adapter_model.safetensors")
        with pytest.raises(ValueError, match=error):
            imported_adapter.write(str(tmp_path / "ours"), folder, base=str(tmp_path / "base"))

    def without(end: str) -> Callable[[dict], dict]:
        return lambda tensors: {name: x for name, x in tensors.items() if not name.endswith(end)}

    refused("has no classifier.weight, the head of its task: it was not saved",
            without("classifier.weight"))  # fmt: skip
    refused("lacks classifier.bias, a part of the head", without("classifier.bias"))
    refused("has one half of the change of bert.encoder.layer.1.attention.self.value alone",
            without("1.attention.self.value.lora_B.weight"))  # fmt: skip
    refused("is of LOHA: LoRA .* IA3 and prompts are read", peft_type="LOHA")
    refused("has lora_bias = True, which changes the model", lora_bias=True)
    refused("init_lora_weights = 'pissa', which changes", init_lora_weights="pissa")
    refused("qa_outputs.weight belongs to no matrix of the base .* --architecture",
            lambda tensors: tensors | {"base_model.model.qa_outputs.weight": np.ones((2, 24))},
            task_type=None)  # fmt: skip
    refused("is \\[24, 24\\] in this base, and its adapter is for \\[48, 24\\]",
            lambda tensors: {n: np.repeat(x, 2, 0) if "lora_B" in n else x
                             for n, x in tensors.items()})  # fmt: skip
