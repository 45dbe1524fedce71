"""Every command of the pages about launchers is run, against stand-ins."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from t5x_like.config import gin_files

DOCS = Path(__file__).parents[2] / "docs"
OTHERS = {"docker", "export", "gcloud", "kubectl", "python", "sinfo", "~/t5x_like_env/bin/pip"}


def commands(page: str) -> list[list[str]]:
    """The commands of a page, as their words."""
    text = (DOCS / f"{page}.md").read_text(encoding="utf-8").replace("\\\n", " ")
    blocks = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    return [shlex.split(line) for block in blocks for line in block.splitlines() if line]


@pytest.mark.parametrize(
    "page",
    [
        pytest.param("launching", marks=pytest.mark.slow),
        pytest.param("tpu_pod", marks=pytest.mark.slow),
        "gke",
        "slurm",
    ],
)
def test_every_command_of_a_page_works(bench, monkeypatch, page):
    """As they stand, but for a wheel and an environment that are there."""
    monkeypatch.setenv("WANDB_API_KEY", "hunter2")
    launched = 0
    for words in commands(page):
        if words[:2] != ["t5x_like", "launch"]:
            assert words[0] in OTHERS, words
            if words[0] in ("docker", "gcloud", "kubectl"):
                bench.write("states", "ACTIVE")
                subprocess.run(words, check=True, stdin=subprocess.DEVNULL)
            continue
        launched += 1
        words = words[2:]
        cut = words.index("--") if "--" in words else len(words)
        if any(word.startswith("--config=") and word != "--config=gke" for word in words):
            here = [f"--config.package={bench.wheel}", f"--config.environment={bench.environment}"]
            here.append("--config.restarts_without_progress=2")
            words[cut:cut] = [*here, "--config.poll_seconds=0"] if page != "slurm" else here
        if page == "tpu_pod":
            bench.write("states", "NONE ACTIVE" if "--dry_run" in words or cut else "ACTIVE")
        assert bench.launch(*words) == 0, (words, bench.err)
        for name in re.findall(r"--recipe (\S+)", " ".join(words)):
            assert gin_files.find_recipe(name)
    assert launched >= 6


def test_the_table_of_machine_types_has_every_generation():
    from t5x_like.launching import slices

    page = (DOCS / "gke.md").read_text(encoding="utf-8")
    for generation in slices.CHIPS:
        assert f"`{generation}-" in page


def test_the_table_of_exit_statuses_is_that_of_the_code():
    from t5x_like.core.exit_status import FINAL

    rows = re.findall(r"^\| (\d+) \|.*\| nothing", (DOCS / "launching.md").read_text(), re.M)
    assert tuple(map(int, rows)) == FINAL
