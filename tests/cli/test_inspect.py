"""`t5x_like inspect`: names and counts of models, the table of parameters and their sharding."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import gin
import jax
import pytest
from flax import nnx
from tiny_run import Result

from t5x_like.config import gin_config, gin_files
from t5x_like.core.partitioning import make_layout, map_parameters
from t5x_like.models import t5

Cli = Callable[..., Result]
SMALL = 76_961_152  # parameters of t5_1_1_small, float32


@pytest.fixture(autouse=True)
def _clean_gin() -> Iterator[None]:
    yield
    gin.clear_config()


def table(result: Result) -> dict[str, list[str]]:
    """{parameter, module or total: cells}, column names under "parameter"."""
    assert (result.status, result.err) == (0, "")
    lines = result.out.partition("\n\n")[0].splitlines()
    starts = [lines[0].index(word) for word in ("shape", "axes", "dtype")]
    if "sharding" in lines[0]:
        starts.append(lines[0].index("sharding"))
    ends = [*starts[1:], len(lines[0])]
    rows = {}
    for line in lines:
        cells = [line[a:b].strip() for a, b in zip(starts, ends, strict=True)]
        *text, count, share = [*cells[:-1], *cells[-1].rsplit(maxsplit=2)]
        rows[line.split()[0]] = [*text, count, share]
    return rows


def numbers(cells: list[str]) -> tuple[int, float]:
    """Count and share."""
    return int(cells[-2].replace(",", "")), float(cells[-1].removesuffix("%"))


def test_count_is_one_number(cli: Cli) -> None:
    shown = cli("inspect", "t5_1_1_xxl", "--count")
    assert (shown.status, shown.out, shown.err) == (0, "11,135,332,352\n", "")


def test_bindings_reach_the_model(cli: Cli) -> None:
    # Two matrices of 512 for each unit of each of the 12 layers.
    shown = cli("inspect", "t5_small", "--count", "--gin.t5.Config.d_ff=2049")
    assert shown.out == f"{60_506_624 + 12 * 2 * 512:,}\n"


@pytest.mark.parametrize("name", ["t5_1_1_small", "umt5_base"])
def test_rows_add_up_to_their_module_and_modules_to_the_total(name: str, cli: Cli) -> None:
    rows = table(cli("inspect", name))
    del rows["parameter"]
    count, share = numbers(rows.pop("total"))
    assert f"{count:,}\n" == cli("inspect", name, "--count").out
    assert share == 100
    parameters = {path: numbers(cells) for path, cells in rows.items() if cells[0]}
    assert sum(one for one, _ in parameters.values()) == count
    assert sum(one for _, one in parameters.values()) == pytest.approx(100, abs=0.1)
    modules = {path: numbers(cells) for path, cells in rows.items() if not cells[0]}
    assert set(modules) == {"decoder", "encoder"}
    for module, (subtotal, _) in modules.items():
        members = [one for path, (one, _) in parameters.items() if path.startswith(f"{module}.")]
        assert len(members) > 1
        assert sum(members) == subtotal


def test_table_says_shape_axes_and_type(cli: Cli) -> None:
    shown = cli("inspect", "t5_1_1_small")
    rows = table(shown)
    assert rows["encoder.layers.mlp.wo.kernel"][:-1] == [
        "8x1024x512",
        "layers mlp embed",
        "float32",
        "4,194,304",
    ]
    assert rows["decoder_norm.scale"][:3] == ["512", "-", "float32"]
    assert shown.out.endswith("\n\nt5_1_1_small: 76,961,152 parameters, 293.6 MiB\n")
    assert len({len(line) for line in shown.out.partition("\n\n")[0].splitlines()}) == 1


def test_sharding_is_that_of_real_devices(cli: Cli) -> None:
    layout = make_layout({"data": 4, "tensor": 2})
    model = nnx.eval_shape(
        lambda: t5.T5(t5.Config(num_encoder_layers=2, d_model=64), rngs=nnx.Rngs(0))
    )
    shardings = map_parameters(layout.sharding, nnx.state(model))
    bindings = ["--gin.t5.Config.num_encoder_layers=2", "--gin.t5.Config.d_model=64"]
    shown = cli("inspect", "t5_small", "--mesh=tensor=2,data=4", *bindings)
    rows = table(shown)
    held = 0
    for path, sharding in jax.tree_util.tree_leaves_with_path(shardings):
        cells = rows.pop(".".join(key.key for key in path))
        shape = tuple(map(int, cells[0].split("x")))
        whole = sharding.is_fully_replicated
        assert cells[3] == ("replicated" if whole else f"P({', '.join(map(repr, sharding.spec))})")
        held += 4 * math.prod(sharding.shard_shape(shape))
    assert set(rows) == {"parameter", "encoder", "decoder", "total"}
    assert shown.out.splitlines()[-1] == (
        f"on each of 8 devices (data=4, tensor=2): {held / 2**20:.4g} MiB of parameters, without "
        "an optimizer"
    )


def test_a_mesh_may_be_larger_than_what_is_here(cli: Cli) -> None:
    shown = cli("inspect", "t5_1_1_xxl", "--mesh=replica=2,fsdp=256,tensor=8")
    assert table(shown)["output.kernel"][3] == "P('fsdp', 'tensor')"
    assert "on each of 4096 devices (replica=2, fsdp=256, tensor=8): 22.65 MiB" in shown.out


def test_the_model_of_a_directory_on_its_rules(cli: Cli, tmp_path: Path) -> None:
    files = ["t5_1_1_small", "runs/pretrain.gin"]
    rules = "partitioning.make_layout.rules = {'embed': ['data', 'tensor']}"
    gin_config.load(files, ["t5.Config.vocab_size = 384", rules])
    (tmp_path / "config.gin").write_text(gin_config.config_text())
    rows = table(cli("inspect", str(tmp_path), "--mesh=data=4,tensor=2"))
    assert numbers(rows["total"])[0] == SMALL - 2 * 512 * (32128 - 384)
    assert rows["output.kernel"][3] == "P(('data', 'tensor'), None)"


def test_without_a_name_all_are_listed_with_their_counts(cli: Cli) -> None:
    head, *lines = cli("inspect").out.splitlines()
    assert head.split() == ["model", "parameters", "gin", "file"]
    assert [line.split()[0] for line in lines] == list(gin_files.published_models())
    assert ["t5_1_1_small", f"{SMALL:,}", "models/t5_1_1.gin"] in map(str.split, lines)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["t5_smal"], ["no model or gin file 't5_smal'; nearest: t5_small"]),
        (["t5/smal.gin"], ["no gin file 't5/smal.gin'; nearest: t5_small"]),
        (["meshes/data.gin"], ["does not set MODEL"]),
        (["t5_small", "--mesh=dat=2"], ["no mesh axis 'dat'", "nearest: data"]),
        (["t5_small", "--gin.t5.Config.d_modle=2"], ["d_modle", "nearest: d_model"]),
        (["t5_small", "--gin.t5.Config.d_model=0"], ["d_model must be at least 1, got 0\n"]),
    ],
)
def test_mistakes_are_named(argv: list[str], said: list[str], cli: Cli) -> None:
    result = cli("inspect", *argv)
    assert (result.status, result.out) == (1, "")
    for words in said:
        assert words in result.err


def test_a_directory_that_holds_no_run(cli: Cli, tmp_path: Path) -> None:
    result = cli("inspect", str(tmp_path))
    assert (result.status, result.out) == (1, "")
    assert "no config.gin" in result.err


@pytest.mark.parametrize(
    "argv", [["--count"], ["t5_small", "--mesh=data"], ["t5_small", "--mesh=data=0"]]
)
def test_wrong_arguments_are_status_2(argv: list[str], cli: Cli) -> None:
    assert cli("inspect", *argv).status == 2


@pytest.mark.slow
def test_no_device_is_touched() -> None:
    """So nothing is allocated, and an accelerator that others use is left alone."""
    done = subprocess.run(
        [sys.executable, "-m", "t5x_like", "inspect", "t5_11b", "--mesh=fsdp=64"],
        env={**os.environ, "JAX_PLATFORMS": "there_is_none"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "t5_11b: 11,307,321,344 parameters, 42.12 GiB" in done.stdout
    assert done.stderr == ""
