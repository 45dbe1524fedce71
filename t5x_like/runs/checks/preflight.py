"""Checks of a run before it does any work; each error says what to do."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from etils import epath

from t5x_like.core import abilities, whole_files
from t5x_like.core.abilities import (
    AnswersTask,
    AnswersTasks,
    NamesClasses,
    ReadsPackedRows,
    can,
)
from t5x_like.core.buckets import storage
from t5x_like.core.protocols import members
from t5x_like.core.protocols.completers import BatchCompleter
from t5x_like.core.protocols.data import (
    PLAIN_TEXT,
    FeatureConverter,
    FeatureSpec,
    TokenIds,
    names,
)
from t5x_like.core.protocols.model import Model, ModelConfig
from t5x_like.core.spelling import nearest
from t5x_like.data.streams import mixtures
from t5x_like.data.task import in_words
from t5x_like.objectives import presets
from t5x_like.objectives.supervised.labelled_rows import LabelledRows
from t5x_like.runs import run_directory
from t5x_like.training.checkpointing.checkpoints import CheckpointError
from t5x_like.training.checkpointing.ranking import BestMetric

if TYPE_CHECKING:
    from t5x_like.core.protocols.data import Objective
    from t5x_like.data.streams.stream import Examples
    from t5x_like.data.task import Task
    from t5x_like.runs.run import Run
    from t5x_like.training.step import Program

_LONG = 120
_ABOUT = ("config", "texts", "health")
"""The fields in the metadata of a checkpoint besides those on which examples its steps read."""
_HEADS = {
    **dict.fromkeys(
        ("classes", "choices", "numbers", "ordered", "several"),
        "models.finetuned.FineTuned with a SequenceHead",
    ),
    **dict.fromkeys(("tags", "spans"), "models.finetuned.FineTuned with a TokenHead"),
    "searched spans": "models.answering.Answering",
}
"""The models with the heads of `layers.heads` for what an objective asks."""
_KINDS = {
    "encoder_decoder": "an encoder-decoder",
    "encoder": "an encoder",
    "decoder": "a decoder",
}
SOME_IDS = TokenIds(8, bos=3, cls=4, sep=5, mask=6, sentinels=1)
_PADDING_FIELDS = ("pad_id", "padding_position")  # fields of configurations that set the padding


def writable_directory(model_dir: str | None) -> epath.Path:
    """The run's directory; makes it if it is missing.

    Raises:
      ValueError: no directory is named, or Orbax cannot find checkpoints in it.
      OSError: it cannot be written, or a file or folder that training writes is a link.
    """
    if not model_dir:
        raise ValueError(
            "the run has no directory: add --model_dir runs/my_run (a run that is there is resumed)"
        )
    run_directory.check_name(model_dir)
    try:
        directory = storage.path(model_dir)
        whole_files.check_writable(directory)
        if not storage.is_url(directory):
            for place in (*directory.iterdir(), *directory.glob("*/*")):
                whole_files.check_no_link(place, inside=directory)
    except OSError as error:
        raise OSError(
            f"MODEL_DIR {model_dir!r} cannot be written: "
            + whole_files.refusal(error, otherwise="choose another with --model_dir")
        ) from error
    return directory


def vocabulary_fits(model: Model, ids: int, pad: int | None = None) -> None:
    """Raises ValueError if a model cannot read a vocabulary.

    Args:
      model: the model; its parameters may be abstract.
      ids: the number of ids in the vocabulary; each needs a row in the embedding.
      pad: the padding id of the vocabulary, which must be that of a model that knows padding by its
        id; None if the vocabulary is still to be trained, with padding 0.
    """
    rows = model.config.vocab_size
    family = type(model.config).__module__.rpartition(".")[2]
    if ids > rows:
        needed = -(-ids // 128) * 128
        raise ValueError(
            f"the vocabulary has {ids} ids but the model's embedding only "
            f"{rows} rows: set --gin.{family}.Config.vocab_size={needed}, or choose a smaller "
            "vocabulary"
        )
    padding, pad = model.padding, pad or 0
    if padding is not None and pad != padding:
        known = vars(model.config).keys()
        fields = [name for name in _PADDING_FIELDS if name in known]
        remedy = (
            f"set --gin.{family}.Config.{fields[0]}={pad}"
            if fields
            else "choose a vocabulary with that padding, such as one that `t5x_like vocab` trains"
        )
        raise ValueError(
            f"this model takes id {padding} for padding, but the vocabulary pads with {pad}, so "
            f"padding would be read as text: {remedy}"
        )


def parts_complete(run: Run) -> None:
    """Raises ValueError if a part of the run lacks an attribute that a run uses."""
    model = run.abstract_model
    members.check(model, Model)
    members.check(run.feature_converter, FeatureConverter)
    abilities.check(model)
    if run.completer is not None:
        members.check(run.completer, BatchCompleter)
        run.completer.check_model(model)
    of_model = f"the configuration of {type(model).__name__}"
    members.check(model.config, ModelConfig, name=of_model)


def kinds_fit(run: Run, objectives: Iterable[Objective]) -> None:
    """Raises ValueError if examples are for another kind of model than the run's rows."""
    rows = run.feature_converter.kind
    for objective in objectives:
        kind = objective.kind
        if rows == kind:
            continue
        other = ""
        if objective.reads != PLAIN_TEXT:
            other = ", or the field of a file that holds plain text (CORPUS_FIELD)"
        fitting = ", ".join(name for name, preset in presets().items() if preset.kind == rows)
        raise ValueError(
            f"the kinds do not fit: examples of {objective} are for {_KINDS[kind]}, but the rows "
            f"of this model are those of {_KINDS[rows]} ({run.feature_converter}). Choose an "
            f"objective for it (--gin.OBJECTIVE=\"'NAME'\": {fitting}){other}, or a model "
            "of the other kind"
        )


