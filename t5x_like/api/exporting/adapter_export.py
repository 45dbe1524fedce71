"""The adapters of a run as a directory that PEFT opens, without the model that they are beside."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from etils import epath
from flax import nnx

from t5x_like.api.exporting import whole_export
from t5x_like.core import whole_files
from t5x_like.core.abilities import AnswersTasks, can
from t5x_like.core.buckets import storage
from t5x_like.interop.hugging_face import families
from t5x_like.interop.hugging_face.configuration import auto_classes
from t5x_like.interop.peft import adapter_directory
from t5x_like.runs import run_directory, saved_model
from t5x_like.training.checkpointing.checkpoints import Checkpoints

if TYPE_CHECKING:
    from t5x_like.training.checkpointing.ranking import WantedStep

_CARD = """\
---
library_name: peft
base_model: {base}
tags:
- t5x_like
---

# {name}

{method} for `{base}`, written by t5x_like.

```python
from peft import PeftModel
from transformers import {auto}

base = {auto}.from_pretrained("{base}"{settings})
model = PeftModel.from_pretrained(base, "{name}")
```
"""


def export_adapter(
    source: str,
    target: str | Path,
    *,
    base: str | None = None,
    step: WantedStep = None,
    overwrite: bool = False,
    modules: Collection[str] = (),
) -> str:
    """Writes the adapters and the head of a run for PEFT.

    Args:
      source: the directory of a run with adapters, or of an imported adapter.
      target: a folder without an adapter, or a place in a bucket.
      base: the base as a model of Hugging Face, by directory or name; None for the directory that
        the run started from, which `export` writes for Hugging Face.
      step: the step of the checkpoint, or "best"; the newest by default.
      overwrite: whether files that are there are replaced.
      modules: modules that the directory's configuration may name.

    Returns:
      A line about what was written.

    Raises:
      FileExistsError: there is an adapter already.
      ValueError: PEFT has no files for what trained, or no base is known.
    """
    place = storage.path(target)
    if not overwrite and (place / adapter_directory.CONFIG).exists():
        raise FileExistsError(f"{target} has an adapter already: name another, or use --overwrite")
    model = saved_model.read(source, step=step, modules=modules)
    if can(model.model, AnswersTasks):
        raise ValueError(
            f"{source} has heads of several tasks, and PEFT keeps one beside an adapter: export "
            "one whole model, without --adapter and with --task_head"
        )
    base = base or _started_from(source)
    make = saved_model.constructor(source, modules, step=model.step)
    plain = nnx.eval_shape(lambda: make(rngs=nnx.Rngs(0)))
    config = families.of_model(plain).to_hf(plain)
    labels = config.get("num_labels")
    with whole_export.appearing(target) as folder:
        method = adapter_directory.write(
            folder, model.model, plain, model.params, base=base, labels=model.labels
        )
        card = _CARD.format(
            base=base,
            name=Path(str(target)).name,
            method=method,
            auto=auto_classes.opener(config["architectures"][0]).name,
            settings=f", num_labels={labels}" if labels else "",
        )
        whole_files.write(folder / "README.md", card.encode())
    return f"{target}: {method} for {base}, step {model.step}"


def _started_from(source: str) -> str:
    """The directory that has what a run left out of its checkpoints."""
    bases = Checkpoints(run_directory.checkpoints(storage.path(source))).bases()
    if not bases:
        raise ValueError(f"{source} does not say what its base is: name it with --base")
    return str(epath.Path(bases[0].step).parent.parent)
