"""The cache of many machines, without Beam: its steps are done here, in the worst order."""

from __future__ import annotations

import itertools
import pickle
import random
import sys
from pathlib import Path

import numpy as np
import pytest

from t5x_like.cli.main import main
from t5x_like.core.buckets import staging, storage
from t5x_like.data.cache import tokenization, writer
from t5x_like.data.cache.beam import cache_writer, pipelines, survey
from t5x_like.data.cache.beam.survey import Survey
from t5x_like.data.cache.blocks import Place
from t5x_like.data.cache.format import CacheError
from t5x_like.data.cache.reader import Cache
from t5x_like.data.cache.shards import ShardPlan
from t5x_like.data.corpora.corpus import CorpusError
from t5x_like.data.corpora.text_files import TextFiles
from t5x_like.vocabularies.byte import ByteVocabulary
from t5x_like.vocabularies.sentencepiece import SentencePieceVocabulary

CORPORA = (
    "mixed",
    "nothing held out",
    "validation files",
    "lines",
    "pairs",
    "one document",
    "second document in another file",
)


class ShuffledWorkers:
    """Does every step in a random order and some of them twice, with pickled steps and elements."""

    name = "ShuffledWorkers"

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)
        self.written: list[int] = []

    def _some_twice(self, elements):
        order = [*elements, *elements[::3]]
        self._random.shuffle(order)
        return pickle.loads(pickle.dumps(order))

    def each(self, title, elements, step):
        del title
        for element in self._some_twice(elements):
            pickle.loads(pickle.dumps(step))(element)

    def grouped(self, title, elements, *, read, write):
        del title
        # Of what a repeated step gives, runners keep one result.
        kept = {element.source.number: [*read(element)] for element in self._some_twice(elements)}
        groups: dict[int, list] = {}
        for key, text in itertools.chain.from_iterable(kept.values()):
            groups.setdefault(key, []).append(text)
        for key, texts in self._some_twice(list(groups.items())):
            self._random.shuffle(texts)
            self.written.append(key)
            write((key, iter(texts)))


def files_of(directory: Path) -> dict[str, bytes]:
    return {
        str(p.relative_to(directory)): p.read_bytes()
        for p in directory.rglob("*")
        if p.name != ".writing" and p.is_file()
    }


def write(directory: Path, corpus: TextFiles, vocabulary=None, workers=None, **options):
    return cache_writer.write_cache(
        directory,
        corpus,
        vocabulary or ByteVocabulary(),
        workers=workers or ShuffledWorkers(),
        **options,
    )


def write_here(directory: Path, corpus: TextFiles, vocabulary=None, **options):
    vocabulary = vocabulary or ByteVocabulary()
    return writer.write_cache(directory, corpus, vocabulary, workers=1, progress=False, **options)


@pytest.mark.parametrize("name", CORPORA)
@pytest.mark.parametrize("block", [1500, writer.BLOCK_BYTES])
def test_files_are_those_of_one_machine(tmp_path, corpora, monkeypatch, capsys, name, block):
    monkeypatch.setattr(writer, "BLOCK_BYTES", block)
    one = write_here(tmp_path / "one", corpora[name]())
    said = [line for line in capsys.readouterr().err.splitlines() if line]
    many = write(tmp_path / "many", corpora[name]())
    also_said = capsys.readouterr().err.splitlines()
    assert many == one
    assert files_of(tmp_path / "many") == files_of(tmp_path / "one")
    assert [line for line in also_said if not line.startswith("ShuffledWorkers")] == said
    if block < 2000 and name == "mixed":
        assert all(len(info.shards) > 1 for info in many.splits.values())
        assert many.splits["train"].skipped_documents == 2


