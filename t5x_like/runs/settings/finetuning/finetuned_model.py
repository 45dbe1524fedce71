"""The model that is fine-tuned: the body of a saved model, with a head of its family."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from flax import nnx

from t5x_like.core.abilities import AnswersTask, AnswersTasks, Writes, can
from t5x_like.core.parameters import map_variables
from t5x_like.interop.hugging_face import families, head_classes
from t5x_like.interop.tokenizers.to_files import FAMILIES, Family
from t5x_like.layers.adapters import merging
from t5x_like.runs import model_config, saved_model
from t5x_like.runs.init_from import InitFrom
from t5x_like.runs.settings.finetuning import fresh_layers
from t5x_like.training.optimization.parameter_paths import by_path

if TYPE_CHECKING:
    from t5x_like.core.protocols.data import TokenIds

_OF_COMPUTING = ("dtype", "kernel", "remat", "scan_unroll")
_ENDING = re.compile(r"(For[A-Z]\w*|LMHead|(LMHead|DoubleHeads|Encoder|)Model)$")
_POOLER = "sentence.pooler."
_OF_OLD_HEADS = ("id2label", "label2id", "problem_type")
_TEXT_TO_TEXT = ("t5", "mt5", "umt5", "longt5")
"""The families whose labels are words that they write (T5, section 2.4)."""
_DROPOUT = 0.1
"""Of text to text, and of T5 with a head (T5, section 3.1.2; BART's settings for summaries)."""
SEARCHED = "searched spans"
"""The form of the answers of XLNet's own head."""
_NEW = {False: "^head\\.out", True: "^head\\."}
"""The parameters of a head that are never the saved ones, by whether it searches."""
_OF_BODIES = 0.9
"""The share of a body's parameters that a saved model must have under one prefix."""


class FineTunedModel(NamedTuple):
    """A model to fine-tune.

    Attributes:
      make: its constructor.
      init_from: where its parameters are read from: its body, and its pooler if there is one.
      model_type: the name of its family, as in FAMILIES.
      frame: the special tokens around its texts.
      form: the form of its answers; None for texts that it writes.
      max_tokens: the most tokens of a row; None for any number.
    """

    make: functools.partial[Any]
    init_from: InitFrom
    model_type: str
    frame: Family
    max_tokens: int | None
    form: str | None = None


def writes_alone(directory: str) -> bool:
    """Whether all that the model in a directory learns is a text to write, as in T5."""
    saved = _abstract(saved_model.constructor(directory))
    return _writes(saved) and families.model_type(saved) in _TEXT_TO_TEXT


def as_saved(directory: str, *, reinit_layers: int = 0) -> FineTunedModel:
    """The encoder-decoder in a directory as it is, with dropout, to learn text to text.

    Args:
      directory: of a run or an import.
      reinit_layers: how many of the decoder's last layers start afresh (`fresh_layers`).

    Raises:
      ValueError: it does not read a text and write another, it has fewer layers, or the directory
        has no model.
      OSError: it cannot be read.
    """
    make = _constructor(directory)
    saved = _abstract(make)
    if not _writes(saved):
        raise ValueError(
            f"{directory} has a {type(saved).__name__}, which does not write a text for another: "
            "only encoder-decoders, such as T5 and BART, learn text to text. Other models learn "
            "labels, such as classes or numbers, with a head: name the kind (--kind)"
        )
    kind = families.model_type(saved)
    skip = fresh_layers.patterns(saved, reinit_layers, model_type=kind)
    return FineTunedModel(
        model_config.with_fields(make, {"dropout_rate": _DROPOUT}),
        InitFrom(directory=directory, skip=skip),
        kind,
        FAMILIES[kind],
        saved.max_tokens,
    )


def _constructor(directory: str) -> Callable[..., Any]:
    """That of a saved model; raises ValueError where adapters change what its parameters mean."""
    if saved_model.is_adapted(directory) and merging.has_adapters(
        saved_model.abstract_model(directory)
    ):
        raise ValueError(
            f"{directory} was fine-tuned with new parameters beside its matrices: make one model "
            f"of both with `t5x_like merge {directory} --to DIR`, and fine-tune DIR"
        )
    return saved_model.constructor(directory)


def _writes(saved: Any) -> bool:
    return can(saved, Writes) and bool(saved.reads_apart)


def _abstract(make: Callable[..., Any]) -> Any:
    return nnx.eval_shape(lambda: make(rngs=nnx.Rngs(0)))


def of_saved(
    directory: str, form: str, *, num_labels: int, reinit_layers: int = 0
) -> FineTunedModel:
    """The model in a directory, with a new head.

    Args:
      directory: of a run or an import.
      form: the form of the answers, such as "classes" or "spans". Spans are searched ones where the
        saved model searches for them.
      num_labels: the number of classes or tags; 1 for numbers and choices.
      reinit_layers: how many of the last layers start afresh, and the pooler (`fresh_layers`).

    Raises:
      ValueError: it has fewer layers, no head of this form is known for its family, or the
        directory has no model.
      OSError: it cannot be read.
    """
    saved_make = _constructor(directory)
    saved = _abstract(saved_make)
    if can(saved, AnswersTasks):  # its body; a new head has none of the saved ones
        saved = saved.of_task(saved.tasks[0])
    family, config = _counterpart(saved, directory)
    if form == "spans" and can(saved, AnswersTask) and saved.answer_form == SEARCHED:
        form = SEARCHED
    stem = _ENDING.sub("", config["architectures"][0])
    config = {name: value for name, value in config.items() if name not in _OF_OLD_HEADS}
    outputs = head_classes.outputs(form, num_labels)
    config |= {"num_labels": outputs, **head_classes.problem(form)}
    vocabulary = InitFrom(directory=directory).vocabulary()
    if vocabulary is not None:
        config |= _pooled_over(vocabulary.token_ids, config)
    if config["model_type"] in _TEXT_TO_TEXT:
        config["dropout_rate"] = _DROPOUT
    known = getattr(family, "ENDINGS", {})
    if form == SEARCHED and form not in known:
        raise ValueError(
            f"search is for XLNet, whose head for answers searches for their ends; {directory} has "
            f"a {type(saved).__name__}: leave it out"
        )
    ending = known.get(form) or head_classes.ending_for(form)
    make = head_classes.learning(family.from_hf(config, stem + ending), form)
    make = _computed_as(make, saved.config)
    model = _abstract(make)
    kind = config["model_type"]
    fresh = fresh_layers.patterns(model, reinit_layers, model_type=kind)
    copies = getattr(family, "copies", None)
    rename = _renamed(saved, model, directory, copies=copies(saved) if copies else {})
    return FineTunedModel(
        make,
        InitFrom(
            directory=directory,
            rename=rename,
            skip=(_NEW[form == SEARCHED], *fresh),
            added=_added(saved),
        ),
        kind,
        FAMILIES[kind],
        model.max_tokens,
        form,
    )


def _counterpart(saved: Any, directory: str) -> tuple[ModuleType, dict[str, Any]]:
    """The family of a saved model, whose heads it can have, and its config.json there.

    Raises:
      ValueError: no family has heads for it.
    """
    without = (
        f"{directory} has a {type(saved).__name__}, for which no heads for labels are known, as "
        "there are for BERT, GPT, T5 and others: "
    )
    try:
        family = families.of_model(saved)
    except ValueError as error:
        raise ValueError(f"{without}{error}") from error
    config: dict[str, Any] = family.to_hf(saved) or {}
    if config.get("is_decoder"):
        raise ValueError(
            f"{without}it is made of the parts of {config['model_type']}, as a decoder"
        )
    return family, config


def _pooled_over(ids: TokenIds, config: Mapping[str, Any]) -> dict[str, int]:
    """The ids in config.json by which heads find the token that stands for a row, or a question.

    GPT's is the last that is not padding. It gets the padding of the vocabulary where that is the
    end of texts, with which no row ends, or a token for padding alone.
    """
    named = {"eos_token_id": ids.eos, "sep_token_id": ids.sep}
    of_ids = {name: i for name, i in named.items() if i is not None}
    if config.get("pad_token_id") is None and (ids.pad == ids.eos or ids.pad != ids.unk):
        of_ids["pad_token_id"] = ids.pad
    return of_ids


def _computed_as(make: functools.partial[Any], config: Any) -> functools.partial[Any]:
    """The constructor of a `FineTuned` whose body computes as a configuration says."""
    body, *rest = make.args
    fields = {field.name for field in dataclasses.fields(model_config.of(body))}
    same = {
        name: getattr(config, name)
        for name in _OF_COMPUTING
        if name in fields and hasattr(config, name)
    }
    body = model_config.with_fields(body, same)
    return functools.partial(make.func, body, *rest, **make.keywords)


def _added(saved: Any) -> dict[str, str]:
    """`InitFrom.added` of a model whose parameters say what they are added to."""
    marks = map_variables(
        lambda variable: variable.get_metadata().get("added_to", ""), nnx.state(saved, nnx.Param)
    )
    return {target: path for path, target in by_path(marks).items() if target}


def _renamed(
    saved: Any, model: Any, directory: str, *, copies: Mapping[str, Sequence[str]]
) -> dict[str, str | Sequence[str]]:
    """{pattern: replacements} from the paths of a saved model to those of one with a body.

    The first are those of parameters of which the latter has several `copies`.
    """
    paths = {*by_path(nnx.state(saved, nnx.Param))}
    for pattern, several in copies.items():
        paths = {re.sub(pattern, each, path) for path in paths for each in several}
    tuned = [path for path in by_path(nnx.state(model, nnx.Param)) if path.startswith("body.")]
    # A body that decodes wraps the model that was pretrained: body.model.
    prefixes = [f"{prefix}." for prefix in ("body", "body.model")]
    whole = [prefix for prefix in prefixes if all(path.startswith(prefix) for path in tuned)][-1]
    body = [path.removeprefix(whole) for path in tuned]
    starts = [path.removesuffix(body[0]) for path in paths if f".{path}".endswith(f".{body[0]}")]
    share = {start: sum(f"{start}{path}" in paths for path in body) / len(body) for start in starts}
    best = max(sorted(share), key=lambda start: share[start], default=None)
    if best is None or share[best] < _OF_BODIES:
        raise ValueError(f"{directory}: its parameters are not those of a body with a head")
    rename = {} if best == whole else {f"^{re.escape(best)}": whole}
    has_pooler = any(path.startswith(_POOLER) for path in paths)
    return {
        **copies,
        **rename,
        **({f"^{re.escape(_POOLER)}": "head.pooler."} if has_pooler else {}),
    }
