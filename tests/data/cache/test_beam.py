"""The cache that Apache Beam makes, where it is installed: that of one machine, byte by byte."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from t5x_like.cli.main import main
from t5x_like.data.cache import writer
from t5x_like.data.cache.beam import cache_writer, pipelines
from t5x_like.data.cache.reader import Cache
from t5x_like.vocabularies.sentencepiece import SentencePieceVocabulary

pytest.importorskip("apache_beam")
# Beam's own warnings.
pytestmark = pytest.mark.filterwarnings("default")

IN_MEMORY = ["--runner=DirectRunner", "--direct_running_mode=in_memory"]


def digests(directory: Path) -> dict[str, str]:
    return {
        str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in directory.rglob("*")
        if path.name != ".writing" and path.is_file()
    }


@pytest.mark.parametrize("name", ["mixed", "validation files", "pairs"])
def test_files_are_those_of_one_machine(tmp_path, corpora, model_file, monkeypatch, name):
    monkeypatch.setattr(writer, "BLOCK_BYTES", 40_000)
    vocabulary = SentencePieceVocabulary(model_file)
    one = writer.write_cache(tmp_path / "one", corpora[name](), vocabulary, progress=False)
    many = cache_writer.write_cache(
        tmp_path / "many", corpora[name](), vocabulary, workers=pipelines.Pipelines(IN_MEMORY)
    )
    assert many == one
    assert digests(tmp_path / "many") == digests(tmp_path / "one")


def test_command_makes_the_cache_that_training_finds(tmp_path, texts, model_file, capfd):
    arguments = ["cache", "--corpus", str(texts / "*"), "--vocabulary", str(model_file)]
    one, many = tmp_path / "one", tmp_path / "many"
    assert main([*arguments, "--cache_dir", str(one), "--workers", "1"]) == 0
    said = capfd.readouterr().out
    assert main([*arguments, "--cache_dir", str(many), "--beam", *IN_MEMORY]) == 0
    out, err = capfd.readouterr()
    assert out.replace(str(many), str(one)) == said
    assert "DirectRunner: reading 7 files" in err
    assert digests(many) == digests(one)
    (found,) = (many / "tokens").iterdir()
    assert Cache.exists(found)


def test_damaged_file_is_one_message(tmp_path, model_file, capfd):
    (tmp_path / "x.jsonl").write_text('{"text": "a"}\n{"text": "b"}\n{"texts": "c"}\n')
    arguments = ["--corpus", str(tmp_path / "x.jsonl"), "--vocabulary", str(model_file)]
    arguments += ["--cache_dir", str(tmp_path / "caches"), "--beam", *IN_MEMORY]
    assert main(["cache", *arguments]) == 1
    err = capfd.readouterr().err
    assert f"error: {tmp_path}/x.jsonl:3 has no field 'text'" in err
    assert "Traceback" not in err


def test_step_that_fails_is_one_message(tmp_path, texts):
    def fail(source):
        raise OSError("the disk is full")

    with pytest.raises(pipelines.BeamError, match="DirectRunner failed at the step 'survey'"):
        pipelines.Pipelines(IN_MEMORY).each("survey", [1, 2], fail)


def test_options_of_beam_are_taken_out():
    of_beam, ours = pipelines.divided(
        "mine --beam --direct_num_workers 3 --module m.py --runner=FlinkRunner --parallelism=4 "
        "--dask_client_address=here:1 --unknown 3".split()
    )
    assert of_beam == (
        "--direct_num_workers 3 --runner=FlinkRunner --parallelism=4 "
        "--dask_client_address=here:1".split()
    )
    assert ours == "mine --beam --module m.py --unknown 3".split()


def test_unknown_options_and_runners_are_errors(capsys):
    with pytest.raises(SystemExit):
        main(["cache", "stdlib_docs", "--beam", "--regionn=here"])
    assert "unrecognized arguments: --regionn=here" in capsys.readouterr().err
    with pytest.raises(ValueError, match="--runner=NoRunner"):
        pipelines.Pipelines(["--runner=NoRunner"])
    with pytest.raises(ValueError, match="multi_threading loses elements"):
        pipelines.Pipelines(["--direct_running_mode=multi_threading"])


def test_dataflow_needs_a_bucket_before_any_work(tmp_path, texts, capsys):
    arguments = ["cache", "--corpus", str(texts / "a.txt"), "--cache_dir", str(tmp_path)]
    assert main([*arguments, "--beam", "--runner=DataflowRunner"]) == 1
    assert "Dataflow's machines do not see" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_text_outside_files_is_refused_before_any_work(tmp_path, capsys):
    arguments = ["cache", "stdlib_docs", "--cache_dir", str(tmp_path), "--beam", *IN_MEMORY]
    assert main(arguments) == 1
    assert "'stdlib_docs' is not text in files" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
