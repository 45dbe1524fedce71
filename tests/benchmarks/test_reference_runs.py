"""The reference runs are of all small recipes and learned; their page is what the script writes."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
import recorded
import reference_runs as script

from t5x_like.config import gin_files

ROOT = Path(__file__).parent.parent.parent
RESULTS = ROOT / "docs/results"
MARGIN = 0.95
"""A model that has learned has at most this part of a baseline's loss."""

FURTHER = ("legal_bert-mini", "bert-mini")
"""The first begins as the second ends: better than baselines before it has learned anything."""

LINES = script.read_lines(RESULTS)


# The runs themselves: `benchmarks/reference_runs.py --resume` makes those that are missing.


def test_a_small_recipe_has_its_run_or_the_page_says_so():
    assert LINES.keys() <= set(script.small())
    missing = set(script.small()) - LINES.keys()
    (said,) = re.findall("^Not run yet: (.*)\\.$", script.page(LINES), re.M) or [""]
    assert set(filter(None, said.split(", "))) == missing


def test_the_page_is_what_the_script_writes():
    assert (RESULTS / script.PAGE).read_text(encoding="utf-8") == script.page(LINES)


@pytest.mark.parametrize("name", LINES)
def test_the_model_learned(name: str):
    for columns in LINES[name]["results"].values():
        loss = script.loss_name(columns)
        for baseline in ("untrained", "unigram"):
            assert columns["trained"][loss] <= MARGIN * columns[baseline][loss], baseline


def test_a_run_that_goes_on_from_another_is_better_than_it():
    ((further,), (start,)) = (LINES[name]["results"].values() for name in FURTHER)
    assert further["trained"]["mlm_loss"] < start["trained"]["mlm_loss"]


