"""From names to cached tasks: what is found, made, kept, and refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from t5x_like.data import corpora
from t5x_like.data.cache import Cache
from t5x_like.data.feature_converters import EncoderDecoder
from t5x_like.data.opening import Data
from t5x_like.data.stream import eval_stream
from t5x_like.data.user_corpus import user_corpus
from t5x_like.data.vocabulary_choice import VocabularyChoice
from t5x_like.objectives.span_corruption import SpanCorruption
from t5x_like.vocabularies.byte import ByteVocabulary

LENGTHS = {"inputs": 32, "targets": 16}
DOCUMENTS = [f"document number {i} of a small corpus" for i in range(30)]


@pytest.fixture
def data(tmp_path: Path) -> Callable[..., Data]:
    """`Data` on bytes, in a cache root of its own."""

    def make(**fields: Any) -> Data:
        defaults: dict[str, Any] = {
            "lengths": LENGTHS,
            "objective": SpanCorruption(),
            "vocabulary": VocabularyChoice(name="bytes"),
            "cache_dir": str(tmp_path / "root"),
            "workers": 1,
        }
        return Data(**{**defaults, **fields})

    return make


@pytest.fixture
def registered(make_corpus: Callable) -> Iterator[str]:
    """A corpus found by name as long as the test runs."""
    corpus = corpora.add(make_corpus(DOCUMENTS, DOCUMENTS[:3]))
    yield corpus.name
    del corpora._REGISTERED[corpus.name]


def test_task_is_a_corpus_and_an_objective(data: Callable, registered: str) -> None:
    by_preset = data(mixture_or_task_name=f"{registered}.span_corruption", objective=None).open()
    by_default = data(mixture_or_task_name=registered).open()
    for opened in (by_preset, by_default):
        (record,) = opened.records
        assert record.objective == SpanCorruption()
        assert record.steps == ("append_eos_after_trim",)
        assert dict(record.eos) == {"inputs": 1, "targets": 1}
        assert [c.name for c in opened.components("validation")] == [record.name]
    assert by_preset.records[0].name == f"{registered}.span_corruption"
    assert by_preset.caches[0].directory == by_default.caches[0].directory
    assert by_preset.vocabulary.fingerprint == ByteVocabulary().fingerprint


def test_other_files_of_one_name_get_other_caches(data: Callable, tmp_path: Path) -> None:
    directories = []
    for folder in ("a", "b"):
        file = tmp_path / folder / "text.txt"
        file.parent.mkdir()
        file.write_text("\n\n".join(DOCUMENTS))
        directories.append(data(corpus=str(file)).open().caches[0].directory)
    assert directories[0] != directories[1]
    assert all(d.name.startswith("text-") for d in directories)


def test_cache_is_opened_by_its_directory_alone(data: Callable, registered: str) -> None:
    opened = data(mixture_or_task_name=registered).open()
    directory = str(opened.caches[0].directory)
    again = data(corpus=directory, vocabulary=VocabularyChoice(), cache_dir="/no/such").open()
    assert again.vocabulary.fingerprint == opened.vocabulary.fingerprint
    rows = [
        list(
            eval_stream(
                one.components("train")[0],
                lengths=LENGTHS,
                converter=EncoderDecoder(),
                batch_size=2,
                seed=0,
                max_batches=2,
            )
        )
        for one in (opened, again)
    ]
    for ours, theirs in zip(*rows, strict=True):
        for name in ours:
            np.testing.assert_array_equal(ours[name], theirs[name])
    with pytest.raises(ValueError, match="name an objective"):
        data(corpus=directory, objective=None).open()


def test_complete_cache_is_kept_and_made_anew_on_request(data: Callable, registered: str) -> None:
    named = data(mixture_or_task_name=registered)
    (cache,) = named.make_caches()
    manifest = cache.directory / "manifest.json"
    made = manifest.stat().st_mtime_ns
    named.make_caches()
    assert manifest.stat().st_mtime_ns == made
    named.make_caches(overwrite=True)
    assert manifest.stat().st_mtime_ns != made


def test_what_is_missing_is_made_by_the_process_that_once_chooses(
    data: Callable, registered: str
) -> None:
    asked = []

    def once(name: str, path: Path, exists: Callable, make: Callable) -> None:
        asked.append((name, exists()))
        make()

    data(mixture_or_task_name=registered).open(once=once)
    assert asked == [(f"cache of {registered}", False)]


def test_identity_changes_with_whatever_changes_the_examples(
    data: Callable, registered: str, make_corpus: Callable
) -> None:
    def identity(**fields: Any) -> str:
        opened = data(mixture_or_task_name=registered, **fields).open()
        return json.dumps(opened.identity(), sort_keys=True)

    same = identity()
    assert identity(workers=2) == same
    assert identity(lengths={"inputs": 32, "targets": 20}) != same
    assert identity(objective=SpanCorruption(noise_density=0.2)) != same


def test_another_text_of_the_same_name_has_another_identity(data: Callable, tmp_path: Path) -> None:
    file = tmp_path / "text.txt"
    found = []
    for documents, root in ((DOCUMENTS, "one"), (DOCUMENTS[:20], "two")):
        file.write_text("\n\n".join(documents))
        opened = data(corpus=str(file), cache_dir=str(tmp_path / root)).open()
        found.append(opened.identity()["data.text.text"])
    assert found[0] != found[1]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "nothing to read: set CORPUS"),
        ({"mixture_or_task_name": "memery"}, r"no task or mixture 'memery'; nearest: memory"),
        ({"mixture_or_task_name": "memory.span"}, "no objective 'span'.*span_corruption"),
        ({"mixture_or_task_name": "memory", "objective": None}, "name an objective"),
        ({"corpus": "no/such.txt"}, "no file matches 'no/such.txt'"),
        ({"corpus": "/proc"}, "it is a directory"),
    ],
)
def test_name_that_cannot_be_meant(
    fields: dict, message: str, data: Callable, registered: str
) -> None:
    with pytest.raises(ValueError, match=message):
        data(**fields).open()


def test_plain_text_is_never_materialized(data: Callable, registered: str) -> None:
    with pytest.raises(ValueError, match="no SeqIO task"):
        data(mixture_or_task_name=registered).materialize(seed=0, epochs=1)


def test_texts_of_all_names_are_found_for_a_vocabulary(data: Callable, registered: str) -> None:
    (source,) = data(mixture_or_task_name=registered).find_sources()
    assert source.name == registered
    with pytest.raises(ValueError, match="no task or mixture 'nothing'"):
        data(mixture_or_task_name="nothing").find_sources()


def test_small_corpus_goes_without_validation(data: Callable, tmp_path: Path) -> None:
    (tmp_path / "one.txt").write_text("a single document of text")
    read = lambda named: user_corpus(named, validation=0.1)  # noqa: E731
    opened = data(corpus=str(tmp_path / "one.txt"), read_corpus=read).open()
    assert len(opened.components("train")) == 1
    assert opened.components("validation") == []


def test_damaged_vocabulary_in_a_cache_is_refused(data: Callable, registered: str) -> None:
    (cache,) = data(mixture_or_task_name=registered).make_caches()
    (cache.directory / "vocabulary.json").write_text('{"class": "Byte"}')
    with pytest.raises(ValueError, match="vocabulary"):
        data(corpus=str(cache.directory)).open()
    assert Cache.exists(cache.directory)
