"""Encoder-decoders learn texts, and labels as words, by `t5x.finetune` and the command."""

from __future__ import annotations

import functools
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from flax import nnx
from tiny_run import Result, losses

import t5x_like as t5x
from t5x_like.models import bart, t5
from t5x_like.runs import saved_model
from t5x_like.runs.settings.finetuning import finetuned_model
from t5x_like.training.logs.metrics_file import read_metrics
from t5x_like.vocabularies import loading
from t5x_like.vocabularies.learning.subword_training import train_wordpiece

GOOD, BAD = ["fine", "lovely", "great"], ["dull", "poor", "awful"]
SIZES = {"d_model": 32, "d_ff": 64, "num_heads": 2}
LAYERS = {"num_encoder_layers": 1, "num_decoder_layers": 1}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """The directory of a model that has learned nothing yet."""
    text = " ".join(
        ["a", *GOOD, *BAD, "text1", "text2", ":", "true", "false", "film", *"0123456789"]
    )
    vocabulary = train_wordpiece(
        [text] * 3, size=200, extra_ids=0, character_coverage=1.0, lowercase=True
    )
    size = vocabulary.vocab_size
    models: dict[str, functools.partial[Any]] = {
        "t5": functools.partial(t5.T5, t5.Config(vocab_size=size, d_kv=16, **SIZES, **LAYERS)),
        "bart": functools.partial(
            bart.Bart,
            bart.Config(
                vocab_size=size, pad_id=0, max_positions=64, init_std=0.2, **SIZES, **LAYERS
            ),
        ),
    }
    root = tmp_path_factory.mktemp("models")

    @functools.cache
    def write(name: str) -> str:
        params = nnx.to_pure_dict(nnx.state(models[name](rngs=nnx.Rngs(0)), nnx.Param))
        directory = str(root / name)
        saved_model.write(
            directory, models[name], params, title="a", vocabulary=vocabulary, files=()
        )
        return directory

    return write


def evaluations(run: Path, name: str) -> list[float]:
    lines = read_metrics(run / "metrics.jsonl")
    return [line[f"eval/{name}"] for line in lines if f"eval/{name}" in line]


@pytest.mark.slow
def test_a_t5_writes_labels_and_resumes(written: Callable[[str], str], tmp_path: Path) -> None:
    draw = random.Random(0)
    rows = []
    for number in range(140):
        words, label = draw.choice([(GOOD, True), (BAD, False)])
        rows.append({"text1": f"a {draw.choice(words)} film", "text2": str(number), "label": label})
    file = tmp_path / "reviews.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))

    def run(name: str) -> t5x.Pretraining:
        return t5x.finetune(
            written("t5"),
            train=str(file),
            model_dir=str(tmp_path / name),
            cache_dir=str(tmp_path / "cache"),
            epochs=6,
            batch_size=16,
            learning_rate=0.03,
            gin=["LOG_PERIOD=1"],
        )

    straight = run("straight")
    assert straight.notes[0] == (
        "Learns to write the column 'label' for 'text1' and 'text2' (140 rows)."
    )
    assert straight.train().status == "finished"
    for step in run("broken").steps():
        if step.step == 20:
            break
    run("broken").train()
    assert losses(tmp_path / "broken") == losses(tmp_path / "straight")
    assert evaluations(tmp_path / "broken", "reviews/exact_match")[-1] > 0.9
    model = t5x.load(str(tmp_path / "broken"))
    answers = model.predict(["text1: a lovely film text2: 3", "text1: a dull film text2: 5"])
    assert [answer["prediction"] for answer in answers] == ["true", "false"]


@pytest.mark.slow
def test_a_t5_learns_classes_with_a_head(written: Callable[[str], str], tmp_path: Path) -> None:
    draw = random.Random(0)
    rows = [
        (f"a {draw.choice(of)} film {draw.randrange(99)}", name)
        for of, name in ((GOOD, "good"), (BAD, "bad")) * 60
    ]
    file = tmp_path / "reviews.tsv"
    file.write_text("text\tlabel\n" + "".join(f"{text}\t{name}\n" for text, name in rows))
    run = t5x.finetune(
        written("t5"),
        train=str(file),
        head=True,
        epochs=4,
        batch_size=16,
        learning_rate=0.03,
        model_dir=str(tmp_path / "run"),
        cache_dir=str(tmp_path / "cache"),
    )
    assert run.run.abstract_model.body.config.dropout_rate == 0.1
    run.train()
    assert evaluations(tmp_path / "run", "reviews/accuracy")[-1] == 1
    (answer,) = t5x.load(str(tmp_path / "run")).predict(["a lovely film"])
    assert answer["label"] == "good"


def test_a_head_reads_the_end_of_sequence_of_the_vocabulary(written: Callable[[str], str]) -> None:
    """BART's published one is 2."""
    end = loading.load(f"{written('bart')}/vocabulary").token_ids.eos
    assert end == 1
    made = finetuned_model.of_saved(written("bart"), "classes", num_labels=2).make
    assert made.args[1].keywords["pool"].token == end


