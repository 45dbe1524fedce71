"""The findings: their sides are there, and the page shows what their results file holds."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import finding_data as data
import finding_plots as plots
import finding_tables as tables
import findings
import pytest
from documents import write_documents

from t5x_like.config import gin_config
from t5x_like.runs.phases import RunPhase
from t5x_like.runs.program import build_program
from t5x_like.runs.run import Run

VOCABULARY = Path(__file__).parent.parent / "runs" / "golden" / "vocabulary"
RESULTS = Path(__file__).parent.parent.parent / "docs" / "results"


def line(side: str, seed: int, value: float | None) -> dict:
    size = {"parameters": 1000, "steps": 20, "flops": 3e12, "seconds": 60}
    return {"finding": "xlnet", "side": side, "seed": seed, **size, "metrics": {"loss": value}}


def test_sides_are_the_gin_files() -> None:
    for name, finding in findings.FINDINGS.items():
        files = {file.stem for file in (findings.GIN / name).glob("*.gin")}
        assert files == {*finding.sides, "shared"}
        assert all(findings.label(name, side) for side in finding.sides)
        assert name in tables.COLUMNS


@pytest.fixture(scope="module")
def invented(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_documents(tmp_path_factory.mktemp("findings") / "text.txt")


@pytest.mark.slow
@pytest.mark.parametrize("name", findings.FINDINGS)
def test_every_side_can_be_trained(name: str, invented: Path, tmp_path: Path) -> None:
    """Its batches are such as its model reads: a step is traced, not run."""
    values = {"CORPUS": invented, "CACHE_DIR": tmp_path, "VOCABULARY": VOCABULARY}
    bindings = [f"{macro}={str(value)!r}" for macro, value in values.items()]
    bindings += ["CORPUS_VALIDATION=0.0", "EVAL_PERIOD=0"]
    for side in findings.FINDINGS[name].sides:
        gin_config.load([f"{name}/{side}.gin"], bindings, [str(findings.GIN)])
        phase = RunPhase(0, gin_config.build(Run), 0)
        phase.check()
        data = phase.open_data(lambda mine: None, lambda vocabulary: None)
        phase.batches(data, build_program(phase.run)).check()


def test_table_has_means_and_spreads_of_the_seeds() -> None:
    lines = [line("a", 0, 1.0), line("a", 1, 2.0), line("b", 0, 4.0), line("c", 0, None)]
    labels = {"c": "Third", "a": "First", "b": "Second", "d": "not run"}
    rows = tables.table_of(lines, labels, {"loss": "loss"}).splitlines()
    assert [row.split(" | ")[0] for row in rows[2:5]] == ["| Third", "| First", "| Second"]
    assert [row.split(" | ")[-1].strip(" |") for row in rows[2:5]] == ["", "1.500 ± 0.707", "4.000"]
    assert not any("not run" in row for row in rows)


def test_what_stands_around_tables_stays() -> None:
    page = "before\n<!-- table: xlnet -->\nold\n<!-- end of table -->\nafter\n"
    new = tables.fill_tables(page, [line("memory_0", 0, 1.0)], {"xlnet": {"memory_0": "none"}})
    assert new.startswith("before\n<!-- table: xlnet -->\n")
    assert new.endswith("<!-- end of table -->\nafter\n")
    assert "old" not in new
    assert "| none | 1 |" in new


def test_runs_of_other_settings_do_not_count() -> None:
    job = findings.Job("xlnet", "memory_0", 1)
    assert job.settings != findings.Job("xlnet", "memory_32", 1).settings
    assert job.settings == findings.Job("xlnet", "memory_0", 2).settings
    assert job.settings in job.folder
    mine = {"finding": job.finding, "side": job.side, "seed": job.seed}
    lines = [{**mine, "settings": job.settings, "n": n} for n in (1, 2)]
    lines.append({**mine, "settings": "other"})
    assert findings.counting(lines) == {job: lines[1]}


@pytest.mark.slow
def test_page_is_made_of_the_results(tmp_path: Path) -> None:
    for name in ("findings.jsonl", "findings.md"):
        (tmp_path / name).write_bytes((RESULTS / name).read_bytes())
    findings.write_page(tmp_path)
    page = (tmp_path / "findings.md").read_text()
    assert page == (RESULTS / "findings.md").read_text()
    shown = {f"{name}.png" for name in re.findall(r"\(findings/(\w+)\.png\)", page)}
    assert shown == {file.name for file in (tmp_path / "findings").iterdir()}
    assert shown == {file.name for file in (RESULTS / "findings").iterdir()}


def test_picture_has_the_seeds_and_the_mean_of_what_was_run() -> None:
    lines = [line("a", 0, 1.0), line("a", 1, 3.0), line("b", 0, None)]
    columns = {"Loss": "loss", "Other": "other"}
    figure = plots.drawn(lines, {"b": "Second", "a": "First", "c": "not run"}, columns)
    loss, other = figure.axes
    assert [loss.get_title(), other.get_title()] == ["Loss", "Other"]
    assert [label.get_text() for label in loss.get_yticklabels()] == ["Second", "First"]
    assert [(*map(tuple, row.get_xydata()),) for row in loss.lines] == [((1, 1), (3, 1)), ((2, 1),)]
    assert not other.lines


def test_text_is_prepared_once(tmp_path: Path) -> None:
    source, work = tmp_path / "source", tmp_path / "work"
    files = {
        "wiki_en/a.jsonl.gz": json.dumps({"text": "It is 3.5 m high (St Ives). It fell."}) + "\n",
        "novels_en/a.txt.gz": "a",
        "tinyshakespeare/input.txt.gz": "play " * 100_000,
        "glue_sst2/train.tsv.gz": 'sentence\tlabel\na "fine film \t1\n',
        "glue_sst2/dev.tsv": "sentence\tlabel\ndull\t0\n",
        "glue_cola/a.tsv": "",
        "ud_english_ewt/a.conllu": "",
        "e2e_nlg/train.jsonl.gz": json.dumps(
            {"mr": "price[£ 20 - 25]", "ref": "A , family - friendly , £ 20 ."}
        ),
        "e2e_nlg/devset.csv.gz": 'mr,ref\n"name[B], food[C]","B."\n',
    }
    for name, text in files.items():
        file = source / name
        file.parent.mkdir(parents=True, exist_ok=True)
        content = text.encode()
        file.write_bytes(gzip.compress(content) if file.suffix == ".gz" else content)
    for _ in range(2):
        data.prepare(source, work)
    found = {str(file.relative_to(work)): file for file in work.rglob("data/*/*.jsonl")}
    pairs = {name: json.loads(file.read_text()) for name, file in found.items()}
    assert pairs["data/sst2/train.jsonl"] == {"inputs": 'a "fine film', "targets": "up"}
    assert pairs["data/e2e/train.jsonl"] == {
        "inputs": "price[£20-25]",
        "targets": "A, family-friendly, £20.",
    }
    assert pairs["data/e2e/dev.jsonl"] == {"inputs": "name[B], food[C]", "targets": "B."}
    (article,) = map(json.loads, (work / data.SENTENCES).read_text().splitlines())
    assert article == {"text": "It is 3.5 m high (St Ives).\nIt fell."}
    assert len((work / data.PLAYS).read_text()) == 400_000
    assert any(work.glob(data.WIKI))
    (source / "novels_en/a.txt.gz").unlink()
    with pytest.raises(FileNotFoundError, match="novels_en"):
        data.prepare(source, work)


def test_settings_do_not_depend_on_what_was_loaded_before():
    """Gin's text names a class as the first file of the process did."""
    before = findings.Job("xlnet", "memory_32", 0).settings
    findings._settings.cache_clear()
    gin_config.load(["runs/local.gin"], ["objectives.xlnet.XLNet.max_ngram=4"])
    assert findings.Job("xlnet", "memory_32", 0).settings == before
