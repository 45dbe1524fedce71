"""Puts a run's parts together and hands them to the training loop."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import jax
from etils import epath
from flax import nnx

from t5x_like.config import gin_text
from t5x_like.core.abilities import AnswersTasks, can
from t5x_like.core.protocols.tasks import of_task
from t5x_like.data.samples.passes import Passes
from t5x_like.data.vocabulary_choice import KnownVocabulary, VocabularyChoice
from t5x_like.evaluation.tasks import one_target
from t5x_like.runs import run_directory
from t5x_like.runs.checks import machines, outside_paths, preflight, teaching
from t5x_like.runs.phases import RunPhase, base_checkpoints, run_phases
from t5x_like.runs.program import Programs
from t5x_like.runs.run import Run
from t5x_like.runs.run_text import run_text
from t5x_like.runs.settings import starting_model
from t5x_like.training import loop, step
from t5x_like.training.callbacks import Callback, Callbacks
from t5x_like.training.checkpointing.checkpoints import Checkpoints
from t5x_like.training.completion import Completion
from t5x_like.training.compute_parameters import narrowest_dtype
from t5x_like.training.health.bad_steps import BadStepError
from t5x_like.training.health.rolling_back import RollBacks
from t5x_like.training.health.watch import Watch
from t5x_like.training.hosts import code_version, environments, inventory
from t5x_like.training.hosts.agreement import agree
from t5x_like.training.logs.ledger import Ledger
from t5x_like.training.logs.run_log import RunLog

if TYPE_CHECKING:
    from t5x_like.core.protocols.data import Vocabulary
    from t5x_like.data.streams.stream import Examples
    from t5x_like.data.task import Task
    from t5x_like.runs.batches import PhaseBatches


def pretrain(run: Run, config: str | None = None, **options: Any) -> loop.Outcome:
    """Starts, resumes or extends `run` and trains to its end; arguments are those of `steps`."""
    return loop.outcome(steps(run, config, **options))


def steps(
    run: Run,
    config: str | None = None,
    *,
    allow_change: frozenset[str] = frozenset(),
    notes: Sequence[str] = (),
    callbacks: Sequence[Callback] = (),
    programs: Programs | None = None,
) -> Generator[loop.Step, None, loop.Outcome]:
    """Starts, resumes or extends `run`, step by step.

    Args:
      run, config: the run; its gin text, which is saved, or None for that of `run_text`.
      allow_change: the settings that a resumed run may change (`preflight.same_run`).
      notes: lines for the log.
      callbacks, programs: what it calls while it trains; what it shares with runs of this process.

    Yields:
      Each step as it is taken; leaving the loop saves it (`loop.steps`).

    Returns:
      How training ended, and at which step.

    Raises:
      ValueError, OSError: the run cannot work; earlier checkpoints are unchanged.
      ProcessError: the processes have different settings, code or data.
    """
    ledger = Ledger()
    programs = programs or Programs()
    config, unsaid = _config_text(run) if config is None else (config, [])
    notes = [*notes, *unsaid]
    agree_on(run, config)
    model_dir = preflight.writable_directory(run.model_dir)
    with run_directory.sole_run(model_dir):
        earlier = RollBacks(model_dir)
        while True:
            log = RunLog(model_dir, total_steps=run.options.train_steps, ledger=ledger)
            with log:
                parts = _parts(
                    run, config, model_dir, programs, notes, allow_change=allow_change, log=log
                )
                try:
                    return (
                        yield from loop.steps(
                            **parts,
                            watch=Watch(
                                log,
                                run.options,
                                safeguards=run.options,
                                times_bad=earlier.times,
                                callback=Callbacks(callbacks),
                            ),
                        )
                    )
                except BadStepError as error:
                    if run.options.bad_numbers != "roll_back" or not earlier.add(error):
                        raise
                    ledger = Ledger()
                    notes = [f"Goes back before step {error.step}: {error.what}."]


def _config_text(run: Run) -> tuple[str, list[str]]:
    """The configuration of a run that was made in Python, and notes for its user."""
    try:
        return run_text(run), []
    except ValueError as error:
        reason = f"eval, predict and export will not open this run: {error}"
        return f"# {reason}\n", [reason]


def agree_on(run: Run, config: str) -> None:
    """Raises ProcessError if processes have other environments, configurations or code."""
    environments.compare()
    agree("the configuration", config.splitlines())
    agree("the code", [*code_version.lines(_modules(run, config))])


def _modules(run: Run, config: str) -> list[str]:
    """The user's modules that the run uses."""
    named = [run.data.mixture_or_task_module] if run.data.mixture_or_task_module else []
    return named + [
        module for module in gin_text.read(config).modules if not module.startswith("t5x_like.")
    ]


