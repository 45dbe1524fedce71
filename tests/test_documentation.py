"""The worked examples of the documentation work."""

from __future__ import annotations

import contextlib
import functools
import io
import itertools
import json
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from flax import nnx

from t5x_like import objectives
from t5x_like.cli import main
from t5x_like.core.protocols.data import Vocabulary
from t5x_like.data.corpora import registry as corpora
from t5x_like.models import bert, t5
from t5x_like.runs import saved_model
from t5x_like.tasks import inverse
from t5x_like.vocabularies.learning.subword_training import train_wordpiece

DOCS = Path(__file__).parent.parent / "docs"


@pytest.fixture
def neighbour_swap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Puts the objective of new_objective.md beside ours; returns the code of its test."""
    page = (DOCS / "new_objective.md").read_text(encoding="utf-8")
    module, test = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (tmp_path / "neighbour_swap.py").write_text(module)
    monkeypatch.setattr(objectives, "__path__", [*objectives.__path__, str(tmp_path)])
    monkeypatch.delitem(sys.modules, "t5x_like.objectives.neighbour_swap", raising=False)
    yield test
    sys.modules.pop("t5x_like.objectives.neighbour_swap", None)


def test_the_new_objective_is_found_and_passes_its_test(neighbour_swap: str):
    assert objectives.summaries()["neighbour_swap"] == "restore the order of swapped neighbours"
    names: dict = {}
    exec(compile(neighbour_swap, "new_objective.md", "exec"), names)
    tests = [value for name, value in names.items() if name.startswith("test_")]
    assert len(tests) == 2
    for test in tests:
        test()


def test_the_new_objective_is_shown(
    neighbour_swap: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "text.txt").write_text(
        "\n\n".join(f"document {i} of a few words" for i in range(40))
    )
    named = [f"--corpus={tmp_path / 'text.txt'}", "--vocabulary=bytes", f"--cache_dir={tmp_path}"]
    assert main.main(["show", *named, "--objective=neighbour_swap", "--length=32"]) == 0
    assert "inputs length: 32 of 32 (0% padding)" in capsys.readouterr().out


def test_every_objective_has_its_example():
    page = (DOCS / "objectives.md").read_text(encoding="utf-8")
    variants = re.compile(r"_(rate|length)_\d+$")
    for name in objectives.presets():
        assert variants.search(name) or f"\n### {name}\n" in page, name


@pytest.fixture
def in_a_folder_with_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with text in data/ and a cache of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("T5X_LIKE_CACHE", str(tmp_path / "cache"))
    (tmp_path / "data").mkdir()
    documents = list(itertools.islice(corpora.get("stdlib_docs").documents("train"), 600))
    text = "\n\n".join(document["targets"].replace("\n\n", "\n") for document in documents)
    (tmp_path / "data" / "text.txt").write_text(text)
    return tmp_path


def in_small(code: str) -> str:
    """The same with few steps."""
    return re.sub(r"(train_steps|total_steps)=\d+", r"\1=4", code).replace("warmup_steps=10", "")


@pytest.mark.slow
@pytest.mark.usefixtures("in_a_folder_with_text")
def test_the_page_about_python_works() -> None:
    page = (DOCS / "python.md").read_text(encoding="utf-8")
    names: dict = {"__name__": "a_script"}
    for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(compile(in_small(block), "python.md", "exec"), names)
    assert len(names["answer"].blanks[0]) == 5
    assert names["states"].shape[1] == names["again"].model.config.d_model


@pytest.mark.slow
@pytest.mark.usefixtures("in_a_folder_with_text")
def test_the_first_page_pretrains_asks_scores_and_fine_tunes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    page = (DOCS.parent / "README.md").read_text(encoding="utf-8")
    blocks = [b for b in re.findall(r"```sh\n(.*?)```", page, re.DOTALL) if "runs/mine" in b]
    commands = [shlex.split(line, comments=True) for b in blocks for line in b.splitlines()]
    reviews = (f"film {n} was {word},{word}\n" for n, word in enumerate(["fine", "dull"] * 20))
    Path("reviews.csv").write_text("remark,verdict\n" + "".join(reviews))
    assert [words[:2] for words in commands[1:4]] == [
        ["t5x_like", name] for name in ("train", "predict", "eval")
    ]
    few = {
        "train": ["--train_steps=4", "--batch_size=8"],
        "eval": ["--batches=2"],
        "finetune": ["--epochs=1", "--batch_size=8"],
    }
    for _, name, *words in commands:
        assert main.main([name, *words, *few.get(name, [])]) == 0, name
        said = capsys.readouterr().out
        if name == "predict" and "reviews" in words[0]:
            assert re.fullmatch(r"a fine film\n  (fine|dull) 0\.\d+, .*\n", said)
        elif name == "predict":
            filled, guesses = said.splitlines()
            assert re.match(r"The capital of France is ?\S*\.", filled)
            assert len(re.findall(r" \d\.\d{3}(?:, |$)", guesses)) == 5  # a guess may be a comma
        elif name == "eval":
            assert "untrained" in said


@pytest.fixture
def registries_of_its_own(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """SeqIO's and our registries as they were, and the modules of a page forgotten."""
    seqio = pytest.importorskip("seqio")
    corpora.names()
    monkeypatch.setattr(corpora, "_REGISTERED", dict(corpora._REGISTERED))
    for registry in (seqio.TaskRegistry, seqio.MixtureRegistry):
        monkeypatch.setattr(registry, "_REGISTRY", {})
    # The shipped tasks are made of 20,000 draws each.
    monkeypatch.setattr(inverse, "pairs", functools.partial(inverse.pairs, drawn=200))
    yield
    for name in ("my_tasks", "my_metrics", "my_corpora"):
        sys.modules.pop(name, None)