def classes_fit(model: Model, tasks: Sequence[Task]) -> None:
    """Raises ValueError if the classes of a text are not those that a model's head names."""
    if can(model, AnswersTasks):
        for task in tasks:
            classes_fit(model.of_task(task.name), [task])  # type: ignore[attr-defined]
        return
    if not can(model, NamesClasses):
        return
    first = tasks[0]
    for task in tasks:
        if task.label_names != first.label_names:
            raise ValueError(
                f"tasks {first.name!r} and {task.name!r} have other labels ({first.label_names} "
                f"and {task.label_names}): one head has the classes of all tasks"
            )
        for column, known in task.label_names.items():
            if len(known) != model.num_labels:  # type: ignore[attr-defined]
                some = ", ".join([*known[:6], *["..."] * (len(known) > 6)])
                raise ValueError(
                    f"column {column!r} of {task.name} has {len(known)} classes ({some}), but the "
                    f"head names {model.num_labels}: set its num_labels to {len(known)}"  # type: ignore[attr-defined]
                )


def step_works(
    run: Run, program: Program, objective: Objective, lengths: Mapping[str, int]
) -> None:
    """Traces a training step on a row of padding, which has every array of a real one.

    Raises:
      ValueError: the model, the converter, the objective or the optimizer fails on it.
    """
    features = row_features(objective, lengths)
    _labels_fit(run.abstract_model, objective, features)
    try:
        program.trace(run.feature_converter.convert([], features=features, ids=SOME_IDS))
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"the parts of this run do not fit each other: {type(error).__name__}: {error}. Its "
            f"rows are made by {run.feature_converter} from {', '.join(features)}"
        ) from error


def _labels_fit(model: Model, objective: Objective, features: Collection[str]) -> None:
    """Raises ValueError if a head has no labels to learn from, or labels no head of their kind."""
    name, learns = type(model).__name__, type(objective).__name__
    if can(model, AnswersTasks):
        forms = {model.of_task(task).answer_form for task in model.tasks}  # type: ignore[attr-defined]
        if objective.answers not in forms:
            raise ValueError(f"{learns} learns {objective.answers}, but no head of a {name} does")
        return
    form = model.answer_form if can(model, AnswersTask) else None  # type: ignore[attr-defined]
    named = form if form in _HEADS else None
    if objective.answers in _HEADS and objective.answers != named:
        other = "none" if named is None else named
        raise ValueError(
            f"{learns} learns {objective.answers}, but a {name} names {other}: give its body a "
            f"head ({_HEADS[objective.answers]})"
        )
    if named is not None and not {"labels", "start_positions"} & {*features}:
        preset = named.replace(" ", "_")
        columns = " and ".join(names(presets()[preset].reads))
        raise ValueError(
            f"a {name} with a head for {named} learns from labels, but {learns} makes none of "
            f"{in_words(objective.reads)}: choose --gin.OBJECTIVE=\"'{preset}'\", and a text with "
            f"the columns {columns} (CORPUS_FIELD names others)"
        )


def row_features(objective: Objective, lengths: Mapping[str, int]) -> dict[str, FeatureSpec]:
    """The features of an objective's examples.

    Raises:
      ValueError: the lengths do not fit the objective.
    """
    objective.geometry(lengths)
    return dict(objective.features(lengths))


def lengths_given(feature_converter: FeatureConverter, lengths: Mapping[str, int]) -> None:
    """Raises ValueError if a feature that the model reads has no length."""
    if missing := set(feature_converter.task_features) - set(lengths):
        raise ValueError(
            f"TASK_FEATURE_LENGTHS lacks {', '.join(sorted(missing))}; it is {dict(lengths)}. The "
            f"model's rows are made by {feature_converter}: an objective without such a feature is "
            "for another kind of model; choose one for this kind (`t5x_like objectives NAME` says "
            "which), or set the length"
        )


