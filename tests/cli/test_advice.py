"""What a mistake is answered with leads to what was meant."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from tiny_run import ROOT

from t5x_like.data.corpora import registry
from t5x_like.data.seqio import registered_tasks


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("show mlm", "nearest: stdlib_docs.mlm."),
        ("show mlm_nps", "nearest: stdlib_docs.mlm_nsp, "),
        ("show stdlib_doc.mlm", "nearest: stdlib_docs.mlm, "),
        ("train --gin.CORPUS=data.txt", "--gin.CORPUS=data.txt: a string needs its own quotes"),
        ("train --gin.CORPUS='a", ": a string needs its own quotes, as in"),
        ("train --batch_sise=5", "--batch_sise=5; a setting of a run is given as --batch_size=5"),
        ("train --steps 7", "--steps 7; a setting of a run is given as --train_steps=7"),
        ("train --eval_perod 7", "a setting of a run is given as --gin.EVAL_PERIOD=7"),
        ("train --eval_perod --seed 7", "a setting of a run is given as --gin.EVAL_PERIOD=VALUE"),
        ("train --corpus stdlib_docs", "it is the name of a corpus; give it as the task, --task"),
        ("train --module no_such --task a", "MIXTURE_OR_TASK_MODULE='no_such'"),
        ("train --process_count=2", "in place of T5X's process_count there is --num_processes"),
        (
            "train --gin.MODEL_DIR='{tmp}' --gin.train/utils.DatasetConfig.batch_size=8",
            "in place of T5X's DatasetConfig.batch_size there is BATCH_SIZE (or --batch_size)",
        ),
        (
            "train --gin.MODEL_DIR='{tmp}' --gin.partitioning.PjitPartitioner.num_partitions=2",
            "in place of T5X's PjitPartitioner.num_partitions there is --mesh",
        ),
        ("train --reciep bert-mini", "--reciep bert-mini; nearest: --recipe\n"),
        ("train --tracker wandb", "the tracker Wandb needs wandb: pip install wandb\n"),
        ("trian", "no command 'trian'; nearest: train\n"),
        ("infer", "no command 'infer': it is `t5x_like predict` here"),
        (
            "finetune runs/x",
            "say what there is to learn: training files (train), or a task by its name (task)",
        ),
        ("eval nope", "nope holds no run: it is not there"),
        ("predict nope --k 3 text more", "nope holds no run: it is not there"),
        ("predict nope --input no.txt", "there is no file no.txt of inputs"),
        ("recipes betr-mini", "no recipe 'betr-mini'; nearest: bert-mini, "),
        ("train --learning-rat", "--learning-rat; nearest: --learning_rate\n"),
        ("train --zzz", "unrecognized arguments: --zzz\n"),
        ("import --from bert-base-uncased --to x", "`hf download bert-base-uncased --local-dir "),
        (
            "train --gin_file=bert_tiny --gin_file=runs/pretrain.gin --gin.CORPUS='{tmp}/t.txt' "
            "--gin.MODEL_DIR='{tmp}/run'",
            "the kinds do not fit: examples of SpanCorruption",
        ),
        (
            "train --recipe bert-mini --gin.CORPUS='{tmp}/t.tsv' --gin.MODEL_DIR='{tmp}/run'",
            "first line must name the columns, but it is ['Zwei', 'Two']. Add a line with 'text'",
        ),
    ],
)
def test_advice(cli, tmp_path, monkeypatch, command: str, said: str) -> None:
    monkeypatch.chdir(tmp_path)
    # Names that other tests of this process have registered are near, too.
    monkeypatch.setenv("T5X_LIKE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(registry, "names", lambda: ["stdlib_docs"])
    monkeypatch.setattr(registered_tasks, "registered_names", list)
    (tmp_path / "t.txt").write_text("a b c\n\n" * 30)
    (tmp_path / "t.tsv").write_text("Zwei\tTwo\nDrei\tThree\n")
    result = cli(*command.format(tmp=tmp_path).split())
    assert result.status in (1, 2)
    assert said in result.err
    assert "<ast." not in result.err
    assert "training a" not in result.out  # no work before the files are looked at


@pytest.mark.slow
def test_a_closed_pipe_is_no_error() -> None:
    command = f"{sys.executable} -m t5x_like.cli.main recipes | head -c 1"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
