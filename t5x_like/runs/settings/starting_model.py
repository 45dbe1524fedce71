"""The model that a run starts from, as INIT_FROM names it: where it is, its sizes, its ids."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from t5x_like.core.buckets import storage
from t5x_like.data.vocabulary_choice import VocabularyChoice
from t5x_like.interop.tokenizers import added
from t5x_like.layers.attention.multi_head import head_width
from t5x_like.layers.stacks.transformer_config import Transformer
from t5x_like.runs import model_config, run_directory, saved_model
from t5x_like.runs.settings import imported

if TYPE_CHECKING:
    from t5x_like.core.protocols.data import Vocabulary
    from t5x_like.runs.init_from import InitFrom
    from t5x_like.runs.run import Run

_OF_THE_RUN = frozenset(
    """
    activation_dropout_rate attention_dropout_rate cosine_weight discriminator_weight dropout_rate
    dtype exclude_original initializer init_std kernel kl_of_masked_only kl_weight label_smoothing
    mem_len mlm_weight remat reuse_len scan_unroll sentence_head temperature tied_global z_loss
    """.split()
)
"""Fields of models that say how they are trained and computed, and which heads they have."""


def opened(run: Run) -> tuple[InitFrom | None, list[str]]:
    """The model that the run starts from, imported if it is Hugging Face's, and notes about it.

    Raises:
      OSError, ValueError: as in `imported.directory`.
    """
    start = run.init_from
    if start is None or start.directory is None or begun(run):
        return start, []
    directory, notes = imported.directory(start.directory, run.data.cache_dir)
    return dataclasses.replace(start, directory=directory), [f"{note}." for note in notes]


def vocabulary(run: Run) -> Vocabulary | None:
    """The vocabulary of the model that the run starts from, with the tokens of `add_tokens`.

    Raises:
      OSError, ValueError: there are tokens to add, and no vocabulary, or none that can have them.
    """
    assert run.init_from is not None
    saved = run.init_from.vocabulary()
    if run.add_tokens is None:
        return saved
    if saved is None:
        raise ValueError(
            f"{run.init_from.directory} has no vocabulary that could get the tokens of "
            f"{run.add_tokens}: import it again with --vocabulary"
        )
    return added.with_tokens(saved, added.read(run.add_tokens))


def follow(run: Run) -> list[str]:
    """Sets the sizes in the process's gin configuration.

    Args:
      run: the run that it describes.

    Returns:
      Lines about the changes and about tokens that are added; none where nothing changes.

    Raises:
      ValueError: the two models are of different families, or the user has given other sizes.
      OSError: the file of tokens to add cannot be read.
    """
    start = run.init_from
    if start is None or start.directory is None:
        return []
    has_begun = begun(run)
    ids, lines = (0, []) if has_begun else _ids(run)
    if not start.model:
        return lines
    directory = run.model_dir if has_begun and run.model_dir else start.directory
    config = model_config.of(saved_model.constructor(directory), directory)
    ours = model_config.of(run.model)
    if _of_parameters(config) is not _of_parameters(ours):
        family, other = map(model_config.family, (ours, config))
        raise ValueError(
            f"this run trains a model of the family {family}, and {directory} has one of the "
            f"family {other}: choose a recipe of that family (`t5x_like recipes`)"
        )
    rows = max(config.vocab_size, ids)
    if start.exchange and not has_begun:
        rows = model_config.rows(ids, config.vocab_size)
    config = dataclasses.replace(config, vocab_size=rows)
    shared = {field.name for field in dataclasses.fields(ours)} - _OF_THE_RUN
    changed = {
        field.name: getattr(config, field.name)
        for field in dataclasses.fields(config)
        if field.name in shared and getattr(config, field.name) != getattr(ours, field.name)
    }
    for name in model_config.given(ours) & changed.keys():
        raise ValueError(
            f"{model_config.selector(ours)}.{name} is given, and is {changed[name]!r} in "
            f"{directory}, whose sizes INIT_FROM takes: leave it out, or name the parameters alone "
            "with @init_from.InitFrom()"
        )
    if not changed:
        return lines
    sizes = model_config.bind(ours, changed, where=f"the sizes of {directory}")
    return [*lines, f"As in {directory}: {sizes}."]


def _of_parameters(config: Any) -> type:
    """The class of configurations whose models have the same parameters by name."""
    other = config.parameters_of if isinstance(config, Transformer) else None
    return other or type(config)


def check_heads(run: Run) -> None:
    """Raises ValueError where a model cannot grow from one whose heads have another width."""
    start = run.init_from
    if start is None or not start.grow:
        return
    ours = head_width(run.abstract_model)
    theirs = head_width(saved_model.abstract_model(start.directory or ""))
    if ours != theirs:
        raise ValueError(
            f"a model grows by more heads of the same width: {ours} in this run, and {theirs} in "
            f"{start.directory}"
        )


def begun(run: Run) -> bool:
    """Whether the run's directory has a run already, which keeps what it began with."""
    return run.model_dir is not None and run_directory.has_config(storage.path(run.model_dir))


def _ids(run: Run) -> tuple[int, list[str]]:
    """The number of ids, as far as it is known by now, and a line about new tokens."""
    choice = run.data.vocabulary
    if isinstance(choice, VocabularyChoice) and choice.name is not None:
        return choice.ids(), []
    if run.add_tokens is None:
        return 0, []
    assert run.init_from is not None
    before, after = run.init_from.vocabulary(), vocabulary(run)
    assert before is not None
    assert after is not None
    tokens, new = len(added.read(run.add_tokens)), after.vocab_size - before.vocab_size
    rest = f"; {tokens - new:,} were one id already" if new < tokens else ""
    return after.vocab_size, [
        f"Adds {new:,} of the {tokens:,} tokens in {run.add_tokens}, from id "
        f"{before.vocab_size:,}{rest}."
    ]