@pytest.mark.slow
@pytest.mark.usefixtures("registries_of_its_own", "in_a_folder_with_text")
def test_the_page_about_tasks_works(capsys: pytest.CaptureFixture[str]) -> None:
    """Its files are written and its commands run, in their order."""
    page = (DOCS / "new_task.md").read_text(encoding="utf-8")
    small = ["--train_steps=2", "--batch_size=16", "--gin.EVAL_BATCHES=1"]
    few = {"train": small, "eval": ["--batches=1", "--batch_size=16"]}
    said: dict[str, str] = {}
    for language, block in re.findall(r"```(python|sh)\n(.*?)```", page, re.DOTALL):
        if language == "python":
            Path(re.match(r"# (\w+\.py)\n", block)[1]).write_text(block)
            continue
        for line in block.replace("\\\n", "").splitlines():
            program, name, *words = shlex.split(line)
            assert program == "t5x_like"
            epoch = ["--epochs=1"] * ("--epochs" in words)
            assert main.main([name, *words, *few.get(name, []), *epoch]) == 0, line
            said[line] = capsys.readouterr().out
    shown = "\n".join(said.values())
    assert "0+0 </s>" in shown
    assert "  accuracy " in shown
    assert "  solved " in shown
    assert len({line.split()[1] for line in said}) == 5


def test_the_page_about_tasks_lists_the_shipped_ones() -> None:
    page = (DOCS / "new_task.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `(inverse[\w.]*)`", page, re.MULTILINE) == [*inverse.TASKS]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["first_run", "new_objective_and_model"])