def _parts(
    run: Run,
    config: str,
    model_dir: epath.Path,
    shared: Programs,
    notes: Sequence[str],
    *,
    allow_change: frozenset[str],
    log: RunLog,
) -> dict[str, Any]:
    """The arguments of `loop.steps`; makes missing data, and runs all checks before training."""
    before = Checkpoints(run_directory.checkpoints(model_dir))
    saved = before.metadata()
    fresh = saved is None
    run = _with_vocabulary(run, model_dir, fresh=fresh)
    all_phases = run_phases(run)
    phases = [phase for phase in all_phases if phase.start < run.options.train_steps]
    programs = shared.of([phase.run for phase in phases])
    for phase, program in zip(phases, programs, strict=True):
        phase.check_program(program)
    hosts = inventory.all_hosts()
    _note_machines(hosts, model_dir, programs[0].abstract_state, log)
    unreached = [phase.label for phase in all_phases if phase not in phases]
    same = functools.partial(preflight.same_run, allow_change=allow_change, unreached=unreached)
    usable = _usable(run, programs[0], fresh=fresh)
    tasks = [phase.open_data(lambda facts: same(facts, saved), usable) for phase in phases]
    identity: dict[str, Any] = {}
    for phase, opened in zip(phases, tasks, strict=True):
        identity |= phase.identity(opened)
    agree("the data", [f"{name} = {value!r}" for name, value in identity.items()])
    same_whole = functools.partial(same, identity, whole=True)
    same_whole(saved)
    preflight.classes_fit(run.abstract_model, [*itertools.chain(*tasks)])
    for phase, opened in zip(phases, tasks, strict=True):
        preflight.evaluated(phase.run, opened)
    outside_paths.remember(run)
    batches = _batches(phases, tasks, programs, log=log)
    summary = [*_summary(run, model_dir, batches), *_untaught(batches)]
    for line in (*_devices(hosts), *summary, *notes, *_unreached_notes(all_phases[len(phases) :])):
        log.message(line)
    vocabulary = tasks[0][0].vocabulary
    checkpoints = Checkpoints(
        before.directory,
        keep=run.options.checkpoints_kept,
        best_metric=run.options.best_metric,
        check=same_whole,
        bases=base_checkpoints(run, programs, vocabulary, saved=before.bases(), log=log),
    )
    log.describe(_about(run, batches, hosts), checkpoints.saved)
    return {
        "phases": batches,
        "key": jax.random.key(run.options.seed),
        "checkpoints": checkpoints,
        "metadata": {**identity, "texts": _sizes(itertools.chain(*tasks)), "config": config},
        "initial": _initial(run, programs[0], vocabulary, log),
        # Not earlier: a run that cannot resume the one in the directory must not change it.
        "before_training": functools.partial(_write_directory, model_dir, config, run, tasks[0]),
    }


def _note_machines(
    hosts: Sequence[inventory.Host], model_dir: epath.Path, state: step.TrainState, log: RunLog
) -> None:
    for finding in (*machines.clocks(hosts), *machines.room(model_dir, state, hosts)):
        if finding.state != "good":
            log.message(f"Note: {finding}.")


def _write_directory(model_dir: epath.Path, config: str, run: Run, tasks: Sequence[Task]) -> None:
    labels = tasks[0].label_names
    if can(run.abstract_model, AnswersTasks):
        labels = {
            of_task(task.name, column): names
            for task in tasks
            for column, names in task.label_names.items()
        }
    run_directory.write(model_dir, config=config, vocabulary=tasks[0].vocabulary, labels=labels)


def _sizes(tasks: Iterable[Task]) -> dict[str, dict[str, int]]:
    """The documents (or examples) and tokens of each training text, by the name of its task."""
    return {
        task.name: {
            "documents": task.documents(),
            "tokens": task.tokens(),
        }
        for task in tasks
        if task.cache is not None and task.has("train")
    }


def _about(
    run: Run, batches: Sequence[PhaseBatches], hosts: Sequence[inventory.Host]
) -> dict[str, Any]:
    """The facts that `summary.json` has (`about.known`)."""
    return {
        "hosts": [dataclasses.asdict(host) for host in hosts],
        "versions": code_version.versions() | hosts[0].versions,
        "code": {**code_version.commit(), "digest": code_version.digest()},
        "parameters": batches[0].program.parameter_count,
        "train_steps": run.options.train_steps,
        "best_metric": run.options.best_metric,
        "phases": [
            {
                "start": part.start,
                "batch_size": part.run.options.batch_size,
                "texts": {
                    examples.task.name: {
                        "tokens": int(examples.task.tokens()),
                        "rows": _rows_of_epoch(examples),
                        "share": share,
                    }
                    for examples, share in part.shares()
                },
            }
            for part in batches
        ],
    }


def _rows_of_epoch(examples: Examples) -> int | None:
    """The rows of the first epoch; None where to count them takes long."""
    if isinstance(examples.samples, Passes) and not examples.samples.is_planned:
        return None
    return int(examples.epochs.epoch_of(0).size)


def _devices(hosts: Sequence[inventory.Host]) -> Iterator[str]:
    """Lines about what the hosts have, and what they have and do not use."""
    parts = [inventory.summary(hosts), inventory.peak_line(hosts)]
    yield f"Finds {', '.join(filter(None, parts))}."
    yield from dict.fromkeys(f"Note: {line}" for host in hosts for line in host.unused)


