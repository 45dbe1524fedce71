"""The model card of an export says what is known, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
from flax import nnx

from t5x_like.api.exporting import model_card
from t5x_like.api.exporting.training_record import RecordedPhase, Text, TrainingRecord
from t5x_like.api.loaded_model import LoadedModel
from t5x_like.models import electra

SIZES = {"vocab_size": 9, "d_model": 4, "d_ff": 6, "num_heads": 2, "num_layers": 1}
RECORD = TrainingRecord(
    recipe="Somebody et al., 2019",
    initial="base",
    optimizer="adamw",
    train_steps=2000,
    phases=(
        RecordedPhase(1, 64, {"inputs": 128}, {"wiki": 3, "news": 1}, ("MaskedLM(a | b)",)),
        RecordedPhase(
            901, 32, {"inputs": 512, "targets": 16}, {"wiki": 3, "news": 1}, ("TextToText()",)
        ),
    ),
    texts=(Text("wiki", 3, 1200, 340_000), Text("news", 1, None, None)),
    metrics={"wiki/loss": 2.71828, "my.wiki/mlm_accuracy": 0.5},
    metrics_step=1000,
)
KNOWN = {
    "architecture": "BertForMaskedLM",
    "model_type": "bert",
    "parameters": 12345,
    "step": 1000,
    "has_tokenizer": True,
}


def card(folder: Path, *, name: str = "me/mine", **more) -> str:
    model_card.write(folder, model_card.Exported(**{**KNOWN, "name": name, **more}))
    return (folder / model_card.NAME).read_text()


def test_what_a_run_knows_is_on_its_card(tmp_path: Path) -> None:
    text = card(tmp_path, record=RECORD)
    assert text.startswith("---\nlibrary_name: transformers\npipeline_tag: fill-mask\ntags:\n")
    for line in (
        "# mine",
        "`BertForMaskedLM` with 12,345 parameters, trained with t5x_like.",
        "| steps | 1,000 of 2,000 |",
        "| optimizer | adamw |",
        "| first parameters | those of `base` |",
        "| 1 to 900 | 64 | inputs 128 | `MaskedLM(a \\| b)` |",
        "| 901 to 1,000 | 32 | inputs 512, targets 16 | `TextToText()` |",
        "| wiki | 0.75 | 1,200 | 340,000 |",
        "| news | 0.25 |  |  |",
        "On held-out text, after step 1,000:",
        "| my.wiki | mlm_accuracy | 0.5 |",
        "from transformers import AutoModelForMaskedLM, AutoTokenizer",
        'model = AutoModelForMaskedLM.from_pretrained("me/mine")',
        'model = t5x.load("me/mine")',
    ):
        assert line in text.splitlines()


def test_what_is_unknown_is_left_out(tmp_path: Path) -> None:
    text = card(
        tmp_path,
        architecture="GPT2DoubleHeadsModel",
        record=TrainingRecord(origin="Imported from theirs."),
        has_tokenizer=False,
    )
    for absent in ("pipeline_tag", "language", "license", "## Training", "Data", "None", "Token"):
        assert absent not in text
    assert "exported by t5x_like.\n\nImported from theirs.\n\n## Use" in text
    assert "from transformers import GPT2DoubleHeadsModel\n" in text


def test_language_and_licence_are_those_that_came_with_an_import(tmp_path: Path) -> None:
    original = "---\nlanguage:\n- en\n- de\ntags:\n- a\nlicense: mit\n---\nlicense: none\n"
    text = card(tmp_path, record=TrainingRecord(), original=original)
    assert text.startswith("---\nlanguage:\n- en\n- de\nlicense: mit\nlibrary_name: transformers\n")
    assert "none" not in text


def test_each_half_has_a_card_and_a_card_is_replaced_only_on_request(tmp_path: Path) -> None:
    config = electra.Config(**SIZES, generator_width=1)
    model = LoadedModel(electra.Electra(config, rngs=nnx.Rngs(0)), None, 3, "gone/theirs")
    model.export(tmp_path / "both")
    for half, said in (("discriminator", "ElectraForPreTraining"), ("generator", "ForMaskedLM")):
        text = (tmp_path / "both" / half / model_card.NAME).read_text()
        assert said in text
        assert "Imported from gone/theirs." in text
    for half in ("discriminator", "generator"):
        (tmp_path / "both" / half / "model.safetensors").unlink()
    with pytest.raises(FileExistsError, match=r"discriminator has a README\.md already"):
        model.export(tmp_path / "both")
    model.export(tmp_path / "both", overwrite=True)
