from __future__ import annotations

import gzip
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from t5x_like.data.cache import tokenization, writer
from t5x_like.data.cache.format import CacheError
from t5x_like.data.cache.reader import Cache
from t5x_like.data.cache.writer import write_cache
from t5x_like.data.corpora.corpus import CorpusError
from t5x_like.data.corpora.text_files import TextFiles
from t5x_like.vocabularies.byte import ByteVocabulary
from t5x_like.vocabularies.learning.sentencepiece_training import train_sentencepiece
from t5x_like.vocabularies.sentencepiece import SentencePieceVocabulary

VOCABULARY = ByteVocabulary()


def files_of(directory: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in directory.iterdir() if p.name != ".writing"}


def write(directory: Path, corpus, **options):
    options = {"workers": 1, "progress": False} | options
    return write_cache(directory, corpus, VOCABULARY, **options)


def test_cache_holds_every_document_in_order(tmp_path, make_corpus, monkeypatch):
    monkeypatch.setattr(writer, "BLOCK_BYTES", 300)
    monkeypatch.setattr(tokenization, "PIECE_TOKENS", 64)
    texts = [f"document {i}\n" * (1 + i % 9) for i in range(40)]
    manifest = write(tmp_path, make_corpus(texts, ["held out"]))
    split = Cache.open(tmp_path).split("train")
    info = manifest.splits["train"]
    assert len(info.shards) > 5
    assert (info.documents, info.records) == (40, len(split))
    found = []
    for i in range(len(split)):
        if split.new_document[i]:
            found.append("")
        found[-1] += VOCABULARY.decode(split.record(i)["targets"])
    assert found == texts
    assert info.tokens == {"targets": sum(map(len, texts))}
    lengths = [len(split.record(i)["targets"]) for i in range(len(split))]
    assert split.lengths("targets").tolist() == lengths
    assert max(lengths) == 64
    joined = "".join(texts)
    assert (
        split.counts["targets"].tolist()
        == np.bincount(VOCABULARY.encode(joined), minlength=VOCABULARY.vocab_size).tolist()
    )


def test_text_to_text_keeps_pairs(tmp_path, make_corpus):
    pairs = [{"inputs": f"q {i}", "targets": "a" * (i + 1)} for i in range(5)]
    write(tmp_path, make_corpus(pairs, pairs[:1]))
    split = Cache.open(tmp_path).split("train")
    for i, pair in enumerate(pairs):
        record = split.record(i)
        assert {name: VOCABULARY.decode(ids) for name, ids in record.items()} == pair
    assert split.offsets["inputs"].tolist() == [0, 3, 6, 9, 12, 15]
    assert split.offsets["targets"].tolist() == [0, 1, 3, 6, 10, 15]


@pytest.mark.parametrize("native", [False, True], ids=["processes", "threads"])
def test_number_of_workers_changes_no_byte(tmp_path, make_corpus, monkeypatch, native):
    monkeypatch.setattr(writer, "BLOCK_BYTES", 2000)
    monkeypatch.setattr(tokenization, "_BATCH_CHARACTERS", 300)
    texts = [f"text {i}\n" * (1 + i % 20) for i in range(120)]
    corpus = make_corpus(texts, ["held out"])
    vocabulary = ByteVocabulary()
    if native:
        path = tmp_path / "tiny.model"
        train_sentencepiece(texts, path, vocab_size=24, model_type="unigram", progress=False)
        vocabulary = SentencePieceVocabulary(path)
    for name, workers in {"one": 1, "several": 3}.items():
        write_cache(tmp_path / name, corpus, vocabulary, workers=workers, progress=False)
    assert len(list((tmp_path / "one").glob("train-*.arrayrecord"))) > 4
    assert files_of(tmp_path / "one") == files_of(tmp_path / "several")