def _text(examples: Examples, rows: float) -> str:
    """The size of a training text, and the epochs for which a phase reads it in so many rows."""
    task = examples.task
    text = f"{task.tokens():,} tokens"
    if size := _rows_of_epoch(examples):
        text += f", {size:,} rows, {rows / size:.3g} epochs"
    return f"{task.name} ({text})"


def _summary(run: Run, model_dir: epath.Path, batches: Sequence[PhaseBatches]) -> Iterator[str]:
    """Lines about the data, the model, the devices and the directory of a run."""
    ends = [*(part.start for part in batches[1:]), run.options.train_steps]
    for part, end in zip(batches, ends, strict=True):
        rows = (end - part.start) * part.run.options.batch_size
        texts = [_text(examples, rows * share) for examples, share in part.shares()]
        when = f"Steps {part.start + 1:,} to {end:,} read" if len(batches) > 1 else "Reads"
        yield f"{when} {', '.join(texts)}."
        if evaluated := part.evaluated():
            yield f"Evaluates on held-out rows of {', '.join(evaluated)}."
    parts = {part.run.options.microbatches or 1 for part in batches} - {1}
    cut = f" in {' or '.join(map(str, sorted(parts)))} microbatches" if parts else ""
    mesh = ", ".join(f"{axis}={n}" for axis, n in run.layout.mesh.shape.items() if n > 1)
    device = run.layout.mesh.devices.flat[0]
    dtype = narrowest_dtype(nnx.state(run.abstract_model, nnx.Param))
    yield (
        f"Trains {type(run.abstract_model).__name__} in {dtype} on {run.layout.mesh.size} "
        f"{device.device_kind} ({mesh or 'one device'}), {run.options.train_steps:,} steps of "
        f"{run.options.batch_size:,} rows{cut}; writes to {model_dir}."
    )
    yield from (f"Note: {line}." for line in teaching.of_precision(dtype))


def _untaught(batches: Sequence[PhaseBatches]) -> list[str]:
    """Notes about what the training texts do not teach; phases of one text share them."""
    lines = []
    for part in batches:
        chosen = part.run.data.chosen_objective
        for examples in part.train:
            lines += [*teaching.of_columns(examples.task, chosen), *teaching.notes(examples)]
    return [f"Note: {line}." for line in dict.fromkeys(lines)]


def _unreached_notes(phases: Sequence[RunPhase]) -> list[str]:
    return [
        f"Phase {phase.number + 1} is never reached: it begins after step {phase.start}."
        for phase in phases
    ]


def _batches(
    phases: Sequence[RunPhase],
    tasks: Sequence[tuple[Task, ...]],
    programs: Sequence[step.Program],
    *,
    log: RunLog,
) -> list[PhaseBatches]:
    """The batches of each phase, checked; a note in the log if evaluation lacks text."""
    parts = [*zip(phases, tasks, programs, strict=True)]
    batches = [phase.batches(opened, program) for phase, opened, program in parts]
    for part in batches[1:]:
        part.check()  # otherwise errors would come only when the phase begins
    run = phases[0].run
    complete = Completion(None if run.completer is None else run.completer.open(run.layout))
    batches = [dataclasses.replace(part, complete=complete) for part in batches]
    if run.options.eval_period and not all(part.validation for part in batches):
        log.message("No held-out documents, so no evaluation.")
    held_out = [examples for part in batches for examples in part.validation]
    for line in dict.fromkeys(one_target.of_rows(rows, "validation") for rows in held_out):
        if line is not None:
            log.message(line)
    return [
        dataclasses.replace(
            part,
            task_evaluation=phase.task_evaluation(opened, program, log.message),
            log_baselines=log.baselines,
        )
        for part, (phase, opened, program) in zip(batches, parts, strict=True)
    ]


def _with_vocabulary(run: Run, model_dir: epath.Path, *, fresh: bool) -> Run:
    """The run; if it names no vocabulary, it has that of the parameters it starts from."""
    choice = run.data.vocabulary
    if run.init_from is None or not isinstance(choice, VocabularyChoice) or choice.name is not None:
        return run
    vocabulary = (
        starting_model.vocabulary(run) if fresh else run_directory.read_vocabulary(model_dir)
    )
    if vocabulary is None:
        raise ValueError(
            f"{run.init_from.directory} has parameters but no vocabulary, and a new one would give "
            "its ids other meanings: set VOCABULARY to the one it was trained with, or import it "
            "again with --vocabulary"
        )
    return run.with_parts(
        data=dataclasses.replace(run.data, vocabulary=KnownVocabulary(vocabulary))
    )


def _usable(run: Run, program: step.Program, *, fresh: bool) -> Callable[[Vocabulary], None]:
    """A check of the run's vocabulary; checks the parameters that the run starts from."""
    if run.init_from is None or not fresh:
        return lambda vocabulary: None
    starting_model.check_heads(run)
    run.init_from.check(program)
    return functools.partial(run.init_from.check_vocabulary, program=program)


def _initial(
    run: Run, program: step.Program, vocabulary: Vocabulary, log: RunLog
) -> Callable[[Any], Any] | None:
    if run.init_from is None:
        return None
    return functools.partial(run.init_from.apply, program=program, vocabulary=vocabulary, log=log)
