"""Reports of runs of all kinds: finished, killed, older, damaged, and somebody else's."""

from __future__ import annotations

import html.parser
import json
import re
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from t5x_like.reporting import samples
from t5x_like.reporting.markup import page
from t5x_like.reporting.report import report
from t5x_like.reporting.run_files import read_run
from t5x_like.reporting.sections import about_run
from t5x_like.runs.trained.samples import Guesses, Marks, PhaseSamples, Sample, Writing
from t5x_like.training.logs.energy import Assumptions
from t5x_like.vocabularies.characters import CharacterVocabulary

NASTY = "<script>alert('&')</script>"
HOST = {
    "name": NASTY,
    "process": 0,
    "device_kind": "NVIDIA A100-SXM4-40GB",
    "devices": 8,
    "device_bytes": 40 * 10**9,
    "host_bytes": 10**12,
    "cores": 96,
}
TEXTS = {NASTY: {"tokens": 900, "rows": 50, "share": 1.0}}
ABOUT = {
    "hosts": [HOST],
    "versions": {"jax": "1.2.3", NASTY: NASTY},
    "code": {"commit": "abc123", "modified": True, "digest": "0f0f"},
    "phases": [
        {"start": 0, "batch_size": 4, "texts": TEXTS},
        {"start": 15, "batch_size": 8, "texts": TEXTS},
    ],
    "parameters": 1234567,
    "train_steps": 30,
    "best_metric": "loss",
}


