"""The way from names to cached tasks: caches that are found, made, kept or refused."""

from __future__ import annotations

import dataclasses
import functools
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from t5x_like.data.cache import location
from t5x_like.data.cache.reader import Cache
from t5x_like.data.corpora import registry
from t5x_like.data.corpora.user_corpus import user_corpus
from t5x_like.data.dataset import Data
from t5x_like.data.rows import feature_converters
from t5x_like.data.rows.feature_converters import EncoderDecoder
from t5x_like.data.streams import mixtures
from t5x_like.data.streams.stream import Examples, eval_stream
from t5x_like.data.task_files import task_records
from t5x_like.data.vocabulary_choice import VocabularyChoice
from t5x_like.objectives.mlm import MaskedLM
from t5x_like.objectives.parts.formats import TargetsOnly
from t5x_like.objectives.span_corruption import SpanCorruption
from t5x_like.objectives.supervised.text_to_text import TextToText
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
    """A corpus that is registered during the test."""
    corpus = registry.add(make_corpus(DOCUMENTS, DOCUMENTS[:3]))
    yield corpus.name
    del registry._REGISTERED[corpus.name]


def test_task_is_a_corpus_and_an_objective(data: Callable, registered: str) -> None:
    by_preset = data(mixture_or_task_name=f"{registered}.span_corruption", objective=None).open()
    by_default = data(mixture_or_task_name=registered).open()
    for opened in (by_preset, by_default):
        (task,) = opened
        assert task.objective == SpanCorruption()
        assert task.steps == ("append_eos_after_trim",)
        assert dict(task.eos) == {"inputs": 1, "targets": 1}
        assert task.has("validation")
    assert by_preset[0].name == f"{registered}.span_corruption"
    assert by_preset[0].cache.directory == by_default[0].cache.directory
    assert by_preset[0].vocabulary.fingerprint == ByteVocabulary().fingerprint


def test_other_files_of_one_name_get_other_caches(data: Callable, tmp_path: Path) -> None:
    directories = []
    for folder in ("a", "b"):
        file = tmp_path / folder / "text.txt"
        file.parent.mkdir()
        file.write_text("\n\n".join(DOCUMENTS))
        directories.append(data(corpus=str(file)).open()[0].cache.directory)
    assert directories[0] != directories[1]
    assert all(d.name.startswith("text-") for d in directories)


