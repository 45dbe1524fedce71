from __future__ import annotations

import copy
import json
import pickle
import threading

import numpy as np
import pytest

from t5x_like.data.cache import format, writer
from t5x_like.data.cache.format import CacheError
from t5x_like.data.cache.reader import Cache
from t5x_like.vocabularies.byte import ByteVocabulary

ENCODE = ByteVocabulary().encode
TEXTS = [f"document {i}" * (i % 5 + 1) for i in range(50)]


def test_vocabulary_and_ids_come_with_the_cache(make_cache):
    opened = make_cache(TEXTS)
    assert opened.vocabulary == ByteVocabulary()
    assert opened.token_ids == ByteVocabulary().token_ids
    for array in ("word_starts", "full_stops"):
        expected = getattr(ByteVocabulary().token_ids, array)
        assert getattr(opened.token_ids, array).tolist() == expected.tolist()
    expected = np.bincount(ENCODE("".join(TEXTS)), minlength=ByteVocabulary().vocab_size)
    assert opened.token_ids.counts.tolist() == expected.tolist()


@pytest.mark.parametrize("name", ["train-00000.arrayrecord", "train.offsets.npy"])
def test_truncated_file_is_refused_at_opening(make_cache, name):
    directory = make_cache(TEXTS).directory
    data = (directory / name).read_bytes()
    (directory / name).write_bytes(data[:-1])
    with pytest.raises(CacheError, match=rf"{name} is truncated: .* bytes.*t5x_like cache"):
        Cache.open(directory)
    (directory / name).unlink()
    with pytest.raises(CacheError, match=f"{name} is missing"):
        Cache.open(directory)