def packed(run: Run, objectives: Iterable[Objective]) -> None:
    """Raises ValueError if rows cannot be packed so, or are to be grouped by their length."""
    if not run.feature_converter.pack:
        return
    if run.options.group_by_length:
        raise ValueError(
            "GROUP_BY_LENGTH is for rows of one text each, and packed rows have one length: set it "
            "to False"
        )
    labelled = any(isinstance(objective, LabelledRows) for objective in objectives)
    if labelled and not can(run.abstract_model, ReadsPackedRows):
        raise ValueError(
            f"a {type(run.abstract_model).__name__} with this body reads one labelled text in a "
            "row: set pack of its feature converter (PACK) to False"
        )


def examples_read(feature_converter: FeatureConverter, examples: Iterable[Examples]) -> None:
    """Raises ValueError if a model's rows need a feature that a task's examples lack."""
    for task in (part.task for part in examples):
        if missing := set(feature_converter.task_features) - task.features.keys():
            raise ValueError(
                f"the model's rows are made by {feature_converter}, but an example of task "
                f"{task.name!r} under {task.objective} has no {', '.join(sorted(missing))}: choose "
                "an objective for this kind of model (`t5x_like objectives NAME` says which)"
            )


def evaluated(run: Run, tasks: Iterable[Task]) -> None:
    """Raises ValueError if the run needs an evaluation that it does not have.

    The task in BEST_METRIC must be evaluated; evaluations tell whether there is such a metric.
    """
    best = BestMetric.parse(run.options.best_metric)
    names = [task.name for task in tasks if task.has("validation")] * bool(run.options.eval_period)
    if run.options.early_stopping and not names:
        raise ValueError(
            "EARLY_STOPPING needs evaluations: hold text out (a split 'validation') and set "
            "EVAL_PERIOD above 0"
        )
    for named in best.names:
        task_name, slash, _ = named.partition("/")
        if slash and task_name not in names:
            raise ValueError(
                f"BEST_METRIC is {named!r}, but no task {task_name!r} is evaluated"
                + nearest(task_name, names, of="tasks")
            )


def same_run(
    mine: Mapping[str, Any],
    saved: Mapping[str, Any] | None,
    *,
    allow_change: frozenset[str],
    whole: bool = False,
    unreached: Collection[str] = (),
) -> None:
    """Refuses to resume if the examples, their noise, their ids or the seed would differ.

    Args:
      mine: `seed`, `batch_size`, `vocabulary`, `adapt.*` and `data.*` of the run that starts, or
        some of them.
      saved: the metadata of the checkpoint that it would resume; None if there is none.
      allow_change: first parts of names that may differ, such as `data`.
      whole: whether `mine` is complete, so that it must have all the saved names.
      unreached: labels of phases that begin after the last step; `mine` has no values of them.

    Raises:
      CheckpointError: another value differs; the message says which, and what to do.
    """
    if saved is None:
        return
    saved = mixtures.identity_now(saved)
    gone = [name for name in saved if name not in mine and name not in _ABOUT] if whole else []
    # The metadata has no values of phases that the saved run did not reach.
    reached = {_phase(name) for name in saved}
    different = [
        name
        for name in (*mine, *gone)
        if saved.get(name) != mine.get(name)
        and name.partition(".")[0] not in allow_change
        and _phase(name) in reached.difference(unreached)
    ]
    if not different:
        return
    lines = [
        "  {}: {} then, {} now".format(name, *_brief(str(saved.get(name)), str(mine.get(name))))
        for name in different
    ]
    message = ["MODEL_DIR holds a run with other data or seeds:", *lines]
    if any(name == "vocabulary" or name.endswith(".text") for name in different):
        message.append(
            "(The text of stdlib_docs, and a vocabulary of it, change with the Python version.)"
        )
    message.append("Choose another MODEL_DIR, or undo the change")
    kinds = dict.fromkeys(name.partition(".")[0] for name in different)
    if not {"vocabulary", "adapt"} & kinds.keys():
        message[-1] += f"; or continue anyway with --allow_change={','.join(kinds)}"
    raise CheckpointError("\n".join(message) + ".")


def _phase(name: str) -> str:
    """The phase in a name: `phase_2` in `data.phase_2.lengths`; "" for the first phase."""
    part = name.split(".")[1] if "." in name else ""
    return part if part.startswith("phase_") else ""


def _brief(*texts: str) -> list[str]:
    """Texts that differ; of long ones, a part that begins a little before the difference."""
    if max(map(len, texts)) <= _LONG:
        return list(texts)
    places = enumerate(zip(*texts, strict=False))
    different = next(
        (i for i, characters in places if len(set(characters)) > 1), min(map(len, texts))
    )
    first = max(0, different - _LONG // 3)
    last = first + _LONG
    return ["..." * (first > 0) + text[first:last] + "..." * (last < len(text)) for text in texts]
