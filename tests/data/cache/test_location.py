"""Caches of different texts never share a directory; caches of one text always do."""

from __future__ import annotations

from pathlib import Path

import pytest

from t5x_like.data.cache import location
from t5x_like.vocabularies.byte import ByteVocabulary


def test_root_is_named_else_of_the_environment_else_of_the_user(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("T5X_LIKE_CACHE", str(tmp_path / "set"))
    assert location.cache_root(str(tmp_path / "named")) == tmp_path / "named"
    assert location.cache_root() == tmp_path / "set"
    monkeypatch.delenv("T5X_LIKE_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert location.cache_root() == tmp_path / ".cache" / "t5x_like"
    monkeypatch.chdir(tmp_path)
    assert location.cache_root("below") == tmp_path / "below"


def test_directory_tells_vocabularies_and_texts_apart() -> None:
    plain, with_sentinels = ByteVocabulary(), ByteVocabulary(extra_ids=8)
    names = [
        location.cache_directory(text, vocabulary)
        for text in ("mine", "yours")
        for vocabulary in (plain, with_sentinels)
    ]
    assert len(set(names)) == 4
    assert location.cache_directory("mine", ByteVocabulary()) == names[0]


def test_names_become_file_names(tmp_path: Path) -> None:
    assert location.record_file(tmp_path, "a/b:c d.e") == tmp_path / "tasks" / "a_b_c_d.e.json"
    file = location.vocabulary_file(
        tmp_path, "wiki40b/en", fingerprint="0123456789", kind="bpe", size=50
    )
    assert file == tmp_path / "vocabularies" / "wiki40b_en-01234567-bpe-50.model"