def test_complete_cache_is_left_alone_unless_overwritten(tmp_path, make_corpus):
    write(tmp_path, make_corpus(["one"], ["x"]))
    before = {p.name: p.stat().st_mtime_ns for p in tmp_path.iterdir()}
    write(tmp_path, make_corpus(["one"], ["x"]))
    after = {p.name: p.stat().st_mtime_ns for p in tmp_path.iterdir()}
    assert after | {".writing": 0} == before | {".writing": 0}
    with pytest.raises(CacheError, match="another text"):
        write(tmp_path, make_corpus(["two"], ["x"]))
    write(tmp_path, make_corpus(["two"], ["x"]), overwrite=True)
    assert VOCABULARY.decode(Cache.open(tmp_path).split("train").record(0)["targets"]) == "two"


def test_overwriting_leaves_nothing_of_a_longer_corpus(tmp_path, make_corpus, monkeypatch):
    monkeypatch.setattr(writer, "BLOCK_BYTES", 10)
    write(tmp_path / "a", make_corpus([f"document {i}" for i in range(9)], ["x"]))
    short = make_corpus(["just this one"], ["x"])
    write(tmp_path / "a", short, overwrite=True)
    write(tmp_path / "b", short)
    assert files_of(tmp_path / "a") == files_of(tmp_path / "b")


def test_no_text_for_training_is_an_error(tmp_path, make_corpus):
    with pytest.raises(CorpusError, match="no text in split 'train'"):
        write(tmp_path, make_corpus([], ["x"]))
    assert not Cache.exists(tmp_path)


def test_text_without_tokens_is_an_error(tmp_path, make_corpus):
    class Deaf(ByteVocabulary):
        def encode(self, text: str) -> list[int]:
            return []

        def encode_batch(self, texts):
            return [[] for _ in texts]

    with pytest.raises(CacheError, match="split 'train' has no tokens"):
        write_cache(tmp_path, make_corpus(["a"], ["b"]), Deaf(), workers=1, progress=False)
    assert not Cache.exists(tmp_path)


def test_too_few_documents_to_hold_out_give_an_empty_split(tmp_path):
    (tmp_path / "one.txt").write_text("a single document")
    manifest = write(tmp_path / "cache", TextFiles(tmp_path / "one.txt"))
    assert manifest.splits["validation"].records == 0
    split = Cache.open(tmp_path / "cache").split("validation")
    assert len(split) == len(split.new_document) == 0
    assert split.offsets["targets"].tolist() == [0]


def test_a_damaged_validation_file_is_an_error_not_a_shorter_split(tmp_path):
    (tmp_path / "train.txt").write_text("some text")
    held_out = gzip.compress("".join(f"held out {i}\n\n" for i in range(2000)).encode())
    (tmp_path / "held.txt.gz").write_bytes(held_out[: len(held_out) // 2])
    corpus = TextFiles(tmp_path / "train.txt", validation_files=tmp_path / "held.txt.gz")
    with pytest.raises(CorpusError, match=r"held\.txt\.gz"):
        write_cache(tmp_path / "cache", corpus, ByteVocabulary(), progress=False)
    assert not Cache.exists(tmp_path / "cache")


def test_missing_validation_files_are_an_error(tmp_path):
    (tmp_path / "one.txt").write_text("a single document")
    corpus = TextFiles(tmp_path / "one.txt", validation_files=tmp_path / "none*.txt")
    with pytest.raises(CorpusError, match="no file matches"):
        write(tmp_path / "cache", corpus)


def test_undecodable_documents_are_counted_and_reported(tmp_path, capsys):
    lines = b"".join(b"line %d\n" % i for i in range(30)) + b"bad \xff\n"
    (tmp_path / "lines.txt").write_bytes(lines)
    corpus = TextFiles(tmp_path / "lines.txt", separator="line", validation=0.0)
    manifest = write(tmp_path / "cache", corpus)
    assert manifest.splits["train"].skipped_documents == 1
    assert manifest.splits["train"].documents == 30
    assert "skipped 1 of 31 documents: invalid UTF-8" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "content", "unread"),
    [
        ("a.tsv", "text\tlabel\none\t1\n", "label"),
        ("a.jsonl", '{"url": "u", "text": "one", "n": 1}\n', "url, n"),
        ("a.csv", "inputs,targets,text\na,b,c\n", "text"),
        ("a.tsv", "inputs\ttargets\na\tb\n", ""),
        ("a.txt", "text\tlabel\n", ""),
    ],
)
def test_columns_that_are_not_read_are_named(name, content, unread, tmp_path, capsys):
    (tmp_path / name).write_text(content)
    write(tmp_path / "cache", TextFiles(tmp_path / name, validation=0.0))
    said = capsys.readouterr().err
    assert (f"a: these columns are not read: {unread}. " in said) == bool(unread)
    assert ("not read" in said) == bool(unread)