def line(start: int, step: int, first: int, steps: float, **more: Any) -> dict[str, Any]:
    totals = {"steps": step - first, "tokens": 10 * (step - first), "flops": 1e12}
    return {
        "start": start,
        "step": step,
        "time": 1.7e9 + steps,
        "seconds": {"startup": 50.0, "steps": steps},
        "totals": totals,
        "rated": totals,
        **more,
    }


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run that was killed once, with names that are not friends of HTML."""
    folder = tmp_path / "run<b>"
    metrics = folder / "checkpoints/20/metrics/metrics"
    metrics.parent.mkdir(parents=True)
    (folder / "checkpoints/20/metadata").mkdir()
    metrics.write_text(json.dumps({f"{NASTY}/loss": 2.5, "phase": 0}))
    logged = [
        {"step": 0, f"baseline/{NASTY}/loss": 5.0, f"baseline/{NASTY}/accuracy": 0.25},
        {"step": 10, "train/loss": 4.0, "train/learning_rate": 0.1, "train/grad_norm": 2.0},
        {"step": 20, f"eval/{NASTY}/loss": 2.5, f"eval/{NASTY}/accuracy": 0.5},
        {"step": 20, "eval/sums/rouge1": 31.5},
        {"step": 20, "train/loss": 3.0, "train/tokens_per_second": 5.0, NASTY: 1.0},
    ]
    records = [
        line(1, 0, 0, 0.0, about=ABOUT),
        line(1, 20, 0, 50.0),
        line(1, 25, 0, 60.0),
        line(2, 20, 20, 0.0, about=ABOUT),
        line(2, 30, 20, 30.0, status=NASTY),
    ]
    for name, values in (("metrics.jsonl", logged), ("starts.jsonl", records)):
        (folder / name).write_text("".join(json.dumps(one) + "\n" for one in values))
    (folder / "summary.json").write_text(json.dumps({"memory": {"host": 5e9, "device": NASTY}}))
    (folder / "config.gin").write_text(f"NAME = {NASTY!r}\n")
    (folder / "log.txt").write_text(f"said {NASTY}\n")
    return folder


def parts(run: Path) -> str:
    """A page without curves, which take their time."""
    return page("a run", about_run(read_run(run), Assumptions()))


class _Tags(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.addresses += [value or "" for name, value in attrs if name in ("href", "src")]


def checked(text: str) -> str:
    """The page, in which nothing runs and nothing is fetched."""
    found = _Tags()
    found.feed(text)
    assert not {"script", "img", "iframe", "link", "object", "b"} & found.tags
    assert not [one for one in found.addresses if not one.startswith("#")]
    assert "<script" not in text
    assert "default-src 'none'" in text
    return text


def seen(text: str) -> str:
    """The text of a page, as it is read."""
    return html.unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", text)))


def test_a_report_has_all_that_the_run_says(run: Path) -> None:
    whole = checked(report([run], Assumptions()))
    text = seen(whole)
    for said in (
        "30 of 30",
        "1,234,567",
        "1 min 20 s 20 to 30",
        "0 to 25 5 killed",
        "20, the best 2.5000",
        "jax 1.2.3",
        "abc123, modified",
        "5 GB",
        f"{NASTY} 900 180 3.6",
        "400 W each, by its data sheet (assumed)",
        f"{NASTY}/accuracy 0.5000 0.2500",
        "phase 2",
        f"said {NASTY}",
    ):
        assert said in text, said
    assert whole.count("<svg ") == 6
    assert "Loss accuracy rouge1 Learning rate" in text, "in the table of contents"
    places = re.findall(r'<a class="level-\d" href="#([^"]+)">', whole)
    assert places == re.findall(r'<h[12] id="([^"]+)">', whole)
    assert len(places) == len({*places}) > 10
    for part in (80, 10, 100):  # steps that count, those taken again, starting
        assert f'style="width:{part / 190:.3%};' in whole
    assert "missing" not in text
    assert whole == report([run], Assumptions()), "the same run has the same page"


def test_what_is_missing_or_damaged_is_said_and_the_rest_is_shown(run: Path) -> None:
    whole = {path.name: path for path in run.iterdir() if path.is_file()}
    for name, path in whole.items():
        kept = path.read_bytes()
        path.unlink()
        assert f"There is no {name}" in seen(parts(run))
        for damage in (b"", b"\x00\xff\xfe", b"[" * 100_000, b'{"step": "x"}\n[1]\n{"seconds": 3}'):
            path.write_bytes(damage)
            checked(parts(run))
        path.unlink()
        path.mkdir()
        assert f"{name} cannot be read" in seen(parts(run))
        path.rmdir()
        path.write_bytes(kept)
    (run / "checkpoints/20/metrics/metrics").write_text("[")
    assert "30 of 30" in seen(report([run], Assumptions()))


def test_an_older_run_has_its_curves_and_checkpoints(run: Path) -> None:
    for name in ("starts.jsonl", "summary.json", "log.txt"):
        (run / name).unlink()
    text = seen(checked(report([run], Assumptions())))
    assert "20 by metrics.jsonl" in text
    assert "20 2.5000" in text
    assert "Learning rate" in text


def test_a_run_without_a_line_in_its_log_has_a_report(run: Path) -> None:
    (run / "metrics.jsonl").write_text("")
    records = (run / "starts.jsonl").read_text().splitlines()
    (run / "starts.jsonl").write_text(records[0])
    text = seen(checked(report([run], Assumptions())))
    assert "running, or killed" in text
    assert "0 of 30" in text


def test_runs_are_compared_in_one_page(run: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "metrics.jsonl").write_text('{"step": 3, "train/loss": 1.0}\n')
    text = seen(checked(report([run, other], Assumptions())))
    assert "run<b> other" in text
    assert "30 of 30 3 by metrics.jsonl" in text
    assert "other: train" in text


def test_the_best_checkpoint_of_an_older_run_is_by_its_configuration(run: Path) -> None:
    (run / "starts.jsonl").unlink()
    assert read_run(run).best is None
    (run / "config.gin").write_text("BEST_METRIC = 'loss'\n")
    assert read_run(run).best == 20


def test_a_page_without_samples_says_why(run: Path) -> None:
    text = seen(checked(report([run], Assumptions(), samples=3)))
    assert "There are no samples: " in text
    assert "30 of 30" in text


def test_samples_are_text(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vocabulary = CharacterVocabulary("".join(sorted({*NASTY})))
    tokens = np.array(vocabulary.encode(NASTY), np.int32)
    places = np.arange(3)
    masked = {
        "inputs": tokens,
        "masked_positions": places,
        "masked_targets": tokens[:3],
        "masked_loss_weights": np.ones(3, np.float32),
        NASTY: np.ones(3),
    }
    pair = {"inputs": tokens, "targets": tokens}
    best = np.stack([tokens[:3]] * 3, axis=1)
    guesses = Guesses(tokens[:3], np.full(3, 0.25), best, np.full((3, 3), 0.125))
    read = np.concatenate([tokens[1:2], tokens[1:]])
    marks = Marks(read, tokens, np.linspace(0.875, 0, len(tokens)))
    answers = [(masked, guesses), (masked, marks), (pair, Writing(tokens)), (masked, None)]
    shown = [Sample(NASTY, row, {}, answer) for row, answer in answers]
    opened = types.SimpleNamespace(
        vocabulary=vocabulary, step=7, run=types.SimpleNamespace(in_phases=lambda: [0, 1])
    )
    monkeypatch.setattr(samples.trained_run, "load", lambda *_, **__: opened)
    monkeypatch.setattr(samples, "samples", lambda *_: [PhaseSamples(2, {NASTY: 64}, shown)])
    text = seen(checked(page("samples", samples.about_samples(str(run), 4))))
    for said in (
        "after 7 steps",
        f"Phase 2: {NASTY} of 64 tokens",
        "3 of 3 right",
        "< 25.0% < 12.5%",
        "1 of 1 replaced tokens found; 11 others suspected",
        "< s 87.5%",
        f"the model writes {NASTY}",
        "gives no answer",
    ):
        assert said in text, said


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="holds nothing of a run: give its MODEL_DIR"):
        report([tmp_path], Assumptions())
