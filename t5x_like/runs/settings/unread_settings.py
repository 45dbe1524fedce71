"""Errors for a user's settings that would change nothing, before a wrong run starts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import gin

from t5x_like.config import gin_config, t5x_names
from t5x_like.data.vocabulary_choice import VocabularyChoice
from t5x_like.runs.settings import token_counts

if TYPE_CHECKING:
    from t5x_like.config.gin_config import UserSetting
    from t5x_like.config.gin_text import Binding
    from t5x_like.runs.run import Run

_TRAINED = {
    "VOCAB_SIZE": "size",
    "VOCAB_TYPE": "kind",
    **{name: name for name in ("lowercase", "strip_accents", "character_coverage")},
    **{name: name for name in ("byte_fallback", "pattern")},
}
"""Settings of a vocabulary that is trained: {macro, or the name of the field itself: field}."""


_OF_FILES = {
    "field": "CORPUS_FIELD",
    "separator": "CORPUS_SEPARATOR",
    "validation": "CORPUS_VALIDATION",
    "header": "CORPUS_COLUMNS",
    "labels": "CORPUS_LABELS",
}
"""Arguments of `user_corpus` and their macros."""


class UnreadError(ValueError):
    """The user gave a setting that nothing reads."""


class _Unread(NamedTuple):
    """Settings without effect in a run, {macro: field of the class `owner`}, and the reason."""

    fields: Mapping[str, str]
    owner: str
    reason: str


def check(run: Run, given: Sequence[UserSetting]) -> list[str]:
    """Raises UnreadError if the user gave a setting that nothing reads.

    One file may serve several runs: a setting in a file that only another setting makes useless is
    no error, unless it is the objective.

    Args:
      run: the run that gin has just built.
      given: settings of the command line and of the user's files (`gin_config.given_settings`).

    Returns:
      Lines about such settings in files.

    Raises:
      UnreadError: another setting is not read; the message says which, and why.
      ValueError: the model cannot be made, or a name in the run stands for nothing.
    """
    if not given:
        return []
    run.data.task_objectives()  # an unknown name is the first error
    notes, known = [], set()
    for unread in _without_effect(run):
        for setting, file in given:
            if not _is_in(setting, unread) or _value(setting) is None:
                continue
            if file is None or "OBJECTIVE" in unread.fields:
                raise UnreadError(f"{setting} has no effect: {unread.reason}")
            notes.append(f"{setting} of {file} has no effect: {unread.reason}.")
            known.add(setting)
    # The constructor of the model reads settings too; data and optimizer have read theirs.
    gin_config.call(lambda: run.abstract_model)
    for setting, file in given:
        if setting not in known and not _is_read(setting):
            where = f" of {file}" if file else ""
            advice = t5x_names.advice(setting.selector, t5x_names.MACROS)
            raise UnreadError(
                f"nothing reads {setting}{where}: this run does not use it"
                f"{advice}. docs/configuration.md lists the settings"
            )
    return notes


def _is_read(setting: Binding) -> bool:
    """Whether an object that has been built so far has read this setting."""
    operative = gin.config._OPERATIVE_CONFIG
    if not setting.parameter:
        # A number of tokens has become one of steps.
        macro = token_counts.steps_macro(setting.selector) or setting.selector
        return (macro, "gin.macro") in operative
    name = f".{setting.selector}"
    bound = {
        scope
        for (scope, selector), values in gin.config._CONFIG.items()
        if f".{selector}".endswith(name) and setting.parameter in values
    }
    for (scope, selector), values in operative.items():
        if f".{selector}".endswith(name) and setting.parameter in values:
            parts = scope.split("/")
            outer = ["/".join(parts[:n]) for n in range(len(parts) + 1)]
            if [setting.scope] == [outer_scope for outer_scope in outer if outer_scope in bound][
                -1:
            ]:
                return True
    return False


def _is_in(setting: Binding, unread: _Unread) -> bool:
    if not setting.parameter:
        return setting.selector in unread.fields
    return setting.parameter in unread.fields.values() and (
        setting.selector.rpartition(".")[2] == unread.owner
    )


def _value(setting: Binding) -> object:
    """The value of a macro; True for a parameter, which always has one."""
    return True if setting.parameter else gin_config.macro(setting.selector)


def _without_effect(run: Run) -> Iterator[_Unread]:
    """Settings that reach a part of the run, which then does not use them."""
    data, phases = run.data, run.phases
    for macro, field, owner in (
        ("TASK_FEATURE_LENGTHS", "lengths", "Data"),
        ("BATCH_SIZE", "batch_size", "Options"),
        ("OBJECTIVE", "objective", "Data"),
        ("FROZEN", "frozen", "Options"),
        ("LAYER_DECAY", "layer_decay", "Options"),
    ):
        values = [getattr(phase, field) for phase in phases]
        if values and None not in values:
            yield _Unread(
                {macro: field},
                owner,
                f"each phase has its own {field}: {values}. Set those that are to change, such as "
                f"--gin.long/run.Phase.{field}=...",
            )
    if not run.options.eval_period:
        yield _Unread({"EVAL_BATCHES": "eval_batches"}, "Options", "EVAL_PERIOD is 0")
    if run.init_from is None or getattr(data.vocabulary, "name", None) is not None:
        reason = "it adds to the vocabulary of INIT_FROM, which this run does not take"
        yield _Unread({"ADD_TOKENS": "add_tokens"}, "Run", reason)
    if run.init_from is None:
        yield _Unread({"GROW": "grow"}, "Run", "there is no INIT_FROM, a smaller model")
    if run.init_from is None or getattr(data.vocabulary, "name", None) is None:
        reason = "it is for a VOCABULARY that is named, in place of that of INIT_FROM"
        yield _Unread({"EXCHANGE_VOCABULARY": "exchange_vocabulary"}, "Run", reason)
    if data.corpus:
        name = {"MIXTURE_OR_TASK_NAME": "mixture_or_task_name"}
        yield _Unread(name, "Data", f"the run reads CORPUS, which is {data.corpus!r}")
    yield from _file_settings(run)
    if not isinstance(data.corpus, Mapping):
        exponent = {"corpus_exponent": "corpus_exponent"}
        for one in (exponent, {"CORPUS_SHARES": "corpus_shares"}):
            yield _Unread(one, "Data", "CORPUS is not a mixture, {name: files, ...}")
    elif data.corpus_shares is not None:
        reason = f"CORPUS_SHARES gives the shares of its texts: {dict(data.corpus_shares)}"
        yield _Unread({"corpus_exponent": "corpus_exponent"}, "Data", reason)
    if not data.reads_objective():
        named = data.mixture_or_task_name if not data.corpus else data.corpus
        advice = ": name the corpus alone" if "." in str(data.mixture_or_task_name) else ""
        reason = f"the data, {named!r}, has an objective of its own{advice}"
        yield _Unread({"OBJECTIVE": "objective"}, "Data", reason)
    tasks = () if data.is_cache() else data.named_tasks() or ()
    if all(task.sentences is None for task in tasks):
        reason = "the run reads no plain text that could still be cut"
        yield _Unread({"SENTENCES": "sentences"}, "Data", reason)
    yield from _vocabulary_settings(run)


def _file_settings(run: Run) -> Iterator[_Unread]:
    """Settings for reading files that the files of this run do not use."""
    data = run.data
    macros_of_files = {macro: name for name, macro in _OF_FILES.items()}
    if not data.corpus:
        yield _Unread(
            macros_of_files, "user_corpus", "CORPUS is not set, and this is for its files"
        )
        return
    if data.is_cache():
        yield _Unread(
            macros_of_files, "user_corpus", "CORPUS is a cache, whose text is divided already"
        )
        return
    texts = [*data.corpus.values()] if isinstance(data.corpus, Mapping) else []
    for name, macro in {**_OF_FILES, "validation_files": "CORPUS_HELD_OUT"}.items():
        if texts and all(isinstance(text, Mapping) and name in text for text in texts):
            yield _Unread({macro: name}, "user_corpus", f"each text of CORPUS has its own {name}")
    tasks = data.named_tasks() or ()
    corpora = [task.corpus for task in tasks if task.corpus is not None]
    reads = {name for corpus in corpora for name in getattr(corpus, "options_read", _OF_FILES)}
    for name in _OF_FILES.keys() - reads:
        reason = f"the files of {data.corpus!r} have formats that do not use it"
        yield _Unread({_OF_FILES[name]: name}, "user_corpus", reason)


def _vocabulary_settings(run: Run) -> Iterator[_Unread]:
    data, choice = run.data, run.data.vocabulary
    if not isinstance(choice, VocabularyChoice):
        return
    settings = {"VOCABULARY": "name", "extra_ids": "extra_ids", **_TRAINED}
    if data.is_cache():
        yield _Unread(settings, "VocabularyChoice", "a cache has its own vocabulary")
        return
    tasks = data.named_tasks()
    if tasks is None or any(task.tokenized is not None for task in tasks):
        reason = f"the task {data.mixture_or_task_name!r} has its own vocabulary"
        yield _Unread(settings, "VocabularyChoice", reason)
    elif choice.name is not None:
        yield _Unread(_TRAINED, "VocabularyChoice", f"VOCABULARY is set, to {choice.name!r}")
    elif choice.kind != "byte_bpe":
        reason = f"VOCAB_TYPE is {choice.kind!r}, and only 'byte_bpe' has this setting"
        yield _Unread({"pattern": "pattern"}, "VocabularyChoice", reason)
    if choice.name is None and run.init_from is not None:
        yield _Unread(
            _TRAINED,
            "VocabularyChoice",
            f"the vocabulary is that of the parameters in {run.init_from.directory!r}",
        )
