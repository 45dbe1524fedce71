"""What a run's text does not teach is said: cut examples, and labels that cannot be learned."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from t5x_like import objectives
from t5x_like.data import task
from t5x_like.data.cache.reader import Cache
from t5x_like.data.cache.writer import write_cache
from t5x_like.data.corpora.text_files import TextFiles
from t5x_like.data.rows.feature_converters import default_converter
from t5x_like.data.streams import mixtures
from t5x_like.data.task import Task
from t5x_like.objectives.span_corruption import SpanCorruption
from t5x_like.objectives.supervised.text_to_text import TextToText
from t5x_like.runs.checks import teaching
from t5x_like.vocabularies import loading
from t5x_like.vocabularies.byte import ByteVocabulary
from t5x_like.vocabularies.learning.subword_training import train_wordpiece

VOCABULARY = Path(__file__).parents[1] / "golden" / "vocabulary"
SENTENCE = "The file {} of the module is a list of its values."


def notes(cache: Cache, objective: str, **lengths: int) -> list[str]:
    made = objectives.preset(objective)
    opened = task.of_cache(cache, made).with_cache(cache, lengths or made.lengths(64))
    converter = default_converter(made)
    (found,) = mixtures.examples([opened], "train", converter=converter, seed=0, rows=4)
    return [*teaching.notes(found)]


def cached(directory: Path, name: str, text: str, vocabulary: object, **options: object) -> Cache:
    (directory / name).write_text(text)
    corpus = TextFiles(directory / name, validation=0, **options)
    write_cache(directory / "cache", corpus, vocabulary, workers=1, progress=False, overwrite=True)
    return Cache.open(directory / "cache")


def test_examples_that_are_cut_are_counted(tmp_path: Path) -> None:
    rows = ["inputs\ttargets", *("i" * n + "\t" + "t" * (n // 3) for n in range(1, 31))]
    cache = cached(tmp_path, "pairs.tsv", "\n".join(rows), ByteVocabulary())
    # One token is the end of sequence.
    assert notes(cache, "text_to_text", inputs=21, targets=11) == [
        "10 of 30 inputs of pairs are cut at 21 tokens (TASK_FEATURE_LENGTHS)"
    ]
    assert len(notes(cache, "text_to_text", inputs=21, targets=4)) == 2
    assert not notes(cache, "text_to_text", inputs=31, targets=11)


def test_labelled_text_that_the_vocabulary_lacks_is_counted(tmp_path: Path) -> None:
    vocabulary = train_wordpiece(
        ["the file of a module"] * 3, size=60, extra_ids=0, character_coverage=1.0, lowercase=True
    )
    rows = ["inputs\ttargets", *["the file\ta module"] * 6]
    known = cached(tmp_path, "known.tsv", "\n".join(rows), vocabulary)
    assert not notes(known, "text_to_text", inputs=20, targets=20)
    strange = cached(
        tmp_path, "strange.tsv", "\n".join([*rows, *["映画\tthe file"] * 3]), vocabulary
    )
    (line,) = notes(strange, "text_to_text", inputs=20, targets=20)
    assert re.match(r"6 of 18 tokens of inputs of strange are unknown ones: the vocabulary", line)


def test_an_objective_for_other_columns_is_named(tmp_path: Path) -> None:
    opened = Task(name="pairs", objective=TextToText())
    (line,) = teaching.of_columns(opened, SpanCorruption())
    assert line == (
        "pairs has inputs and targets: it is learned as TextToText. OBJECTIVE, SpanCorruption, is "
        "for plain text and is not used"
    )
    assert not [*teaching.of_columns(opened, TextToText()), *teaching.of_columns(opened, None)]


def test_the_rest_after_a_prefix_is_cut_as_in_t5(tmp_path: Path) -> None:
    cache = cached(tmp_path, "text.txt", "\n\n".join(["words " * 40] * 9), ByteVocabulary())
    assert notes(cache, "prefix_lm", inputs=40, targets=9) == [
        "targets of text can have 40 tokens and are cut at 9 (TASK_FEATURE_LENGTHS)"
    ]
    assert not notes(cache, "prefix_lm", inputs=40, targets=40)


@pytest.mark.parametrize("objective", ["mlm_nsp", "mlm_sop"])
def test_labels_that_teach_nothing_are_named(objective: str, tmp_path: Path) -> None:
    vocabulary = loading.load(str(VOCABULARY))
    one, several = (
        [" ".join(SENTENCE.format(f"{d}.{s}") for s in range(count)) for d in range(40)]
        for count in (1, 30)
    )
    made = cached(tmp_path, "one.txt", "\n\n".join(one), vocabulary)
    (line,) = notes(made, objective)
    assert "_label is 1 in all " in line
    assert "teaches nothing: a pair needs a document of several sentences" in line
    made = cached(tmp_path, "several.txt", "\n\n".join(several), vocabulary)
    assert not notes(made, objective)
    whole = cached(tmp_path, "whole.txt", "\n\n".join(several), vocabulary, separator="file")
    found = notes(whole, objective)
    if objective == "mlm_sop":  # its pairs are always of one document
        assert not found
    else:
        assert ["whole is one document" in line for line in found] == [True]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Der Fluß trat über die Ufer, und alle gingen fort. ", ""),
        (
            "河水漫过了堤岸。大家都离开了村子。",
            "of the letters in text are CJK.*--sentences zh,",
        ),
        ("川があふれて、みんな村をはなれました。", "HIRAGANA.*--sentences ja,"),
        (
            "Река вышла из берегов, и все ушли. The end. ",
            "CYRILLIC.*by the rules of 'en'.*--sentences ru,",
        ),
    ],
)
def test_text_of_another_script_than_its_rules_is_named(
    text: str, said: str, tmp_path: Path
) -> None:
    found = notes(cached(tmp_path, "text.txt", text * 20, ByteVocabulary()), "span_corruption")
    assert re.search(said, "".join(found))
    assert bool(found) == bool(said)


def test_a_precision_without_small_gradients_is_named() -> None:
    (line,) = teaching.of_precision("float16")
    assert "bfloat16" in line
    assert not [*teaching.of_precision("bfloat16")]