def test_damage_inside_a_file_is_found_when_it_is_read(make_cache):
    directory = make_cache(["some text " * 500]).directory
    path = directory / "train-00000.arrayrecord"
    data = bytearray(path.read_bytes())
    middle = slice(len(data) // 2, len(data) // 2 + 200)
    data[middle] = bytes(byte ^ 255 for byte in data[middle])
    path.write_bytes(data)
    split = Cache.open(directory).split("train")
    with pytest.raises(CacheError, match="damaged at record 0"):
        split.record(0)
    with pytest.raises(CacheError, match="damaged at record 0"):
        split.joined(0, len(split), "targets")


def test_a_change_of_any_file_but_records_is_found_when_a_cache_is_opened(make_cache):
    directory = make_cache(TEXTS).directory
    small = [path for path in sorted(directory.iterdir()) if path.suffix in (".json", ".npy")]
    assert len(small) > 5
    for path in small:
        whole = path.read_bytes()
        for place in range(0, len(whole), max(1, len(whole) // 7)):
            changed = bytearray(whole)
            changed[place] ^= 1
            path.write_bytes(changed)
            with pytest.raises(CacheError, match=f"{path.name} (is damaged|cannot be read)|format"):
                Cache.open(directory)
        path.unlink()
        with pytest.raises(CacheError, match=f"{path.name}"):
            Cache.open(directory)
        path.write_bytes(whole)
    Cache.open(directory)


WRONG = (None, True, -1, 10**12, 10**30, 1.5, "x", "../x", [], [1], {}, {"x": 1})
# What only people read, or another cache may have too.
SAYS_NOTHING_OF_THE_FILES = {
    *("corpus", "corpus_fingerprint", "content_hash", "vocabulary", "vocabulary_fingerprint"),
    *("segmentation", "piece_tokens", "seqio_task", "materialized"),
    *("skipped_documents", "sha256", "named", "pad", "eos", "unk", "bos", "cls", "sep", "mask"),
    "sentinels",
}


def places(value, path=()):
    """The path of each value in nested JSON."""
    yield path
    names = (
        value if isinstance(value, dict) else range(len(value) if isinstance(value, list) else 0)
    )
    for name in names:
        yield from places(value[name], (*path, name))


def test_a_manifest_of_other_types_or_of_other_files_is_refused(make_cache):
    """Each field in turn, in a manifest whose digest is right: anybody can compute it."""
    directory = make_cache(TEXTS[:5]).directory
    file = directory / "manifest.json"
    right = json.loads(file.read_bytes())
    del right["sha256"]
    believed = set()
    for path in places(right):
        for wrong in WRONG:
            fields = copy.deepcopy(right)
            node = fields
            for name in path[:-1]:
                node = node[name]
            if not path or path == ("version",) or node[path[-1]] == wrong:
                continue
            node[path[-1]] = wrong
            file.write_text(json.dumps({**fields, "sha256": format._digest(fields)}))
            try:
                Cache.open(directory)
            except CacheError as error:
                refused = str(error)
            else:
                refused = ""
            if not (str(directory) in refused or SAYS_NOTHING_OF_THE_FILES & {*path}):
                believed.add((path, repr(wrong)))
    assert believed == set()


@pytest.mark.parametrize(("begin", "end"), [(3, 45), (0, 50), (7, 7), (49, 50)])
def test_records_that_are_read_together_are_the_same(make_cache, monkeypatch, begin, end):
    monkeypatch.setattr(writer, "BLOCK_BYTES", 200)
    split = make_cache(TEXTS).split("train")
    assert len(split.info.shards) > 2
    joined = split.joined(begin, end, "targets")
    some = range(begin, end)
    assert joined.values.tolist() == [t for i in some for t in split.record(i)["targets"].tolist()]
    assert joined.segments.tolist() == [s for i in some for s in split.segments(i).tolist()]
    assert joined.counts.tolist() == [len(split.segments(i)) for i in some]


def test_cache_of_something_else_is_refused(make_cache):
    opened = make_cache(TEXTS)
    manifest = opened.manifest
    Cache.open(
        opened.directory,
        corpus_fingerprint=manifest.corpus_fingerprint,
        vocabulary_fingerprint=manifest.vocabulary_fingerprint,
    )
    with pytest.raises(CacheError, match="of another text"):
        Cache.open(opened.directory, corpus_fingerprint="other")
    with pytest.raises(CacheError, match="another vocabulary"):
        Cache.open(opened.directory, vocabulary_fingerprint="other")


def test_unknown_split_and_record_are_errors(make_cache):
    opened = make_cache(TEXTS)
    with pytest.raises(CacheError, match="no split 'test', only train, validation"):
        opened.split("test")
    with pytest.raises(IndexError, match="no record 50 among 50"):
        opened.split("train").record(50)


def test_split_pickles_as_its_address(make_cache):
    split = make_cache(["long " * 4000]).split("train")
    assert len(split.offsets["targets"]) > 1
    split.record(0)
    data = pickle.dumps(split)
    assert len(data) < 4000
    again = pickle.loads(data)
    assert again.record(0)["targets"].tolist() == split.record(0)["targets"].tolist()


def test_threads_share_a_split_with_few_open_shards(make_cache, monkeypatch):
    from t5x_like.data.cache import reader, writer

    monkeypatch.setattr(reader, "_OPEN_SHARDS", 2)
    monkeypatch.setattr(writer, "BLOCK_BYTES", 100)
    split = make_cache(TEXTS).split("train")
    assert len(split.info.shards) > 5
    expected = [ByteVocabulary().encode(text) for text in TEXTS]
    wrong: list[int] = []

    def read(seed: int) -> None:
        for i in np.random.default_rng(seed).integers(0, len(split), 300).tolist():
            if split.record(i)["targets"].tolist() != expected[i]:
                wrong.append(i)

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_segments_are_kept(make_cache):
    split = make_cache(["one\ntwo\n\nthree"]).split("train")
    assert split.segments(0).tolist() == [0, 4, 9]


def test_records_as_they_are_stored(make_cache):
    pairs = [{"inputs": "i" * i, "targets": "t" * (3 - i)} for i in range(4)]
    split = make_cache(pairs, pairs[:1]).split("train")
    for i in (2, 2, 0, 3, 1):
        for name, values in split.record(i).items():
            stored = split.raw_feature(i, name)
            assert (stored.tolist(), stored.dtype) == (values.tolist(), np.uint16)
            assert not stored.flags.writeable
    with pytest.raises(KeyError, match="no feature 'other', only inputs, targets"):
        split.raw_feature(0, "other")
