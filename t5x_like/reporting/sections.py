"""The parts of a report about one run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from t5x_like.reporting.markup import (
    bar,
    count,
    duration,
    folded,
    heading,
    short,
    table,
    text,
)
from t5x_like.reporting.run_files import RunFiles
from t5x_like.training.logs.energy import Assumptions, energy
from t5x_like.training.logs.summary import utc

_LOG_LINES = 200


def about_run(run: RunFiles, given: Assumptions, samples: Iterable[str] = ()) -> Iterator[str]:
    """All parts about a run, as HTML; `samples` are the parts about samples."""
    yield heading(run.name, 1)
    yield f'<p class="faint">{text(run.directory)}</p>'
    yield from (f'<p class="note">{text(line)}</p>' for line in run.missing)
    yield from _wall_time(run)
    yield from _texts(run)
    yield from _energy(run, given)
    yield from _starts(run)
    yield from _evaluation(run)
    yield from samples
    yield from _checkpoints(run)
    yield from _versions(run)
    if run.config is not None:
        yield heading("Configuration")
        yield folded("config.gin", run.config)
    if run.log:
        yield heading("Messages")
        lines = run.log.splitlines()
        yield folded("the last lines of log.txt", "\n".join(lines[-_LOG_LINES:]))


def _wall_time(run: RunFiles) -> Iterator[str]:
    if not run.starts:
        return
    yield heading("Wall time")
    yield bar({kind: run.number("seconds", kind) or 0.0 for kind in run.numbers["seconds"]})
    notes = [
        "Of a start that was killed, the time after its last line in starts.jsonl is not known: "
        "a hundredth of its time or a minute, whichever is less, and a period of the log at most.",
        "While the host waits for a batch, devices may still work on the step before it.",
    ]
    if unrecorded := run.number("unrecorded_steps"):
        notes.append(
            f"{count(unrecorded)} steps are not in starts.jsonl: older versions took them, or its "
            "lines were lost. They are in no number of time, tokens, FLOPs and energy."
        )
    yield from (f'<p class="faint">{text(line)}</p>' for line in notes)


def _texts(run: RunFiles) -> Iterator[str]:
    phases = run.about.get("phases")
    if not phases:
        return
    yield heading("Text")
    names = dict.fromkeys(name for phase in phases for name in phase["texts"])
    yield table(
        (
            (
                name,
                count(run.number("texts", name, "tokens")),
                count(run.number("texts", name, "rows")),
                short(run.number("texts", name, "epochs")),
            )
            for name in names
        ),
        header=("text", "tokens of an epoch", "rows read", "epochs"),
        numbers=True,
    )
    if len(phases) > 1:
        yield table(
            ((n, phase["start"] + 1, phase["batch_size"]) for n, phase in enumerate(phases, 1)),
            header=("phase", "first step", "rows of a step"),
            numbers=True,
        )


def _energy(run: RunFiles, assumed: Assumptions) -> Iterator[str]:
    if not run.starts:
        return
    figures = energy(run.starts, assumed)
    yield heading("Energy and emissions")
    rows = [("device hours", short(figures["device_hours"]))]
    if figures["kwh"] is not None:
        rows += [
            ("energy", short(1000 * figures["kwh"], "Wh")),
            ("emissions", short(1000 * figures["kg_co2e"], "g CO2e")),
            *(
                (f"  {part}, before PUE", short(1000 * value, "Wh"))
                for part, value in figures["kwh_of"].items()
                if value
            ),
        ]
    yield table(rows)
    notes = [
        f"PUE {assumed.pue:g} and {assumed.kg_per_kwh:g} kg CO2e for a kWh (assumed; --pue, "
        "--kg_co2e_per_kwh). The defaults, and the formula PUE x time x (processors + memory + "
        "devices), are of Strubell et al. (2019).",
        *figures["basis"],
    ]
    yield "<ul>" + "".join(f"<li>{text(line)}</li>" for line in notes) + "</ul>"


def _starts(run: RunFiles) -> Iterator[str]:
    if not run.starts:
        return
    yield heading("Starts")
    last = run.starts[-1]
    yield table(
        (
            (
                start.number,
                utc(start.begun),
                duration(sum(start.seconds.values())),
                f"{start.from_step:,} to {start.to_step:,}",
                count(start.to_step - start.kept_step),
                start.status or ("running, or killed" if start is last else "killed"),
            )
            for start in run.starts
        ),
        header=("start", "begun", "wall time", "steps", "steps lost", "ended"),
    )


def _evaluation(run: RunFiles) -> Iterator[str]:
    if not run.evaluations:
        return
    step = max(run.evaluations)
    yield heading(f"Evaluation after {step:,} steps")
    rows = []
    for name, value in run.evaluations[step].items():
        _, values = run.curves.baselines.get(f"eval/{name}", ([], []))
        rows.append((name, f"{value:.4f}", f"{values[-1]:.4f}" if values else ""))
    yield table(rows, header=("metric", "model", "frequencies alone"), numbers=True)


def _checkpoints(run: RunFiles) -> Iterator[str]:
    if not run.checkpoints:
        return
    yield heading("Checkpoints")
    names = dict.fromkeys(
        name for metrics in run.checkpoints.values() for name in metrics if name != "phase"
    )
    rows = [
        (
            f"{step}, the best" if step == run.best else step,
            *(f"{metrics[name]:.4f}" if name in metrics else "" for name in names),
        )
        for step, metrics in run.checkpoints.items()
    ]
    best = None if run.best is None else [*run.checkpoints].index(run.best)
    yield table(rows, header=("step", *names), numbers=True, best=best)


def _versions(run: RunFiles) -> Iterator[str]:
    facts = run.about
    rows: list[Sequence[object]] = [
        (name, value) for name, value in facts.get("versions", {}).items() if value
    ]
    code = facts.get("code", {})
    if code.get("commit"):
        rows.append(("commit", f"{code['commit']}{', modified' if code.get('modified') else ''}"))
    if code.get("digest"):
        rows.append(("digest of the code", code["digest"]))
    if rows:
        yield heading("Versions")
        yield table(rows)
    if hosts := facts.get("hosts"):
        yield heading("Hosts")
        yield table(
            (
                (
                    host["name"],
                    f"{host['devices']} {host['device_kind']}",
                    short(host["device_bytes"] or None, "B"),
                    host["cores"],
                    short(host["host_bytes"] or None, "B"),
                )
                for host in hosts
            ),
            header=("host", "devices", "memory of one", "cores", "memory"),
        )
