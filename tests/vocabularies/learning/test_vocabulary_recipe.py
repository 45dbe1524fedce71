"""Training through a recipe: the same bytes each time, whole or not at all."""

import dataclasses
import os
import subprocess
import sys

import pytest

from t5x_like.cli.common import arguments
from t5x_like.vocabularies import loading
from t5x_like.vocabularies.learning import vocabulary_recipe
from t5x_like.vocabularies.learning.vocabulary_recipe import Recipe

TEXT = [
    f"{word}ing {word}ed and {word}s: Ein {word} für é {i}"
    for i, word in enumerate("walk run talk train".split() * 9)
]
DIRECTORIES = ["wordpiece", "byte_bpe", "characters"]

TRAIN = """
import sys
from t5x_like.vocabularies.learning.vocabulary_recipe import Recipe, train
kind, path = sys.argv[1:]
words = "walk run talk play work".split()
lines = [" ".join(f"{word}{end}" for end in "ing ed s er".split()) for word in words]
train(lines * 3, path, Recipe(kind=kind, size=300), progress=False)
"""


def test_kinds_of_the_command_line():
    assert arguments.VOCAB_TYPES == vocabulary_recipe.KINDS


@pytest.mark.parametrize("kind", DIRECTORIES)
def test_every_process_trains_the_same_bytes(kind, tmp_path):
    # Each process has its own order of hash tables.
    for name in "ab":
        subprocess.run([sys.executable, "-c", TRAIN, kind, tmp_path / name], check=True)
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]
    for file in os.listdir(tmp_path / "a"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


@pytest.mark.parametrize("kind", DIRECTORIES)
def test_size_is_the_most_there_can_be(kind, tmp_path):
    path = vocabulary_recipe.train(
        TEXT, tmp_path / "v", Recipe(kind=kind, size=9000, extra_ids=7), progress=False
    )
    full = loading.load(path)
    assert full.vocab_size < 9000
    size = full.vocab_size - 7 - 3
    path = vocabulary_recipe.train(
        TEXT, tmp_path / "w", Recipe(kind=kind, size=size, extra_ids=0), progress=False
    )
    assert loading.load(path).vocab_size == size


@pytest.mark.parametrize("kind", ["wordpiece", "byte_bpe"])
def test_too_small_a_size_says_the_smallest(kind, tmp_path):
    recipe = Recipe(kind=kind, size=20)
    with pytest.raises(ValueError, match="give at least") as caught:
        vocabulary_recipe.train(TEXT, tmp_path / "v", recipe, progress=False)
    assert not os.listdir(tmp_path)
    smallest = int(str(caught.value).split("at least ")[1])
    recipe = Recipe(kind=kind, size=smallest, extra_ids=0)
    assert (
        loading.load(
            vocabulary_recipe.train(TEXT, tmp_path / "v", recipe, progress=False)
        ).vocab_size
        == smallest
    )


def test_coverage_leaves_rare_characters_out(tmp_path):
    text = ["a b" * 50, "é"]
    for kind, unknown in (("characters", 1), ("wordpiece", 1), ("byte_bpe", 0)):
        recipe = Recipe(kind=kind, size=300, character_coverage=0.98)
        vocabulary = loading.load(
            vocabulary_recipe.train(text, tmp_path / kind, recipe, progress=False)
        )
        assert vocabulary.encode("é").count(vocabulary.token_ids.unk) == unknown
        assert vocabulary.token_ids.unk not in vocabulary.encode("a b")


def test_lowercase_strips_capitals_and_accents(tmp_path):
    recipe = Recipe(kind="wordpiece", size=300, lowercase=True)
    uncased = loading.load(vocabulary_recipe.train(TEXT, tmp_path / "v", recipe, progress=False))
    assert uncased.encode("WÀLKING") == uncased.encode("walking")
    assert uncased.decode(uncased.encode("WÀLKING Ein")) == "walking ein"


def test_marks_are_kept_where_that_is_chosen_and_missed_where_they_are_not(tmp_path, capsys):
    text = ["Ein schöner Tag in Київ", "कुल कल"]
    recipe = Recipe(kind="wordpiece", size=300, lowercase=True, strip_accents=False)
    kept = loading.load(vocabulary_recipe.train(text, tmp_path / "kept", recipe, progress=True))
    assert kept.decode(kept.encode("SCHÖNER Київ")) == "schöner київ"
    assert kept.encode("कुल") != kept.encode("कल")
    assert "Note" not in capsys.readouterr().err
    recipe = dataclasses.replace(recipe, strip_accents=None)
    bare = loading.load(vocabulary_recipe.train(text, tmp_path / "bare", recipe, progress=True))
    assert bare.encode("कुल") == bare.encode("कल")
    said = capsys.readouterr().err
    assert "from 42.9% of the words (schöner becomes schoner, Київ becomes киів" in said
    assert "--keep_accents" in said


def test_what_is_there_is_left_alone(tmp_path):
    def untouched():
        raise AssertionError("was read")
        yield

    (tmp_path / "note").touch()
    for path in (tmp_path, tmp_path / "note"):
        with pytest.raises(FileExistsError, match="is there already"):
            vocabulary_recipe.train(untouched(), path, Recipe(kind="characters"))
    with pytest.raises(OSError, match="note"):
        vocabulary_recipe.train(untouched(), tmp_path / "note/v", Recipe(kind="characters"))
    with pytest.raises(IsADirectoryError, match=r"is a directory: name the file"):
        vocabulary_recipe.train(untouched(), tmp_path, Recipe(kind="unigram"))
    assert os.listdir(tmp_path) == ["note"]
    (tmp_path / "empty").mkdir()
    vocabulary_recipe.train(TEXT, tmp_path / "empty", Recipe(kind="characters"), progress=False)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"kind": "word"}, "unigram, bpe, wordpiece, words, byte_bpe, characters"),
        ({"size": 12}, "at least 13"),
        ({"size": "many"}, "whole number"),
        ({"kind": "wordpiece", "byte_fallback": True}, "unigram and bpe alone"),
        ({"lowercase": True}, "wordpiece and words alone"),
        ({"extra_ids": -5}, "extra_ids must be a whole number of at least 0, not -5"),
        ({"max_sentences": 0}, "max_sentences must be a whole number of at least 1, not 0"),
        ({"max_sentences": 1.5}, "max_sentences must be a whole number"),
        ({"seed": -1}, "seed must be a whole number of at least 0, not -1"),
        ({"character_coverage": 0}, "character_coverage is a share .* not 0"),
        ({"character_coverage": 1.1}, "character_coverage is a share .* not 1.1"),
    ],
)
def test_recipes_that_make_no_sense(fields, why):
    with pytest.raises(ValueError, match=why):
        Recipe(**fields)