@pytest.mark.parametrize(
    ("target", "kind", "metrics", "best"),
    [
        (lambda n: n + 0.5, None, ("written_numbers",), "pearson"),
        (lambda n: n % 6, "numbers", ("written_numbers",), "pearson"),
        (lambda n: n, None, ("exact_match",), "exact_match"),
        (lambda n: f"film {n}", None, ("bleu", "rouge"), "bleu"),
    ],
)
def test_metrics_follow_from_what_is_written(
    target: Callable[[int], Any],
    kind: str | None,
    metrics: tuple[str, ...],
    best: str,
    written: Callable[[str], str],
    tmp_path: Path,
) -> None:
    file = tmp_path / "rows.jsonl"
    rows = ({"text": f"a film {n}", "score": target(n)} for n in range(120))
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = t5x.finetune(written("t5"), train=str(file), kind=kind, cache_dir=str(tmp_path / "cache"))
    assert run.run.data.objective.measures == metrics
    assert run.run.options.best_metric == best


def test_a_t5_tags_words_with_its_encoder(written: Callable[[str], str], tmp_path: Path) -> None:
    file = tmp_path / "a.conll"
    file.write_text("Ada B-PER\nsings O\n\nBo B-PER\nreads O\n\n" * 20)
    run = t5x.finetune(written("t5"), train=str(file), head=True, model_dir=str(tmp_path / "run"))
    assert isinstance(run.run.abstract_model.body, t5.Encoder)


@pytest.mark.slow
def test_a_bart_writes_texts_between_its_special_tokens(
    written: Callable[[str], str], tmp_path: Path, cli: Callable[..., Result]
) -> None:
    draw = random.Random(1)
    lines = ["mr,ref"]
    for _ in range(160):
        digits = [*map(str, draw.choices(range(4), k=3))]
        lines.append(f"{' '.join(digits)},a {digits[0]} film")
    for name, part in (("train", lines), ("dev", [lines[0], *lines[1:20]])):
        (tmp_path / f"{name}.csv").write_text("\n".join(part) + "\n")
    run = tmp_path / "run"
    done = cli(
        *("finetune", written("bart"), "--train", str(tmp_path / "train.csv")),
        *("--dev", str(tmp_path / "dev.csv"), "--model_dir", str(run), "--epochs=10"),
        *("--learning_rate=0.005", "--batch_size=16", "--cache_dir", str(tmp_path / "cache")),
    )
    assert done.status == 0, done.err
    assert "Learns to write the column 'ref' for 'mr' (160 rows)." in done.err
    assert evaluations(run, "train/exact_match")[-1] > 0.9
    assert t5x.load(str(run)).predict(["3 1 0"])[0]["prediction"] == "a 3 film"


@pytest.mark.slow
def test_several_targets_of_a_held_out_text_are_right_together(
    written: Callable[[str], str], tmp_path: Path
) -> None:
    rows = [f"{n},a film {n}" for n in range(120)]
    several = ["1 2,a film 1", "3,a film 3", "1 2,a film 2"]
    for name, part in (("train", rows), ("dev", several)):
        (tmp_path / f"{name}.csv").write_text("\n".join(["mr,ref", *part]) + "\n")
    run = t5x.finetune(
        written("t5"),
        train=str(tmp_path / "train.csv"),
        dev=str(tmp_path / "dev.csv"),
        model_dir=str(tmp_path / "run"),
        cache_dir=str(tmp_path / "cache"),
        gin=["TRAIN_STEPS=1", "EVAL_PERIOD=1"],
    )
    run.train()
    assert len(evaluations(tmp_path / "run", "train/bleu")) == 1
    model = t5x.load(str(tmp_path / "run"))
    predictions = tmp_path / "said.jsonl"
    model.evaluate(corpus=str(tmp_path / "dev.csv"), predictions=predictions)
    said = [json.loads(line) for line in predictions.read_text().splitlines()]
    assert [line["target"] for line in said] == [["a film 1", "a film 2"], "a film 3"]


def test_what_a_model_does_not_learn_is_said(written: Callable[[str], str], tmp_path: Path) -> None:
    (tmp_path / "a.conll").write_text("Ada B-PER\nsings O\n\n")
    with pytest.raises(ValueError, match="has tags of words, which a model that writes texts does"):
        t5x.finetune(written("t5"), train=str(tmp_path / "a.conll"))
    with pytest.raises(
        ValueError, match=r"which does not learn tags here: give it a head \(--head\)"
    ):
        t5x.finetune(written("t5"), train=str(tmp_path / "a.conll"), kind="tags")
    with pytest.raises(ValueError, match="leave out dev, label"):
        t5x.finetune(written("t5"), task="sst2", dev="dev.tsv", label="label")
    with pytest.raises(ValueError, match="say what there is to learn"):
        t5x.finetune(written("t5"), data_dir="glue")
    (tmp_path / "pairs.tsv").write_text("inputs\ttargets\na film\tfine\na poor film\tdull\n")
    with pytest.raises(ValueError, match="holds 'fine', which is not a number"):
        t5x.finetune(written("t5"), train=str(tmp_path / "pairs.tsv"), kind="numbers")
    with pytest.raises(ValueError, match="a head does not write texts, which these files hold"):
        t5x.finetune(written("t5"), train=str(tmp_path / "pairs.tsv"), kind="texts", head=True)
