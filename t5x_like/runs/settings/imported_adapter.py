"""An adapter in PEFT's files as the directory of a run, which leaves the rest to its base."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from t5x_like.interop import mapping
from t5x_like.interop.hugging_face import families, head_classes
from t5x_like.interop.peft import adapter_directory, heads
from t5x_like.interop.peft.adapter_directory import AdapterFiles
from t5x_like.runs import saved_model
from t5x_like.runs.init_from import InitFrom
from t5x_like.runs.run import adapted
from t5x_like.runs.settings.finetuning import finetuned_model
from t5x_like.training.optimization.parameter_paths import by_path

_OUT = "head/out/kernel"
_FORMS = {head_classes.CLASSES: "classes", head_classes.TAGS: "tags", head_classes.SPANS: "spans"}


def write(target: str, source: Path, *, base: str, architecture: str | None = None) -> None:
    """Writes an adapter beside its base.

    Args:
      target: a new or empty directory.
      source: the directory of PEFT.
      base: the directory of a run or an import, which has the parameters that do not train.
      architecture: the transformers class with the head of the files; None as its `task_type` says.

    Raises:
      ValueError: it has no counterpart here, or belongs to another base.
      OSError: a file cannot be read.
    """
    files = adapter_directory.read(source)
    ending = _ending(files, architecture)
    make, init_from = _model(files, base, ending)
    plain = nnx.eval_shape(lambda: make(rngs=nnx.Rngs(0)))
    names = families.of_model(plain).names(plain)
    saved = saved_model.read(base)
    adapt, params = files.adapters(names, plain, _arrays(init_from, plain, saved.params))
    if ending is not None or files.has_head(names):
        params |= files.head(names)

    model: Any = nnx.eval_shape(lambda: adapted(make(rngs=nnx.Rngs(0)), adapt, nnx.Rngs(0)))
    shapes = mapping.flat_parameters(model)
    rest = {path: leaf for path, leaf in shapes.items() if path not in params}
    frozen = [path.replace("/", ".") for path in rest]
    bases = init_from.bases(frozen, model=model, vocabulary=None)
    there = {path for part in bases for path in part.parameters}
    if lost := [path for path in frozen if path not in there]:
        raise ValueError(f"neither {source} nor {base} has {lost[0]}: name another base (--base)")
    left: dict[str, Any] = {
        path: jax.ShapeDtypeStruct(leaf.shape, jnp.float32) for path, leaf in rest.items()
    }
    saved_model.write(
        target,
        make,
        mapping.nested({**left, **params}),
        title=f"An adapter of PEFT, imported from {source.absolute().name}.",
        vocabulary=saved.vocabulary,
        files=[] if saved.original is None else [*map(Path, saved.original.iterdir())],
        adapt=adapt,
        bases=bases,
        labels=files.labels,
    )


def _ending(files: AdapterFiles, architecture: str | None) -> str | None:
    """The end of the name of the class with the head of the files; None where it is the base's.

    Raises:
      ValueError: the class has no head that is known here.
    """
    if architecture is None:
        return heads.ending(files.config.get("task_type"))
    if not architecture.endswith(tuple(_FORMS)):
        raise ValueError(f"{architecture} has not the head of an adapter: *{', *'.join(_FORMS)}")
    return next(end for end in _FORMS if architecture.endswith(end))


def _model(
    files: AdapterFiles, base: str, ending: str | None
) -> tuple[functools.partial[Any], InitFrom]:
    """The constructor of the model without adapters, and where it is from.

    Raises:
      ValueError: the files have no head.
    """
    if ending is None:
        return saved_model.constructor(base), InitFrom(directory=base)
    form = _FORMS[ending]
    some = finetuned_model.of_saved(base, form, num_labels=2).make
    model = nnx.eval_shape(lambda: some(rngs=nnx.Rngs(0)))
    names = families.of_model(model).names(model)
    (out,) = (rule for rule in names.rules if _OUT in rule.paths)
    if out.name(0) not in files.tensors:
        raise ValueError(
            f"{files.directory} has no {out.name(0)}, the head of its task: it was not saved. Save "
            "it again with the head in modules_to_save"
        )
    labels = out.transform.to_ours(files.tensors[out.name(0)])[0].shape[-1]
    of_numbers = form == "classes" and labels == 1
    tuned = finetuned_model.of_saved(base, "numbers" if of_numbers else form, num_labels=labels)
    return tuned.make, tuned.init_from


def _arrays(init_from: InitFrom, model: nnx.Module, saved: Any) -> dict[str, Any]:
    """{path of a parameter: its value in the base}."""
    leaves = by_path(saved)
    return {
        path.replace(".", "/"): leaves[there] for path, there in init_from.sources(model).items()
    }