def test_vocabulary_and_sentences_reach_the_workers(tmp_path, texts, model_file, monkeypatch):
    monkeypatch.setattr(writer, "BLOCK_BYTES", 900)
    vocabulary = SentencePieceVocabulary(model_file)
    corpus = TextFiles([texts / "a.txt", texts / "c.tsv"])
    write_here(tmp_path / "one", corpus, vocabulary, sentences="de")
    write(tmp_path / "many", corpus, vocabulary, sentences="de")
    assert files_of(tmp_path / "many") == files_of(tmp_path / "one")


def test_finished_shards_are_kept_after_a_kill(tmp_path, corpora, monkeypatch):
    monkeypatch.setattr(writer, "BLOCK_BYTES", 1500)
    write_here(tmp_path / "one", corpora["mixed"]())

    class Killed(ShuffledWorkers):
        def grouped(self, title, elements, *, read, write):
            def some(group):
                if len(self.written) > 12:
                    raise KeyboardInterrupt
                write(group)

            super().grouped(title, elements, read=read, write=some)

    with pytest.raises(KeyboardInterrupt):
        write(tmp_path / "many", corpora["mixed"](), workers=Killed())
    assert not Cache.exists(tmp_path / "many")
    before = {
        path.name: path.stat().st_mtime_ns
        for path in (tmp_path / "many").glob("*.arrayrecord")
        if path.with_name(f"{path.name}.json").exists()
    }
    assert len(before) > 8
    tokenised = count_calls(monkeypatch, tokenization, "plain_records")
    manifest = write(tmp_path / "many", corpora["mixed"]())
    after = {name: (tmp_path / "many" / name).stat().st_mtime_ns for name in before}
    assert after == before
    assert files_of(tmp_path / "many") == files_of(tmp_path / "one")
    shards = sum(len(info.shards) for info in manifest.splits.values())
    assert len(tokenised) >= shards - len(before) > 0


def count_calls(monkeypatch, place, name: str) -> list[None]:
    calls: list[None] = []
    function = getattr(place, name)

    def counted(*args, **options):
        calls.append(None)
        return function(*args, **options)

    monkeypatch.setattr(place, name, counted)
    return calls


def test_complete_cache_is_kept_unless_overwritten(tmp_path, texts, corpora):
    corpus = TextFiles([texts / "a.txt"])
    manifest = write(tmp_path / "cache", corpus)

    class Idle(ShuffledWorkers):
        def each(self, title, elements, step):
            raise AssertionError

    assert write(tmp_path / "cache", corpus, workers=Idle()) == manifest
    with pytest.raises(CacheError, match="another text"):
        write(tmp_path / "cache", corpora["lines"]())
    write(tmp_path / "cache", corpora["lines"](), overwrite=True)
    write_here(tmp_path / "one", corpora["lines"]())
    assert files_of(tmp_path / "cache") == files_of(tmp_path / "one")


def test_a_damaged_file_is_named_before_text_is_tokenised(tmp_path, texts):
    (tmp_path / "x.jsonl").write_text('{"text": "good"}\n{"text": "other"}\n{"text": \n')
    corpus = TextFiles([texts / "a.txt", tmp_path / "x.jsonl"])
    with pytest.raises(CorpusError, match=r"x\.jsonl:3 is not one JSON object"):
        write(tmp_path / "cache", corpus)
    assert not list((tmp_path / "cache").glob("*.arrayrecord"))


def test_no_text_is_the_error_of_one_machine(tmp_path):
    (tmp_path / "empty.txt").write_text("\n\n")
    with pytest.raises(CorpusError) as one:
        write_here(tmp_path / "one", TextFiles([tmp_path / "empty.txt"]))
    with pytest.raises(CorpusError) as many:
        write(tmp_path / "many", TextFiles([tmp_path / "empty.txt"]))
    assert str(many.value) == str(one.value)


def test_a_file_that_changes_meanwhile_is_an_error(tmp_path):
    file = tmp_path / "a.txt"
    file.write_text("one\n\ntwo\n\nthree")

    class Slow(ShuffledWorkers):
        def grouped(self, title, elements, *, read, write):
            file.write_text("one\n\ntwo\n\nthree and more")
            super().grouped(title, elements, read=read, write=write)

    with pytest.raises(CacheError, match=r"a\.txt has changed since this command began"):
        write(tmp_path / "cache", TextFiles([file]), workers=Slow())
    assert not Cache.exists(tmp_path / "cache")