def test_id_outside_the_vocabulary_is_an_error(tmp_path, make_corpus):
    class Wrong(ByteVocabulary):
        def encode_batch(self, texts):
            return [[300] for _ in texts]

    with pytest.raises(CacheError, match="id 300, but its vocabulary has ids 0 to 258"):
        write_cache(tmp_path, make_corpus(["a"], ["b"]), Wrong(), workers=1, progress=False)


KILLED = """
import multiprocessing, os, signal, sys, time
from pathlib import Path
from t5x_like.data.cache import writer
from t5x_like.data.corpora.text_files import TextFiles
from t5x_like.vocabularies.byte import ByteVocabulary

class Killing(TextFiles):
    # Once some shards are done, and others are not, the writer is killed.
    def read(self, split, report):
        for i, document in enumerate(super().read(split, report)):
            if sys.argv[3] == "kill" and i == 300:
                while len(list(Path(sys.argv[2]).glob("*.json"))) < 3:
                    time.sleep(0.01)
                print(*(child.pid for child in multiprocessing.active_children()), flush=True)
                os.kill(os.getpid(), signal.SIGKILL)
            yield document

if __name__ == "__main__":
    writer.BLOCK_BYTES = 2000
    corpus = Killing(sys.argv[1], separator="line")
    writer.write_cache(sys.argv[2], corpus, ByteVocabulary(), workers=2, progress=False)
"""


def alive(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


@pytest.mark.slow
def test_killed_writer_goes_on_with_what_it_had_not_finished(tmp_path):
    (tmp_path / "killed.py").write_text(KILLED)
    text = tmp_path / "text.txt"
    text.write_text("".join(f"document number {i} of this text\n" for i in range(600)))

    def run(directory: str, kill: str) -> subprocess.CompletedProcess:
        command = [sys.executable, str(tmp_path / "killed.py"), str(text)]
        return subprocess.run(
            [*command, str(tmp_path / directory), kill], capture_output=True, text=True, check=False
        )

    killed = run("a", "kill")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    workers = [int(word) for word in killed.stdout.split()]
    assert workers
    for _ in range(600):
        if any(map(alive, workers)):
            time.sleep(0.05)
    assert not any(map(alive, workers))
    done = {p.name: p.stat().st_mtime_ns for p in (tmp_path / "a").glob("*.arrayrecord.json")}
    shards = {name.removesuffix(".json") for name in done}
    times = {name: os.stat(tmp_path / "a" / name).st_mtime_ns for name in shards}
    assert not Cache.exists(tmp_path / "a")
    assert run("a", "go").returncode == 0
    assert {n: os.stat(tmp_path / "a" / n).st_mtime_ns for n in shards} == times
    assert run("b", "go").returncode == 0
    assert len(files_of(tmp_path / "b")) > len(shards) + 6
    assert files_of(tmp_path / "a") == files_of(tmp_path / "b")


def test_caching_needs_neither_tensorflow_nor_jax(tmp_path, without_tensorflow):
    (tmp_path / "text.txt").write_text("one\n\ntwo\n\nthree")
    without_tensorflow(
        """
import sys
from t5x_like.data.cache.reader import Cache
from t5x_like.data.cache.writer import write_cache
from t5x_like.data.corpora.text_files import TextFiles
from t5x_like.vocabularies.byte import ByteVocabulary
write_cache(sys.argv[2], TextFiles(sys.argv[1]), ByteVocabulary(), workers=1, progress=False)
assert len(Cache.open(sys.argv[2]).split("train"))
assert "jax" not in sys.modules and "grain" not in sys.modules
""",
        str(tmp_path / "text.txt"),
        str(tmp_path / "cache"),
    )