def test_cache_is_opened_by_its_directory_alone(data: Callable, registered: str) -> None:
    (opened,) = data(mixture_or_task_name=registered).open()
    directory = str(opened.cache.directory)
    (again,) = data(corpus=directory, vocabulary=VocabularyChoice(), cache_dir="/no/such").open()
    assert again.vocabulary.fingerprint == opened.vocabulary.fingerprint
    rows = [
        list(
            eval_stream(
                Examples(one, one.samples("train"), EncoderDecoder(), 0),
                batch_size=2,
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


def test_the_vocabulary_of_a_finished_cache_is_checked(data: Callable, registered: str) -> None:
    (opened,) = data(mixture_or_task_name=registered).open()
    checked: list[Any] = []
    again = data(corpus=str(opened.cache.directory), cache_dir="/no/such")
    again.open(check=lambda ids, vocabulary: checked.append((ids, vocabulary.fingerprint)))
    assert checked == [(opened.vocabulary.vocab_size, opened.vocabulary.fingerprint)]


def test_objectives_and_lengths_are_known_of_whatever_has_a_name(
    data: Callable, registered: str, tmp_path: Path
) -> None:
    (opened,) = data(mixture_or_task_name=registered).open()
    record_file = location.record_file(tmp_path / "root", "recorded")
    task_records.save(record_file, [opened])
    directory = str(opened.cache.directory)
    for named in (
        data(mixture_or_task_name="recorded", objective=None),
        data(mixture_or_task_name=registered),
        data(corpus=directory),
    ):
        assert named.task_objectives() == [SpanCorruption()]
        assert named.usual_lengths(64) == SpanCorruption().lengths(64)
    with pytest.raises(ValueError, match="no task or mixture 'record'"):
        data(mixture_or_task_name="record").usual_lengths(64)


def test_a_cache_of_pairs_by_its_directory_is_text_to_text(
    data: Callable, make_corpus: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = [{"inputs": "a", "targets": "b"}] * 9
    monkeypatch.setitem(registry._REGISTERED, "memory", make_corpus(pairs, pairs[:3]))
    directory = data(mixture_or_task_name="memory").open()[0].cache.directory
    named = data(corpus=str(directory), objective=MaskedLM())
    assert named.task_objectives() == [TextToText()]
    assert named.usual_lengths(64) == {"inputs": 64, "targets": 64}


def test_an_objective_says_what_runs_after_it(data: Callable, registered: str) -> None:
    class NotEnded(SpanCorruption):
        steps = ("trim",)

    (opened,) = data(mixture_or_task_name=registered, objective=NotEnded()).open()
    directory = str(opened.cache.directory)
    for one in (opened, *data(corpus=directory, objective=NotEnded()).open()):
        assert (one.steps, dict(one.eos)) == (("trim",), {})


@dataclasses.dataclass(frozen=True)
class Needy(SpanCorruption):
    """An objective that needs ids which bytes lack, or counts, which every cache has."""

    needs: tuple[str, ...] = ("mask", "counts", "[R]")


def test_vocabulary_that_lacks_something_is_refused_before_text_is_tokenised(
    data: Callable, registered: str, tmp_path: Path
) -> None:
    message = (
        r"^task '[^']*' \(Needy\) needs a vocabulary with mask, \[R\], .*t5x_like vocab"
        r".*VOCABULARY or --vocabulary"
    )
    with pytest.raises(ValueError, match=message):
        data(mixture_or_task_name=registered, objective=Needy()).open()
    assert not (tmp_path / "root" / "tokens").exists()
    (opened,) = data(mixture_or_task_name=registered, objective=Needy(needs=("counts",))).open()
    with pytest.raises(ValueError, match=message):
        data(corpus=str(opened.cache.directory), objective=Needy()).open()


def test_packed_tables_say_how_well_they_pack(
    data: Callable, make_corpus: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = [{"inputs": "a" * (i % 9), "targets": "b" * (1 + i % 5)} for i in range(40)]
    monkeypatch.setitem(registry._REGISTERED, "memory", make_corpus(pairs, pairs[:3]))
    (opened,) = data(mixture_or_task_name="memory", objective=None).open()
    samples = opened.samples("train", pack=True)
    found = samples.efficiency
    tokens = sum(len(pair["targets"]) + 1 for pair in pairs)
    places = LENGTHS["targets"] * len(samples)
    assert found["targets"] == pytest.approx(tokens / places)
    assert max(found.values()) > 0.8


def test_text_under_an_objective_without_sizes_is_not_packed(
    data: Callable, registered: str
) -> None:
    (opened,) = data(mixture_or_task_name=registered).open()
    with pytest.raises(ValueError, match=r"^SpanCorruption cannot be packed"):
        opened.samples("train", pack=True)


@dataclasses.dataclass(frozen=True)
class CarriedTokens:
    """Row r reads the r-th part of the stream, token by token."""

    columns = ("targets_start", "targets_end")
    separators = False
    segments_of = None

    def steps(self, tokens, rows):
        return tokens // rows

    def plan_rows(self, sentences, rng, steps, rows):
        share = sentences.total // rows
        for step in steps:
            yield [(row * share + step, row * share + step + 1) for row in range(rows)]


class CarriedObjective(TargetsOnly):
    """An objective that returns its samples unchanged."""

    def __repr__(self) -> str:
        return "CarriedObjective()"

    def geometry(self, lengths):
        return CarriedTokens()

    def __call__(self, sample, rng, ids):
        return {"targets": sample["targets"]}


def test_carried_tasks_share_a_batch_and_are_evaluated_alone(
    data: Callable, registered: str
) -> None:
    named = data(
        mixture_or_task_name=registered, objective=CarriedObjective(), lengths={"targets": 4}
    )
    (opened,) = named.open()
    tasks = [
        dataclasses.replace(opened, weight=3),
        dataclasses.replace(opened, name="other", weight=1),
    ]
    examples = functools.partial(
        mixtures.examples, tasks, converter=feature_converters.Decoder(), seed=0
    )
    train = examples("train", rows=8)
    assert [(one.rows, len(one.samples) % one.rows) for one in train] == [(6, 0), (2, 0)]
    assert [one.rows for one in examples("validation", rows=8, alone=True)] == [8, 8]
    with pytest.raises(ValueError, match=r"at least 2 rows.*not 1"):
        examples("train", rows=1)
    with pytest.raises(ValueError, match="say how many a batch has"):
        examples("train")


def test_complete_cache_is_kept_and_made_anew_on_request(data: Callable, registered: str) -> None:
    named = data(mixture_or_task_name=registered)
    (cache,) = named.make_caches()
    manifest = cache.directory / "manifest.json"
    made = manifest.stat().st_mtime_ns
    named.make_caches()
    assert manifest.stat().st_mtime_ns == made
    named.make_caches(overwrite=True)
    assert manifest.stat().st_mtime_ns != made


def test_complete_cache_of_another_text_is_refused_until_it_is_overwritten(
    data: Callable, tmp_path: Path
) -> None:
    file = tmp_path / "text.txt"
    file.write_text("\n\n".join(DOCUMENTS))
    named = data(corpus=str(file))
    (before,) = named.make_caches()
    with file.open("a") as more:
        more.write("\n\none more document")
    with pytest.raises(ValueError, match=r"another text.*t5x_like cache .*--overwrite"):
        named.make_caches()
    (after,) = named.make_caches(overwrite=True)
    assert after.directory == before.directory
    assert after.manifest.content_hash != before.manifest.content_hash
    named.make_caches()


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
        return json.dumps(mixtures.identity(opened), sort_keys=True)

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
        found.append(mixtures.identity(opened)["data.text.text"])
    assert found[0] != found[1]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "nothing to read: set CORPUS"),
        ({"mixture_or_task_name": "memery"}, r"no task or mixture 'memery'; nearest: memory"),
        ({"mixture_or_task_name": "memory.span_corrupt"}, "no objective 'span_.*span_corruption"),
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


def test_plain_text_is_never_materialized(
    data: Callable, registered: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The import of SeqIO would fail. Plain text is refused even where SeqIO is not installed.
    monkeypatch.setitem(sys.modules, "t5x_like.data.seqio.task_cache", None)
    with pytest.raises(ValueError, match="not a SeqIO task"):
        data(mixture_or_task_name=registered).materialize(seed=0, epochs=1)


def test_texts_of_all_names_are_found_for_a_vocabulary(data: Callable, registered: str) -> None:
    (task,) = data(mixture_or_task_name=registered).find_tasks()
    assert task.name == registered
    with pytest.raises(ValueError, match="no task or mixture 'nothing'"):
        data(mixture_or_task_name="nothing").find_tasks()


def test_small_corpus_goes_without_validation(data: Callable, tmp_path: Path) -> None:
    (tmp_path / "one.txt").write_text("a single document of text")
    read = lambda named: user_corpus(named, validation=0.1)  # noqa: E731
    (opened,) = data(corpus=str(tmp_path / "one.txt"), read_corpus=read).open()
    assert opened.has("train")
    assert not opened.has("validation")


def test_damaged_vocabulary_in_a_cache_is_refused(data: Callable, registered: str) -> None:
    (cache,) = data(mixture_or_task_name=registered).make_caches()
    (cache.directory / "vocabulary.json").write_text('{"class": "Byte"}')
    with pytest.raises(ValueError, match="vocabulary"):
        data(corpus=str(cache.directory)).open()
    assert Cache.exists(cache.directory)


def test_files_and_the_same_files_beside_held_out_ones_are_two_texts(
    data: Callable, tmp_path: Path
) -> None:
    """Each keeps its cache: where no files are held out, some of these documents are."""
    for name in ("text", "held_out"):
        (tmp_path / f"{name}.txt").write_text("\n\n".join(DOCUMENTS))
    read = functools.partial(user_corpus, validation_files=str(tmp_path / "held_out.txt"))
    places = [
        data(corpus=str(tmp_path / "text.txt"), **how).open()[0].directory
        for how in ({"read_corpus": read}, {}, {"read_corpus": read})
    ]
    assert places[0] == places[2] != places[1]
