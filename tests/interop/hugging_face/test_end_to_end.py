"""From a directory of transformers through own text and a task, back to transformers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import parity
import pytest

import t5x_like as t5x
from t5x_like.core.protocols.data import TokenIds
from t5x_like.interop.tokenizers import to_files
from t5x_like.vocabularies.learning.subword_training import train_byte_bpe

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.slow

WORDS = "the court heard a plaintiff and the defendant before noon".split()


@dataclasses.dataclass(frozen=True)
class Published:
    """A family at Hugging Face: its class and type, settings and special ids of a small model.

    `pretraining` are the recipe that goes on with it and further flags; `said` is what the run
    takes from its configuration.
    """

    name: str
    model_type: str
    settings: Mapping[str, Any]
    ids: Callable[[TokenIds], Mapping[str, Any]]
    pretraining: str
    said: str


MODERNBERT = Published(
    "ModernBert",
    "modernbert",
    {"num_hidden_layers": 4, "local_attention": 8},
    lambda ids: {
        "pad_token_id": ids.pad,
        "cls_token_id": ids.cls,
        "sep_token_id": ids.sep,
        "bos_token_id": ids.cls,
        "eos_token_id": ids.sep,
    },
    "modernbert-mini --train_steps 4 --gin.long/run.Phase.batch_size=8 --gin.EVAL_PERIOD=4",
    "d_model 16",
)
DEBERTA = Published(
    "DebertaV2",
    "deberta-v2",
    {
        "num_hidden_layers": 2,
        "max_position_embeddings": 32,
        "relative_attention": True,
        "position_biased_input": False,
        "pos_att_type": "c2p|p2c",
        "position_buckets": 8,
        "share_att_key": True,
        "norm_rel_ebd": "layer_norm",
    },
    lambda ids: {"pad_token_id": ids.pad},
    "deberta_base --train_steps 3 --gin.TASK_FEATURE_LENGTHS={'inputs':16} "
    "--gin.WARMUP_STEPS=1 --gin.DTYPE='float32' --gin.EVAL_PERIOD=3",
    "buckets 8",
)


@pytest.mark.parametrize("family", [MODERNBERT, DEBERTA], ids=lambda family: family.model_type)
def test_a_published_model_learns_own_text_and_a_task_and_goes_back(
    family: Published, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Callable
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("T5X_LIKE_CACHE", str(tmp_path / "cache"))
    draw = np.random.default_rng(0)
    lines = [" ".join(draw.choice(WORDS, 9)) for _ in range(120)]
    Path("own.txt").write_text("\n\n".join(lines))
    rows = (f"{line},{'long' if n % 2 else 'short'}\n" for n, line in enumerate(lines[:48]))
    Path("rows.csv").write_text("text,label\n" + "".join(rows))
    vocabulary = train_byte_bpe(lines, size=300, extra_ids=0)
    their_model = parity.theirs(
        family.name,
        "ForMaskedLM",
        vocab_size=vocabulary.vocab_size,
        hidden_size=16,
        intermediate_size=24,
        num_attention_heads=2,
        **family.settings,
        **family.ids(vocabulary.token_ids),
    )
    their_model.save_pretrained("theirs")
    to_files.write(vocabulary, Path("theirs"), model_type=family.model_type)

    def done(command: str) -> str:
        told = cli(*command.split())
        assert told.status == 0, told.err
        return told.out + told.err

    said = done(
        "train --init_from theirs --corpus own.txt --model_dir runs/own --batch_size 8 "
        f"--recipe {family.pretraining}"
    )
    assert "Imported" in said
    assert family.said in said
    done("finetune runs/own --train rows.csv --epochs 1 --batch_size 8 --model_dir runs/task")
    done("export --from runs/task --to back")
    text = "the plaintiff heard the court"
    (answer,) = t5x.load("runs/task").predict([text])
    tokenizer = transformers.AutoTokenizer.from_pretrained("back")
    model = transformers.AutoModelForSequenceClassification.from_pretrained("back").eval()
    with torch.no_grad():
        logits = model(**tokenizer(text, return_tensors="pt")).logits
    names = [model.config.id2label[n] for n in range(2)]
    theirs = dict(zip(names, torch.softmax(logits, -1)[0].tolist(), strict=True))
    assert answer["probabilities"] == pytest.approx(theirs, abs=1e-5)