def test_an_id_that_the_vocabulary_lacks_is_named(tmp_path, texts, monkeypatch):
    monkeypatch.setattr(ByteVocabulary, "encode_batch", lambda self, texts: [[9999] for _ in texts])
    with pytest.raises(CacheError, match="holds id 9999"):
        write(tmp_path / "cache", TextFiles([texts / "a.txt"]))


def test_files_that_a_worker_does_not_see_are_named(tmp_path):
    file = tmp_path / "a.txt"
    file.write_text("one\n\ntwo\n\nthree")

    class Elsewhere(ShuffledWorkers):
        def each(self, title, elements, step):
            file.rename(tmp_path / "b.txt")
            super().each(title, elements, step)

    with pytest.raises(CorpusError, match=r"a\.txt is not on .*, where a worker runs"):
        write(tmp_path / "cache", TextFiles([file]), workers=Elsewhere())


def test_command_without_beam_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "apache_beam", None)
    monkeypatch.delitem(sys.modules, "apache_beam.options.pipeline_options", raising=False)
    assert main(["cache", "--corpus", "a.txt", "--beam", "--runner=DirectRunner"]) == 1
    assert "--beam needs apache_beam: pip install 't5x_like[beam]'" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--workers=2", "--lengths=inputs=5"])
def test_command_refuses_options_that_beam_does_not_use(monkeypatch, capsys, option):
    monkeypatch.setattr(pipelines, "divided", lambda argv: ([], argv))
    with pytest.raises(SystemExit):
        main(["cache", "--corpus", "a.txt", "--beam", option])
    assert "--beam takes neither --workers" in capsys.readouterr().err


def test_workers_that_do_not_share_the_folder_are_an_error(tmp_path, texts):
    class Elsewhere(ShuffledWorkers):
        def each(self, title, elements, step):
            pass

    with pytest.raises(CacheError, match=r"wrote nothing to .*--cache_dir"):
        write(tmp_path / "cache", TextFiles([texts / "a.txt"]), workers=Elsewhere())


def test_workers_that_leave_out_a_shard_are_an_error(tmp_path, texts, monkeypatch):
    monkeypatch.setattr(writer, "BLOCK_BYTES", 300)

    class Lazy(ShuffledWorkers):
        def grouped(self, title, elements, *, read, write):
            super().grouped(
                title, elements, read=read, write=lambda group: group[0] == 2 or write(group)
            )

    with pytest.raises(CacheError, match=r"1 of the 7 shards are not done, such as train-00001\."):
        write(tmp_path / "cache", TextFiles([texts / "a.txt"]), workers=Lazy())


@pytest.mark.parametrize("fault", ["first", "last", "twice"])
def test_a_runner_that_loses_or_repeats_text_is_found_out(tmp_path, texts, monkeypatch, fault):
    monkeypatch.setattr(writer, "BLOCK_BYTES", 20_000)

    class Forgetful(ShuffledWorkers):
        def grouped(self, title, elements, *, read, write):
            def lose(group):
                key, found = group[0], sorted(group[1], key=lambda text: text[0])
                if len(found) > 1:
                    found = {"first": found[1:], "last": found[:-1], "twice": found * 2}[fault]
                write((key, found))

            super().grouped(title, elements, read=read, write=lose)

    with pytest.raises(CacheError, match=r"has lost text of .*, or given it twice"):
        write(tmp_path / "cache", TextFiles([texts / "[ae].txt"]), workers=Forgetful())
    assert not Cache.exists(tmp_path / "cache")


