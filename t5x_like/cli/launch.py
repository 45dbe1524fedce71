"""`t5x_like launch`: starts runs on TPU VMs, Kubernetes, Slurm or plain hosts, and ends them."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import datetime
import json
import os
import sys
from pathlib import Path
from typing import Any

from t5x_like.cli.common.parsers import CommandParser

_EPILOG = """\
actions:
  start    pack the code, send it to all hosts, start `t5x_like train` or `finetune` there (the
           default)
  watch    wait for the end, and start again what was taken away (--config=tpu_vm and ssh)
  status   how it goes
  logs     the logs of all hosts
  stop     ask the run to save and stop; start goes on from there
  delete   end it, and give back what was made for it; what the run has written stays

examples:
  t5x_like launch bert --config=slurm --config.nodes=2 -- \\
      train --recipe bert_base --corpus '/data/*.jsonl.gz' --model_dir /data/bert
  t5x_like launch bert status
  t5x_like launch bert logs --follow

--config=NAME is a file of launch/, --config=FILE.py a copy of one. Their fields:
"""
_ACTIONS = ("start", "watch", "status", "logs", "stop", "delete")


def main(argv: list[str]) -> int:
    """Starts a run, or acts on one that was started."""
    cut = argv.index("--") if "--" in argv else len(argv)
    words, arguments = argv[:cut], argv[cut + 1 :]
    fields = [word for word in words if word.startswith("--config.")]
    parser = _parser()
    args = parser.parse_args([word for word in words if word not in fields])
    if args.action != "start" and (arguments or fields or args.config):
        parser.error(
            f"{args.action} takes its fields from the start: --config and -- TRAIN do not "
            "belong here"
        )

    from t5x_like.launching import launches
    from t5x_like.launching.commands import LaunchError, Runner
    from t5x_like.launching.engine import load, watcher

    runner = Runner(dry=args.dry_run)
    if args.action == "start":
        return _start(args, fields, arguments, runner)
    record = launches.read(args.name)
    engine = load(record["config"]["engine"])
    job = _known(record)
    match args.action:
        case "watch":
            watching = watcher(engine)
            if watching is None:
                raise LaunchError(
                    f"{record['config']['engine']} starts runs again by itself; see: t5x_like "
                    f"launch {args.name} status"
                )
            return watching.watch(_with_secrets(job), runner)
        case "status":
            engine.status(job, runner)
        case "logs":
            runner.perform(engine.logs(job, host=args.host, lines=args.lines, follow=args.follow))
        case "stop":
            runner.perform(engine.stop(job))
        case "delete":
            runner.perform(engine.delete(job))
    return 0


def _start(args: argparse.Namespace, fields: list[str], arguments: list[str], runner: Any) -> int:
    from t5x_like.launching import costs, launches, shipping
    from t5x_like.launching import job as jobs
    from t5x_like.launching.commands import File, LaunchError
    from t5x_like.launching.engine import load, watcher

    again = not args.config and launches.exists(args.name)
    if not args.config and not again:
        raise LaunchError(
            f"--config is missing: one of {', '.join(sorted(_shipped()))}, or a copy of its file"
        )
    old = launches.read(args.name) if again else {}
    config = _config(args.config, fields, old.get("config"))
    arguments = arguments or list(old.get("arguments", []))
    engine = load(config.engine)
    errors = jobs.problems(args.name, arguments, config) + engine.problems(config)
    if not errors:
        try:
            shipping.user_files(arguments[1:])
        except ValueError as error:
            errors = [str(error)]
    if errors:
        raise LaunchError("\n       ".join([*errors, "nothing was run; --help lists the fields"]))
    if engine.RENTED or config.price_per_chip_hour:
        config.price_per_chip_hour = costs.agree(
            engine.count(config),
            engine.unit(config),
            price=config.price_per_chip_hour,
            hours=config.hours,
            quiet=args.yes or args.dry_run,
        )
    now = datetime.datetime.now(datetime.UTC)
    job = _with_secrets(
        jobs.Job(
            name=args.name,
            launch=now.strftime("%Y-%m-%dT%H:%M:%SZ"),
            arguments=tuple(arguments),
            directory=launches.folder() / args.name,
            config=config,
        )
    )
    path = launches.record(args.name)
    # Before anything is made that costs money, so that `delete` knows it, and after, with digests.
    runner.perform([File(path, _record(job))])
    runner.perform(engine.start(job, runner))
    runner.perform([File(path, _record(job))])
    watching = watcher(engine)
    if watching is None or not (config.get("spot") if args.watch is None else args.watch):
        return 0
    if not args.dry_run:
        print(
            f"watching; if this terminal closes, go on with: t5x_like launch {args.name} watch "
            "(in tmux, or under nohup)",
            file=sys.stderr,
        )
        return watching.watch(job, runner)
    print(f"# then it watches, as t5x_like launch {args.name} watch does")
    return 0


def _parser() -> CommandParser:
    listing = []
    with contextlib.suppress(OSError):
        for name, path in sorted(_shipped().items()):
            lines = [line.strip() for line in path.read_text().splitlines() if "  # " in line]
            listing += [f"\n{name}:", *(f"  {line}" for line in lines)]
    parser = CommandParser(
        "launch",
        usage="t5x_like launch NAME [ACTION] [--config=FILE] [--config.FIELD=VALUE ...] "
        "[--dry_run] [-- train ARGUMENTS]",
        description="Starts a run on other machines, where it starts again until it is done.",
        epilog=_EPILOG + "\n".join(listing),
        allow_abbrev=False,
    )
    parser.add_argument("name", metavar="NAME", help="a name for the run on those machines")
    parser.add_argument(
        "action",
        nargs="?",
        default="start",
        choices=_ACTIONS,
        metavar="ACTION",
        help="one of those below (default: start)",
    )
    parser.add_argument("--config", metavar="FILE", help="which launcher, and its fields")
    parser.add_argument(
        "--dry_run", action="store_true", help="print every command and file, and run nothing"
    )
    parser.add_argument("--yes", action="store_true", help="ask nothing")
    parser.add_argument(
        "--watch",
        action=argparse.BooleanOptionalAction,
        help="stay, and start again what was taken away (default: for --config.spot on TPU VMs)",
    )
    parser.add_argument("--host", type=int, metavar="N", help="logs: of process N alone")
    parser.add_argument("--lines", type=int, default=100, metavar="N", help="logs: the last N")
    parser.add_argument("--follow", action="store_true", help="logs: go on until Ctrl-C")
    return parser


def _shipped() -> dict[str, Path]:
    """The configurations of the package by name, in an installed one or in a checkout."""
    package = Path(__file__).resolve().parent.parent
    folder = package / "launch"
    if not folder.is_dir():
        folder = package.parent / "launch"
    return {path.stem: path for path in folder.glob("*.py") if path.stem != "__init__"}


def _config(name: str | None, fields: list[str], old: dict[str, Any] | None) -> Any:
    """The fields of a file, or of the last start, with those of the command line over them."""
    from absl import flags
    from ml_collections import ConfigDict, config_flags

    from t5x_like.launching.commands import LaunchError

    config = ConfigDict(old) if name is None else _read(name)
    values = flags.FlagValues()
    words = ["launch", *fields]
    try:
        config_flags.DEFINE_config_dict("config", config, flag_values=values, sys_argv=words)
        values(words)
    except (AttributeError, TypeError, ValueError, flags.Error) as error:
        raise LaunchError(f"--config: {error}") from error
    return values.config


def _read(name: str) -> Any:
    """The fields of a shipped file by name, or of another by path."""
    import importlib.util

    from t5x_like.launching.commands import LaunchError

    path = _shipped().get(name, Path(name))
    if not path.is_file() or path.suffix != ".py":
        raise LaunchError(
            f"--config={name}: no such file; shipped are {', '.join(sorted(_shipped()))}"
        )
    spec = importlib.util.spec_from_file_location("launch_configuration", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if not hasattr(module, "get_config"):
        raise LaunchError(f"--config={name}: it has no function get_config; copy a shipped one")
    return module.get_config()


def _known(record: dict[str, Any]) -> Any:
    """The job of an earlier start."""
    from ml_collections import ConfigDict

    from t5x_like.launching import launches
    from t5x_like.launching.job import Job

    return Job(
        name=record["name"],
        launch=record["launch"],
        arguments=tuple(record["arguments"]),
        directory=launches.folder() / record["name"],
        config=ConfigDict(record["config"]),
    )


def _with_secrets(job: Any) -> Any:
    """The job with the values that this process's environment has."""
    from t5x_like.launching.commands import LaunchError
    from t5x_like.launching.job import secret_names

    names = secret_names(job.config)
    if missing := [name for name in names if name not in os.environ]:
        raise LaunchError(f"export the secrets of this launch first: {', '.join(missing)}")
    return dataclasses.replace(job, secrets={name: os.environ[name] for name in names})


def _record(job: Any) -> str:
    """The record of a launch, as JSON, without secrets."""
    from t5x_like.launching import shipping
    from t5x_like.training.hosts import code_version

    shipped = sorted(path for path in job.bundle.rglob("*") if path.is_file())
    digests = {
        str(path.relative_to(job.bundle)): shipping.digest(path)
        for path in shipped
        if path.name != "secrets.sh"
    }
    return (
        json.dumps(
            {
                "name": job.name,
                "launch": job.launch,
                "config": job.config.to_dict(),
                "arguments": list(job.arguments),
                "code": {"package": job.config.get("package"), **code_version.commit()},
                "shipped": digests,
            },
            indent=1,
        )
        + "\n"
    )
