"""Steps on GPUs: refusal without one, the choice of the batch, the table; a run on the CPU."""

from __future__ import annotations

import importlib.util
import json

import gpu
import gpu_attention
import gpu_compiled
import gpu_steps
import pytest

from t5x_like.config import gin_files

ROW = {
    "model": "bert_large",
    "phase": 1,
    "lengths": {"inputs": 512, "targets": 114},
    "rows": 64,
    "median_seconds": 0.25,
    "tokens_per_second": 123_456.7,
    "flops_per_second": 2.5e14,
    "share": 0.5678,
    "peak_bytes": 61.25e9,
}


def test_without_a_gpu_nothing_is_measured(monkeypatch, capsys):
    asked = []
    monkeypatch.setattr(gpu, "in_own_process", lambda function: asked.append(function) or "cpu")
    assert gpu.main([]) == 2
    assert asked == [gpu_steps.platform]
    output = capsys.readouterr()
    assert (output.out, output.err) == ("", "JAX finds no GPU on this machine, only a CPU.\n")


def test_steps_are_compiled_for_absent_gpus_with_the_plug_in_for_cuda_alone():
    line = gpu_compiled.compiled("h100", "electra_base", 0, "automatic")
    if importlib.util.find_spec("jax_cuda12_plugin"):
        assert line is not None
        assert line["triton_calls"] >= 3
    else:
        assert line is None


@pytest.mark.slow
def test_every_way_to_compute_attention_stands_beside_plain(capsys):
    assert gpu_attention.main(["--tokens=64"]) == 2
    flags = "--allow_cpu --tokens 32 --lengths 16 --heads 1 --width 16 --times 1"
    assert gpu_attention.main(flags.split()) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()[2:]]
    assert [line[1:-5] for line in lines] == [[], ["dropout"], ["bias"], ["bias", "dropout"]]
    for line in lines:
        plain, blocked, fused, gpu_kernel = line[-4:]
        assert float(line[-5]) > 0
        assert plain == "1.00"
        assert float(blocked) > 0
        assert (fused == "-") == ("dropout" in line)
        assert gpu_kernel == "-"


def test_batch_is_halved_until_it_fits():
    tried = []

    def attempt(case):
        rows = case.rows or 256
        tried.append(rows)
        if rows > 64:
            raise gpu_steps.OutOfMemoryError(rows)
        return {"rows": rows}

    case = gpu_steps.Case("bert_large", phase=0, steps=1)
    assert gpu_steps.largest_batch(case, attempt) == {"rows": 64}
    assert tried == [256, 128, 64]
    with pytest.raises(gpu_steps.OutOfMemoryError):
        gpu_steps.largest_batch(case._replace(rows=128), attempt)
    assert tried[3:] == [128]


def test_batch_is_that_of_a_microbatch_of_each_device(monkeypatch):
    (first, _) = gpu_steps.load("bert-mini", ())
    options = gpu_steps.with_rows(first, 4).options
    assert (options.batch_size, options.microbatches) == (4 * first.layout.batch_shards, 1)
    monkeypatch.setattr("t5x_like.runs.memory.microbatches.usable_bytes", lambda device: 1e9)
    rows = gpu_steps.with_rows(first, None).options.batch_size // first.layout.batch_shards
    assert 1 < rows < gpu_steps.MOST_ROWS
    assert rows & (rows - 1) == 0


def test_lines_stand_below_the_header():
    ends = [gpu.HEADER.index(name) + len(name) for name in gpu.HEADER.split()[1:5]]
    cells = [gpu.line(ROW)[:end].split()[-1] for end in ends]
    assert cells == ["512+114", "64", "250.0", "123,457"]
    assert gpu.line(ROW).split()[5:] == ["250", "56.8%", "61.2", "88,832"]
    other = {**ROW, "model": "bert-mini", "peak_bytes": None}
    assert gpu.line(other).split()[5:] == ["250", "56.8%", "none", "known"]


def test_published_figures_are_of_measured_recipes():
    assert {recipe for recipe, _ in gpu.PUBLISHED} == set(gpu.MODELS)
    assert gin_files.published_recipes().keys() >= set(gpu.MODELS)


@pytest.mark.parametrize("flags", ["--models bert_huge", "--rows 0", "--steps 0", "--gin.X", "-x"])
def test_wrong_arguments_are_named(flags, capsys):
    with pytest.raises(SystemExit):
        gpu.parse(flags.split())
    assert flags.split()[0] in capsys.readouterr().err


@pytest.mark.slow
def test_small_recipe_on_the_cpu(tmp_path, capsys):
    """All of it, in processes of its own: ELECTRA has every kind of array in its rows."""
    file = tmp_path / "rows.jsonl"
    flags = f"--allow_cpu --models electra-mini --rows 1 --steps 2 --json {file}"
    status = gpu.main([*flags.split(), "--gin.TASK_FEATURE_LENGTHS={'inputs': 16}"])
    (row,) = map(json.loads, file.read_text().splitlines())
    assert (row["rows"], row["lengths"], row["steps"]) == (1, {"inputs": 16}, 2)
    assert row["share"] == pytest.approx(row["flops_per_second"] / row["matmul_flops_per_second"])
    assert status == (row["share"] < gpu.LEAST_SHARE)
    output = capsys.readouterr().out
    assert gpu.line(row) in output.splitlines()