def test_an_upload_that_is_lost_is_an_error(texts, bucket, monkeypatch):
    upload = storage.upload

    def losing(url, local):
        if not url.endswith("train-00000.arrayrecord"):
            upload(url, local)

    monkeypatch.setattr(storage, "upload", losing)
    with pytest.raises(OSError, match=r"does not have train-00000\.arrayrecord as written"):
        write(staging.local(bucket), TextFiles([texts / "a.txt"]))


def test_a_shard_of_another_text_does_not_pass_for_one_that_is_left_out(tmp_path, texts):
    class Idle(ShuffledWorkers):
        def grouped(self, title, elements, *, read, write):
            pass

    write_here(tmp_path / "cache", TextFiles([texts / "c.tsv"]))
    (tmp_path / "cache" / "manifest.json").unlink()
    with pytest.raises(CacheError, match="2 of the 2 shards are not done"):
        write(tmp_path / "cache", TextFiles([texts / "a.txt"]), workers=Idle())


def test_other_corpora_are_refused(make_corpus):
    with pytest.raises(ValueError, match="'memory' is not text in files"):
        cache_writer.files_of(make_corpus(["a"]), "memory")

    class Reversed(TextFiles):
        def read(self, split, report):
            yield from reversed([*super().read(split, report)])

    with pytest.raises(ValueError, match="is not text in files"):
        cache_writer.files_of(Reversed("a.txt"), "reversed")


def test_survey_is_read_back(texts):
    (reading,) = survey.readings(TextFiles([texts / "*"]), block=1000)
    found = reading.survey(texts / "e.txt")
    again = Survey.from_bytes(found.to_bytes())
    assert again.report == found.report
    assert (again.report.skipped, again.report.skipped_lines) == (1, 0)
    assert {split: sizes.tolist() for split, sizes in again.sizes.items()} == {
        split: sizes.tolist() for split, sizes in found.sizes.items()
    }


def test_place_fills_blocks():
    place = Place()
    filled = [place.add(size, block=10) for size in (4, 5, 1, 12, 3)]
    assert filled == [False, False, True, True, False]
    assert (place, place.shards) == (Place(2, 3), 3)
    assert np.sum(filled) == place.shard


@pytest.fixture
def bucket(tmp_path, monkeypatch):
    """The address of a folder of a bucket in this process's memory."""
    monkeypatch.setenv(staging.FOLDER, str(tmp_path / "staged"))
    url = f"memory://{tmp_path.name}/caches"
    yield url
    storage.remove(url)


def objects_of(url: str) -> dict[str, bytes]:
    return {name: storage.read(f"{url}/{name}") for name in storage.files_below(url)}


def test_cache_in_a_bucket_is_that_on_a_disk(tmp_path, corpora, bucket, monkeypatch):
    monkeypatch.setattr(writer, "BLOCK_BYTES", 20_000)
    write_here(tmp_path / "one", corpora["mixed"]())
    place = staging.local(bucket)
    manifest = write(place, corpora["mixed"]())
    assert objects_of(bucket) == files_of(tmp_path / "one")
    assert Cache.open(bucket).manifest == manifest
    write(place, corpora["lines"](), overwrite=True)
    write_here(tmp_path / "lines", corpora["lines"]())
    assert objects_of(bucket) == files_of(tmp_path / "lines")


def test_finished_shards_in_a_bucket_are_kept(tmp_path, corpora, bucket, monkeypatch):
    monkeypatch.setattr(writer, "BLOCK_BYTES", 1500)
    write_here(tmp_path / "one", corpora["lines"]())

    class Killed(ShuffledWorkers):
        def grouped(self, title, elements, *, read, write):
            super().grouped(title, elements, read=read, write=write)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write(staging.local(bucket), corpora["lines"](), workers=Killed())
    storage.remove(f"{bucket}/train-00001.arrayrecord.json")
    storage.write(f"{bucket}/train-00002.arrayrecord", b"truncated")
    tokenised = count_calls(monkeypatch, ShardPlan, "write_packed")
    write(staging.local(bucket), corpora["lines"]())
    assert len(tokenised) == 2
    assert objects_of(bucket) == files_of(tmp_path / "one")