@pytest.mark.parametrize("name", LINES)
def test_its_recipe_states_its_result(name: str):
    (columns,) = LINES[name]["results"].values()
    loss = script.loss_name(columns)
    stated = f"{loss} {columns['trained'][loss]:.3f} (unigram {columns['unigram'][loss]:.3f})"
    assert stated in gin_files.find_recipe(name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", LINES)
def test_its_picture_is_there(name: str):
    assert (RESULTS / "curves" / f"{name}.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("name", LINES)
def test_its_command_is_the_recipe_as_it_is(name: str):
    corpus = LINES[name]["corpus"]["files"]
    recipe = str(gin_files.find_recipe(name))
    assert LINES[name]["settings"] == recorded.settings([recipe], [f"CORPUS={corpus!r}"])
    words = shlex.split(LINES[name]["command"])
    assert words[:4] == ["t5x_like", "train", "--recipe", name]
    assert [word.partition("=")[0] for word in words[4:]] == ["--gin.CORPUS"]


# The page's writer, on runs that were made up.


def made_up(name: str, results: dict, *, minutes: float = 1.0, jax: str = "0.10") -> dict:
    return {
        "name": name,
        "command": f"t5x_like train --recipe {name}",
        "eval_command": f"t5x_like eval runs/{name}",
        "seed": 3,
        "steps": 1500,
        "parameters": 1234567,
        "minutes": minutes,
        "machine": {"cpu": "Abacus", "cores": 2, "python": "3.11.7", "jax": jax, "backend": "cpu"},
        "corpus": {"files": "*.gz", "bytes": 4e6, "documents": 1200, "characters": 9e6},
        "results": {"text": results},
    }


ELECTRA = {
    "trained": {
        "generator_loss": 4.0,
        "generator_accuracy": 0.25,
        "generator_pseudo_perplexity": 54.6,
        "discriminator_accuracy": 0.9,
        "replaced_precision": None,
        "replaced_recall": 0.0,
    },
    "untrained": {"generator_loss": 7.6, "discriminator_accuracy": 0.5, "replaced_recall": 0.5},
    "unigram": {"generator_accuracy": 0.04, "generator_loss": 6.1},
}
T5 = {
    "trained": {"loss": 3.0, "accuracy": 0.6, "z_loss": 0.1, "content_accuracy": 0.3}
    | {"content_loss": 4.5, "content_z_loss": 0.2},
    "untrained": {"loss": 7.0, "content_loss": 8.0, "content_accuracy": 0.0},
    "unigram": {"content_loss": 6.0, "content_accuracy": 0.05},
    "blanked": {"content_loss": 5.5},
}


def write(folder: Path, *lines: dict) -> str:
    (folder / script.LINES).write_text("".join(json.dumps(line) + "\n" for line in lines))
    script.write_page(folder)
    return (folder / script.PAGE).read_text(encoding="utf-8")


def test_the_newest_line_of_a_name_wins(tmp_path: Path):
    worse = ELECTRA | {"trained": {"generator_loss": 99.0}}
    page = write(
        tmp_path, made_up("e", worse, minutes=7), made_up("t", T5), made_up("e", ELECTRA, minutes=2)
    )
    assert "99.0" not in page
    assert page.count("\n## e\n") == page.count("\n## t\n") == 1
    row = "| [e](#e) | 1,234,567 | 1,500 | 2.0 | `generator_loss` | 4.000 | 7.600 | 6.100 |"
    assert row in page


def test_missing_metrics_leave_cells_empty(tmp_path: Path):
    page = write(tmp_path, made_up("e", ELECTRA), made_up("t", T5))
    assert "| text | trained | untrained | unigram |\n" in page
    assert "| `replaced_precision` |  |  |  |\n" in page
    assert "| `generator_accuracy` | 0.250 |  | 0.040 |\n" in page
    assert "| text | trained | untrained | unigram | blanked |\n" in page
    assert "| `content_loss` | 4.500 | 8.000 | 6.000 | 5.500 |\n" in page


def test_the_summary_tells_what_goes_with_the_loss(tmp_path: Path):
    page = write(tmp_path, made_up("e", ELECTRA), made_up("t", T5))
    assert (
        "| `generator_accuracy` 0.250 (0.040), `discriminator_accuracy` 0.900 (0.500), "
        "`replaced_recall` 0.000 (0.500) |\n"
    ) in page
    assert "| `content_loss` | 4.500 | 8.000 | 6.000 | `content_accuracy` 0.300 (0.050) |" in page


def test_machines_are_told_apart(tmp_path: Path):
    page = write(tmp_path, made_up("e", ELECTRA), made_up("t", T5, jax="0.12"))
    assert "- 2 cores of Abacus; JAX 0.10 (cpu), Python 3.11.7 (e)\n" in page
    assert "- 2 cores of Abacus; JAX 0.12 (cpu), Python 3.11.7 (t)\n" in page
    assert "- `*.gz`: 1,200 documents, 9.0 million characters, 4.0 MB on disk\n" in page


@pytest.mark.parametrize(
    "binding", ["CORPUS='a b/*.gz'", "TRAIN_STEPS=20", "VOCABULARY='$HOME/v'", 'A="x"']
)
def test_a_flag_is_shown_as_it_is_typed(binding: str):
    assert shlex.split(script.flag(binding)) == [f"--gin.{binding}"]
    assert script.flag("CORPUS='a/*.gz'") == "--gin.CORPUS=\"'a/*.gz'\""


def test_a_recipe_comes_after_those_whose_runs_it_reads():
    names = script.in_order([])
    assert names.index("bert-mini") < min(
        names.index("distilbert-mini"), names.index("legal_bert-mini")
    )
    assert script.in_order(["distilbert-mini", "bert-mini"]) == ["bert-mini", "distilbert-mini"]


def test_minutes_are_of_all_steps_however_often_resumed(tmp_path: Path):
    lines = [
        {"step": 60, "train/steps_per_second": 1.0},
        {"step": 60, "eval/text/loss": 3.0},
        {"step": 180, "train/steps_per_second": 2.0},
    ]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert script.training_minutes(tmp_path) == pytest.approx(2)


# The script, with runs that were made up.


@pytest.fixture
def without_training(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Runs that take no time, of which roberta-mini fails; returns the names as they are run."""
    begun: list[str] = []

    def run(name: str, bindings: list[str], work: Path) -> dict:
        begun.append(name)
        script.log_file(work, name).parent.mkdir(exist_ok=True)
        script.log_file(work, name).write_text("a word\nerror: too hot\n")
        if name == "roberta-mini":
            raise recorded.CommandError(f"see {name}.log")
        return made_up(name, ELECTRA) | {"command": " ".join(map(script.flag, bindings))}

    monkeypatch.setattr(script, "run", run)
    monkeypatch.setattr(recorded, "machine", lambda: made_up("e", {})["machine"])
    monkeypatch.setattr(script.drawing, "plot", lambda runs, file: None)
    return begun


def test_one_that_fails_is_named_and_the_others_are_made(
    without_training: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "text.txt").write_text("one\n\nthe other")
    words = ["--corpus=*.txt", f"--work={tmp_path}", f"--output={tmp_path}", "--gin.SEED=3"]
    assert script.main([*words, "roberta-mini", "xlnet-mini"]) == 1
    assert without_training == ["roberta-mini", "xlnet-mini"]
    told = capsys.readouterr().out
    assert "roberta-mini.log" in told
    assert "error: too hot" in told
    (line,) = script.read_lines(tmp_path).values()
    assert line["command"] == "--gin.CORPUS=\"'*.txt'\" --gin.SEED=3"
    assert line["corpus"] == {"files": "*.txt", "bytes": 14, "documents": 2, "characters": 12}

    assert script.main([*words, "--resume", "xlnet-mini", "gpt2-mini"]) == 0
    assert without_training[2:] == ["gpt2-mini"]
    assert script.read_lines(tmp_path).keys() == {"xlnet-mini", "gpt2-mini"}


def test_without_text_nothing_is_begun(
    without_training: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    with pytest.raises(SystemExit):
        script.main(["--corpus=*.txt", f"--work={tmp_path}", f"--output={tmp_path}"])
    assert "no file matches" in capsys.readouterr().err
    assert not without_training
