"""Fine-tuning with ordered classes, averages, fresh layers and R-Drop."""

from __future__ import annotations

import functools
import random
from pathlib import Path
from typing import Any

import pytest
from small_reviews import BAD, GOOD, evaluations

import t5x_like as t5x
from t5x_like.data.corpora.corpus import CorpusError
from t5x_like.runs.settings.finetuning import regularising


@pytest.mark.slow
def test_ordered_classes(pretrained: Path, tmp_path: Path) -> None:
    draw = random.Random(5)
    order = ["poor", "fair", "good"]
    lines = ["text,grade"]
    for number in range(160):
        grade = draw.randrange(3)
        word = [BAD[0], "number", GOOD[0]][grade]
        lines.append(f"a {word} film {number},{order[grade if number % 9 else 1]}")
    file = tmp_path / "graded.csv"
    file.write_text("\n".join(lines) + "\n")

    def run(*gin: str) -> t5x.Pretraining:
        return t5x.finetune(
            str(pretrained),
            train=str(file),
            kind="ordered",
            label="grade",
            model_dir=str(tmp_path / "run"),
            cache_dir=str(tmp_path / "cache"),
            epochs=12,
            learning_rate=1e-2,
            batch_size=24,
            gin=gin,
        )

    with pytest.raises(CorpusError, match="the order of 'fair', 'good', 'poor' is not known"):
        run()
    tuned = run(f"CORPUS_LABELS={order}")
    assert tuned.run.options.best_metric == "quadratic_kappa"
    tuned.train()
    assert evaluations(tmp_path / "run", "graded/quadratic_kappa")[-1] > 0.8
    model = t5x.load(str(tmp_path / "run"))
    answers = model.predict([line.split(",")[0] for line in lines[1:]])
    for answer in answers:
        assert [*answer["probabilities"]] == order
        assert sum(answer["probabilities"].values()) == pytest.approx(1)
    pairs = zip(answers, lines[1:], strict=True)
    errors = [
        abs(order.index(answer["label"]) - order.index(line.split(",")[1]))
        for answer, line in pairs
    ]
    scores = model.evaluate(corpus=str(file))["graded"]["trained"]
    assert scores["mean_absolute_error"] == pytest.approx(sum(errors) / len(errors))
    assert scores["accuracy"] == pytest.approx(errors.count(0) / len(errors))
    with pytest.raises(ValueError, match="no class for ordered classes"):
        model.export(tmp_path / "theirs")
    assert not (tmp_path / "theirs").exists()
    # Another head on the body of this one.
    two = ["fair", "good"]
    file.write_text("\n".join(line for line in lines if not line.endswith("poor")) + "\n")
    again = t5x.finetune(
        str(tmp_path / "run"),
        train=str(file),
        kind="ordered",
        model_dir=str(tmp_path / "again"),
        cache_dir=str(tmp_path / "cache"),
        gin=[f"CORPUS_LABELS={two}"],
    )
    assert again.run.abstract_model.head.out.kernel.shape == (32, 1)
    assert again.run.abstract_model.answer_form == "ordered"


def test_the_last_epochs_are_averaged(pretrained: Path, reviews: Path, tmp_path: Path) -> None:
    place = {"model_dir": str(tmp_path / "run"), "cache_dir": str(tmp_path / "cache")}

    def start(last: float, *gin: str) -> int | None:
        made = t5x.finetune(
            str(pretrained), train=str(reviews), **place, average_last=last, gin=gin
        )
        return made.run.options.average_from

    assert start(1) == 2 * 5  # 3 epochs of 5 steps
    assert start(3) == 0
    assert start(0.5, "EPOCHS=1") == 3
    for last in (4, 0, -1):
        with pytest.raises(ValueError, match="average_last is above 0 and at most the 3 epochs"):
            start(last)
    with pytest.raises(ValueError, match="two averages"):
        start(1, "EMA_DECAY=0.9")
    with pytest.raises(ValueError, match="AVERAGE_FROM must be a step of the 8 of the run"):
        start(1, "TRAIN_STEPS=8")


def test_last_layers_start_afresh(pretrained: Path, reviews: Path, tmp_path: Path) -> None:
    place = {"model_dir": str(tmp_path / "run"), "cache_dir": str(tmp_path / "cache")}
    run = t5x.finetune(str(pretrained), train=str(reviews), **place, reinit_layers=1).run
    assert run.init_from is not None
    top, pooler = run.init_from.skip[1:]
    assert (top.endswith("@0-0"), pooler) == (True, "^head\\.pooler\\.")
    with pytest.raises(ValueError, match="reinit_layers is from 0 to 1, the layers of the model"):
        t5x.finetune(str(pretrained), train=str(reviews), **place, reinit_layers=2)


def test_r_drop_needs_classes_and_dropout(pretrained: Path, reviews: Path, tmp_path: Path) -> None:
    place = {"model_dir": str(tmp_path / "run"), "cache_dir": str(tmp_path / "cache")}

    def run(source: Path, **given: Any) -> Any:
        return t5x.finetune(str(source), train=str(reviews), **place, **given).run

    assert run(pretrained, r_drop=0.5).abstract_model.r_drop == 0.5
    dry = [
        "bert.Config.dropout_rate=0.0",
        "bert.Config.attention_dropout_rate=0.0",
        "label_heads.SequenceHead.dropout_rates=(0.0, 0.0)",
    ]
    with pytest.raises(
        ValueError, match=r"has no dropout: .* --gin\.bert\.Config\.dropout_rate=0\.1"
    ):
        run(pretrained, r_drop=0.5, gin=dry)
    wet = ["bert.Config.dropout_rate=0.1", *dry[1:]]
    assert run(pretrained, r_drop=0.5, gin=wet).abstract_model.drops
    with pytest.raises(ValueError, match="r_drop is above 0, not 0"):
        run(pretrained, r_drop=0)
    with pytest.raises(ValueError, match=r"r_drop is for classes, .*, not for several"):
        regularising.with_r_drop(functools.partial(dict), 1.0, "several")
