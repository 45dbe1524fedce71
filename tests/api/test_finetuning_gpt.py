"""A GPT-2 of Hugging Face learns labels: `t5x.finetune`, answers, export."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import stored_gpts
from small_reviews import BAD, GOOD, NAMES, THINGS, evaluations

import t5x_like as t5x
from t5x_like.vocabularies.text import byte_level

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A GPT-2 with random weights, whose vocabulary has one special token, as GPT-2's has."""
    folder = tmp_path_factory.mktemp("models") / "gpt2"
    names = [*byte_level.CHARACTERS, "<|endoftext|>"]
    sizes = {"n_embd": 32, "n_layer": 1, "n_head": 2, "n_positions": 64}
    ids = {"vocab_size": len(names), "bos_token_id": 256, "eos_token_id": 256}
    torch.manual_seed(0)
    config = transformers.GPT2Config(**sizes, **ids, initializer_range=0.1)
    transformers.GPT2LMHeadModel(config).save_pretrained(folder)
    (folder / "vocab.json").write_text(json.dumps({name: i for i, name in enumerate(names)}))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    return folder


def finetuned(source: Path, file: Path, folder: Path, **given: Any) -> t5x.Pretraining:
    place = {"model_dir": str(folder / "run"), "cache_dir": str(folder / "cache")}
    return t5x.finetune(str(source), train=str(file), **place, **given)


@pytest.mark.slow
def test_classes_of_pairs_are_those_of_its_export(published: Path, tmp_path: Path) -> None:
    draw = random.Random(1)
    rows = []
    for _ in range(120):
        first, second = draw.choices([*GOOD, *BAD], k=2)
        label = "good" if second in GOOD else "bad"
        rows.append({"text1": f"a {first} book", "text2": second, "label": label})
    file = tmp_path / "pairs.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    fast = {"epochs": 6, "learning_rate": 1e-2, "batch_size": 24}
    run = finetuned(published, file, tmp_path, **fast, r_drop=0.1)
    run.train()
    assert evaluations(tmp_path / "run", "pairs/accuracy")[-1] > 0.9
    model = t5x.load(str(tmp_path / "run"))
    assert model.evaluate(corpus=str(file))["pairs"]["trained"]["accuracy"] > 0.9
    pairs = [("a great book", "awful"), ("a dull book", "lovely"), ("a poor song, and", "fine")]
    asked = [{"inputs": first, "inputs2": second} for first, second in pairs]
    answers = model.predict(asked)
    assert [answer["label"] for answer in answers] == ["bad", "good", "good"]
    model.export(tmp_path / "theirs")
    assert t5x.load(str(tmp_path / "theirs")).predict(asked) == [
        {**answer, "probabilities": pytest.approx(answer["probabilities"], abs=1e-5)}
        for answer in answers
    ]
    pipeline = transformers.pipeline("text-classification", str(tmp_path / "theirs"), top_k=None)
    assert pipeline.tokenizer("a", "b").input_ids == [64, 256, 65]
    assert pipeline.model.config.pad_token_id == 256
    rows = pipeline.tokenizer(*zip(*pairs, strict=True)).input_ids
    longest = max(map(len, rows))
    padded = torch.tensor([[*row, *[256] * (longest - len(row))] for row in rows])
    together = torch.softmax(pipeline.model(padded).logits, -1).tolist()
    for (first, second), answer, batched in zip(pairs, answers, together, strict=True):
        said = pipeline({"text": first, "text_pair": second})
        want = {each["label"]: each["score"] for each in said}
        assert answer["probabilities"] == pytest.approx(want, abs=1e-5)
        assert [*answer["probabilities"].values()] == pytest.approx(batched, abs=1e-5)
    with pytest.raises(ValueError, match="a text is empty, and this model puts no token beside it"):
        model.predict([""])


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    text = " ".join(["a", *GOOD, *BAD, *THINGS, *NAMES, "sings", "and"])
    return stored_gpts.write_untrained(tmp_path_factory.mktemp("models") / "mine", text)


def test_a_text_has_no_special_tokens_and_choices_are_pairs(
    pretrained: Path, reviews: Path, tmp_path: Path
) -> None:
    run = finetuned(pretrained, reviews, tmp_path, length=24, stride=12).run
    (objective,) = run.data.task_objectives()
    assert (objective.template, objective.stride) == ("A:0", 12)
    file = tmp_path / "which.jsonl"
    row = {"premise": "a book", "choices": ["dull", "great"], "answer": 1, "w": 2}
    file.write_text("".join(json.dumps(row | {"answer": n % 2}) + "\n" for n in range(20)))
    chosen = finetuned(pretrained, file, tmp_path, weight="w").run
    (objective,) = chosen.data.task_objectives()
    assert (objective.template, objective.weighed) == ("A:0 eos:0 B:0", True)
    assert chosen.abstract_model.lm_weight == 0.5
    with pytest.raises(ValueError, match="r_drop is not for the choices of a DoubleHeads"):
        finetuned(pretrained, file, tmp_path, r_drop=1.0)


def test_texts_to_write_are_refused(pretrained: Path, tmp_path: Path) -> None:
    file = tmp_path / "pairs.tsv"
    file.write_text("inputs\ttargets\n" + "".join(f"a{n}\tb {n} c\n" for n in range(9)))
    with pytest.raises(ValueError, match=r"a Gpt, which does not write.*name the kind \(--kind\)"):
        finetuned(pretrained, file, tmp_path)
