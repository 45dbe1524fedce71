"""An extended vocabulary keeps its ids and writes its text in fewer ids."""

from __future__ import annotations

from pathlib import Path

import pytest

from t5x_like.vocabularies import loading
from t5x_like.vocabularies.byte import ByteVocabulary
from t5x_like.vocabularies.learning import extending, vocabulary_recipe
from t5x_like.vocabularies.subwords import SubwordVocabulary

OLD = ["the cat sat on the mat", "a dog sat there", "cats and dogs"] * 5
NEW = ["The Plaintiff and the defendant", "the plaintiff; the defendant", "an appeal"] * 2
NEW += ["estoppel", "a plaintiff"]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    recipe = vocabulary_recipe.Recipe(kind="wordpiece", size=80, extra_ids=0, lowercase=True)
    letters = ["".join(map(chr, range(ord("a"), ord("z") + 1)))] * 2
    return vocabulary_recipe.train(OLD + letters, tmp_path_factory.mktemp("base") / "v", recipe)


def test_old_ids_stay_and_frequent_long_words_come_first(base: Path, tmp_path: Path) -> None:
    old = loading.load(base)
    path = vocabulary_recipe.extend(
        NEW, tmp_path / "new", old, size=old.vocab_size + 2, progress=False
    )
    new = loading.load(path)
    assert new.vocab_size == old.vocab_size + 2
    assert all(new.piece(i) == old.piece(i) for i in range(old.vocab_size))
    assert new.token_ids.to_json() == old.token_ids.to_json() | {"vocab_size": new.vocab_size}
    first, second = old.vocab_size, old.vocab_size + 1
    assert [new.piece(first), new.piece(second)] == ["▁plaintiff", "▁defendant"]
    assert new.encode("The plaintiff")[-1:] == [first]
    assert new.encode("the cat sat") == old.encode("the cat sat")
    assert new.decode(new.encode("the plaintiff sat")) == "the plaintiff sat"


def test_what_occurs_once_or_is_one_id_is_not_added(base: Path) -> None:
    old = loading.load(base)
    new = extending.extend(old, NEW, size=1000)
    added = {new.piece(i) for i in range(old.vocab_size, new.vocab_size)}
    assert "▁estoppel" not in added
    assert "▁the" not in added
    assert "▁;" in added  # it was unknown
    assert sum(len(new.encode(line)) for line in NEW) < sum(len(old.encode(line)) for line in NEW)


def test_words_of_unknown_characters_are_added(base: Path) -> None:
    old = loading.load(base)
    new = extending.extend(old, ["наш суд", "суд"], size=1000)
    assert new.encode("суд") == [old.vocab_size]
    assert old.token_ids.unk in old.encode("суд")


def test_what_cannot_be_extended_is_refused_before_reading(base: Path, tmp_path: Path) -> None:
    def unread():
        pytest.fail("the text was read")
        yield ""

    old = loading.load(base)
    for vocabulary, size, message in [
        (ByteVocabulary(), 999, "only a WordPiece vocabulary"),
        (SubwordVocabulary(old.tokenizer_json, 4), 999, "without sentinels"),
        (old, old.vocab_size, "give a size of more"),
    ]:
        with pytest.raises(ValueError, match=message):
            vocabulary_recipe.extend(unread(), tmp_path / "new", vocabulary, size=size)
    with pytest.raises(FileExistsError):
        vocabulary_recipe.extend(unread(), base, old, size=999)