def test_a_notebook_works(name: str, in_a_folder_with_text: Path) -> None:
    """In a kernel of its own, where a loop of events is running."""
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    notebook = nbformat.read(DOCS / "notebooks" / f"{name}.ipynb", as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.source = re.sub(r"(train_steps)=\d+", r"\1=24", cell.source)
    nbclient.NotebookClient(
        notebook, timeout=600, resources={"metadata": {"path": str(in_a_folder_with_text)}}
    ).execute()
    assert (in_a_folder_with_text / "runs").is_dir()


def pretrained(name: str, model: functools.partial, vocabulary: Vocabulary) -> None:
    """Writes `runs/NAME`, as if pretrained."""
    params = nnx.to_pure_dict(nnx.state(model(rngs=nnx.Rngs(0)), nnx.Param))
    saved_model.write(f"runs/{name}", model, params, title="a", vocabulary=vocabulary, files=())


@pytest.fixture
def in_a_folder_with_models_and_labels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The working folder, with what the page about fine-tuning names."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("T5X_LIKE_CACHE", str(tmp_path / "cache"))
    reviews = [f"film {n} was {word}" for n, word in enumerate(["fine", "dull"] * 12)]
    Path("reviews.csv").write_text(
        "remark,verdict\n" + "".join(f"{text},{text.split()[-1]}\n" for text in reviews)
    )
    Path("pairs.tsv").write_text("inputs\ttargets\n" + "".join(f"{x}\tso {x}\n" for x in reviews))
    for folder in ("data/MRPC", "data/glue/MRPC"):
        Path(folder).mkdir(parents=True)
        rows = "".join(f"{n % 2}\t1\t2\t{text}\t{text}\n" for n, text in enumerate(reviews))
        for split in ("train", "dev"):
            Path(folder, f"{split}.tsv").write_text(
                f"Quality\tID\tID\t#1 String\t#2 String\n{rows}"
            )
    Path("data/glue/SST-2").mkdir()
    for split in ("train", "dev"):
        rows = "".join(f"{text}\t{n % 2}\n" for n, text in enumerate(reviews))
        Path("data/glue/SST-2", f"{split}.tsv").write_text(f"sentence\tlabel\n{rows}")
    asked = {"id": "1", "question": "Who?", "is_impossible": False}
    answered = asked | {"answers": [{"text": "film", "answer_start": 0}]}
    not_answered = asked | {"id": "2", "is_impossible": True, "answers": []}
    paragraphs = [{"context": text, "qas": [answered, not_answered]} for text in reviews]
    for split in ("train", "dev"):
        Path(f"{split}-v2.0.json").write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}))
    text = " ".join(["mrpc sentence1 sentence2 : equivalent not_ who lives where ?", *reviews])
    vocabulary = train_wordpiece(
        [text], size=300, extra_ids=0, character_coverage=1.0, lowercase=True
    )
    sizes = {"vocab_size": vocabulary.vocab_size, "d_model": 16, "d_ff": 32, "num_heads": 2}
    sides = {"num_encoder_layers": 1, "num_decoder_layers": 1, "d_kv": 8}
    bert_mini = functools.partial(bert.Bert, bert.Config(**sizes, num_layers=1))
    for name in ("bert-mini", "mine"):
        pretrained(name, bert_mini, vocabulary)
    pretrained("t5-mini", functools.partial(t5.T5, t5.Config(**sizes, **sides)), vocabulary)


@pytest.mark.slow
@pytest.mark.usefixtures("in_a_folder_with_models_and_labels")
def test_the_page_about_fine_tuning_works(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its commands run in their order; the first, which pretrains, is that of the first page."""
    page = (DOCS / "finetuning.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```sh\n(.*?)```", page, re.DOTALL)
    said = {}
    for line in "".join(blocks).splitlines():
        piped, _, command = line.rpartition(" | ")
        monkeypatch.setattr(sys, "stdin", io.StringIO("".join(shlex.split(piped)[1:])))
        _, name, *words = shlex.split(command)
        if name == "finetune" and "--tasks" not in words:
            words.append("--epochs=1")
        if name != "train":
            with contextlib.suppress(SystemExit):  # as after --tasks
                assert main.main([name, *words]) == 0, line
            said[line] = capsys.readouterr().out
    assert re.search(r"\n  (fine|dull) 0\.\d+, ", "".join(said.values()))
    (python,) = re.findall(r"```py\n(.*?)```", page, re.DOTALL)
    exec(compile(python.replace("epochs=5", "epochs=2"), "finetuning.md", "exec"), {})
