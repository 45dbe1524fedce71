"""The model card of an export: README.md with the front matter that the hub reads."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from t5x_like.api.exporting.training_record import RecordedPhase, TrainingRecord
from t5x_like.core import whole_files
from t5x_like.interop.hugging_face.configuration import auto_classes
from t5x_like.interop.hugging_face.files import kept_files

NAME = kept_files.CARD
# Of the card that came with an import, word by word.
_KEPT = re.compile(r"^(?:language|license(?:_\w+)?):.*\n(?:[ -].*\n)*", re.MULTILINE)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Exported:
    """The facts for the card of an exported model.

    Attributes:
      name: what `from_pretrained` takes, a name of the hub or a folder's name.
      architecture: the class of transformers.
      model_type: that of config.json.
      parameters: the number of parameters.
      step: the step of the checkpoint.
      has_tokenizer: whether a tokenizer was written.
      record: how the model came about.
      original: the text of the card that came with an import; "" without one.
    """

    name: str
    architecture: str
    model_type: str
    parameters: int
    step: int
    has_tokenizer: bool
    record: TrainingRecord
    original: str = ""


def check_free(directory: Path) -> None:
    """Raises FileExistsError where a directory has a card already."""
    if (directory / NAME).exists():
        raise FileExistsError(
            f"{directory} has a {NAME} already, which an export replaces by a model card: name a "
            "new directory, or ask to overwrite it"
        )


def write(directory: Path, exported: Exported) -> None:
    """Writes the card; what is not known is left out of it."""
    sections = [_front_matter(exported), _introduction(exported)]
    if exported.record.phases:
        sections += ["## Training", _training(exported), _phases(exported)]
    if exported.record.texts:
        sections += ["## Data", *_data(exported.record)]
    if exported.record.metrics:
        sections += ["## Evaluation", *_evaluation(exported.record)]
    sections += ["## Use", _use(exported)]
    whole_files.write(directory / NAME, ("\n\n".join(sections) + "\n").encode())


def _front_matter(exported: Exported) -> str:
    """The lines of YAML; language and licence are those that came with an import."""
    front = re.match(r"---\n(.*?\n)---\n", exported.original, re.DOTALL)
    tag = auto_classes.opener(exported.architecture).pipeline_tag
    lines = [
        *(_KEPT.findall(front[1]) if front else []),
        "library_name: transformers\n",
        *([f"pipeline_tag: {tag}\n"] if tag else []),
        f"tags:\n- t5x_like\n- {exported.model_type}\n",
    ]
    return f"---\n{''.join(lines)}---"


def _introduction(exported: Exported) -> str:
    trained = "trained with" if exported.record.phases else "exported by"
    lines = [
        f"# {exported.name.rpartition('/')[2]}",
        f"`{exported.architecture}` with {exported.parameters:,} parameters, {trained} t5x_like.",
        *([exported.record.origin] if exported.record.origin else []),
    ]
    return "\n\n".join(lines)


def _training(exported: Exported) -> str:
    record = exported.record
    steps = f"{exported.step:,}"
    if record.train_steps is not None and record.train_steps != exported.step:
        steps += f" of {record.train_steps:,}"
    known = {
        "steps": steps,
        "optimizer": record.optimizer,
        "settings of the recipe": record.recipe,
        "first parameters": record.initial and f"those of `{record.initial}`",
    }
    return _table(("", ""), [(name, value) for name, value in known.items() if value])


def _phases(exported: Exported) -> str:
    phases = exported.record.phases
    ends = [*(phase.first_step - 1 for phase in phases[1:]), exported.step]
    rows = [
        (
            f"{phase.first_step:,} to {end:,}",
            f"{phase.batch_size:,}",
            ", ".join(f"{name} {length:,}" for name, length in phase.lengths.items()),
            _objectives(phase),
        )
        for phase, end in zip(phases, ends, strict=True)
    ]
    return _table(("steps", "batch size", "sequence lengths", "objective"), rows)


def _objectives(phase: RecordedPhase) -> str:
    return ", ".join(f"`{objective}`" for objective in phase.objectives)


def _data(record: TrainingRecord) -> Iterator[str]:
    whole = sum(text.weight for text in record.texts)
    rows = [
        (
            text.name,
            f"{text.weight / whole:.3g}",
            "" if text.documents is None else f"{text.documents:,}",
            "" if text.tokens is None else f"{text.tokens:,}",
        )
        for text in record.texts
    ]
    yield _table(("text", "share of rows", "documents or examples", "tokens"), rows)
    yield "The numbers are those of the training split."


def _evaluation(record: TrainingRecord) -> Iterator[str]:
    yield f"On held-out text, after step {record.metrics_step:,}:"
    rows = [(*name.rpartition("/")[::2], f"{value:.4g}") for name, value in record.metrics.items()]
    yield _table(("text", "metric", "value"), rows)


def _use(exported: Exported) -> str:
    opener = auto_classes.opener(exported.architecture)
    auto, trust = opener.name, ", trust_remote_code=True" if opener.code else ""
    names = [auto, "AutoTokenizer"] if exported.has_tokenizer else [auto]
    lines = [
        "```python",
        f"from transformers import {', '.join(names)}",
        "",
        f'model = {auto}.from_pretrained("{exported.name}"{trust})',
    ]
    if exported.has_tokenizer:
        lines.append(f'tokenizer = AutoTokenizer.from_pretrained("{exported.name}")')
    ours = ["import t5x_like as t5x", "", f'model = t5x.load("{exported.name}")']
    return "\n".join([*lines, "```", "", "With t5x_like:", "", "```python", *ours, "```"])


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *[[_in_a_cell(cell) for cell in row] for row in rows]]
    return "\n".join(f"| {' | '.join(row)} |" for row in lines)


def _in_a_cell(text: str) -> str:
    """Text that does not end a table's cell or line."""
    return text.replace("|", "\\|").replace("\n", " ")
