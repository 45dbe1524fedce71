"""Apache Beam as what spreads the work, and its options on our command line."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from t5x_like.data import extras
from t5x_like.data.cache.beam.steps import Read, Write
from t5x_like.data.cache.format import CacheError

_MODULES = (
    "dask.dask_runner",
    "dataflow.dataflow_runner",
    "portability.flink_runner",
    "portability.prism_runner",
    "portability.spark_runner",
)
"""Modules of runners with options of their own, each of which may lack a library."""
_LINE = 300


class BeamError(CacheError):
    """A run of Beam failed."""


def divided(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """The arguments of a command line that Beam knows, and the others, each in their order."""
    options = _pipeline_options()
    for name in _MODULES:
        with contextlib.suppress(ImportError):
            importlib.import_module(f"apache_beam.runners.{name}")
    parser = options._BeamArgumentParser(
        prog="t5x_like cache --beam", allow_abbrev=False, add_help=False, usage="%(prog)s ..."
    )
    for kind in options.PipelineOptions.__subclasses__():
        kind._add_argparse_args(parser)
    _, others = parser.parse_known_args(list(arguments))
    of_beam, rest = [], list(others)
    for argument in arguments:
        if rest and argument == rest[0]:
            rest.pop(0)
        else:
            of_beam.append(argument)
    return of_beam, others


def _pipeline_options() -> ModuleType:
    return extras.require("apache_beam.options.pipeline_options", "beam", purpose="--beam")


def _advice(runner: str) -> str:
    """How to install what a runner needs; empty where that is unknown."""
    extra = {"dataflow": "t5x_like[dataflow]", "dask": "apache-beam[dask]"}
    wanted = [name for word, name in extra.items() if word in runner.lower()]
    return f": pip install '{wanted[0]}'" if wanted else ""


class Pipelines:
    """Runs each step as a pipeline of Beam.

    Args:
      arguments: options of Beam's pipelines, as on a command line: `["--runner=DirectRunner"]`.

    Raises:
      MissingExtraError: Beam is not installed.
      ValueError: there is no such runner, or it runs in a mode that loses text.
    """

    def __init__(self, arguments: Sequence[str]) -> None:
        options = _pipeline_options()
        self._beam = extras.require("apache_beam", "beam", purpose="--beam")
        self._options = options.PipelineOptions(list(arguments))
        self._runner = self._options.view_as(options.StandardOptions).runner or "DirectRunner"
        runners = extras.require("apache_beam.runners.runner", "beam")
        try:
            runners.create_runner(self._runner)
        except (AttributeError, ImportError, ValueError) as error:
            raise ValueError(f"--runner={self._runner}: {error}{_advice(self._runner)}") from error
        direct = self._options.view_as(options.DirectOptions)
        if self.name == "DirectRunner" and direct.direct_running_mode == "multi_threading":
            # A thread flushes a worker's output each second, while the worker goes on writing it.
            raise ValueError(
                "--direct_running_mode=multi_threading loses elements in this release of Beam: "
                "write --direct_running_mode=multi_processing"
            )
        # Beam's pools start `python` as workers, which must be this one.
        here = str(Path(sys.executable).parent)
        os.environ["PATH"] = os.pathsep.join([here, os.environ.get("PATH", "")])

    @property
    def name(self) -> str:
        """The runner's name, without that of its module."""
        return self._runner.rpartition(".")[2]

    def each(self, title: str, elements: Sequence[Any], step: Callable[[Any], None]) -> None:
        """Does a step for each element.

        Raises:
          BeamError: the pipeline failed.
        """
        do = self._beam.Map(step)
        self._run(title, lambda pipeline: self._spread(pipeline, elements) | "do" >> do)

    def grouped(self, title: str, elements: Sequence[Any], *, read: Read, write: Write) -> None:
        """Reads each element, groups what is read by its key, and writes each group.

        Raises:
          BeamError: the pipeline failed.
        """
        beam = self._beam
        # From the annotation Beam would derive a coder that makes plain dicts of pieces.
        reading = beam.FlatMap(read).with_output_types(tuple[int, Any])
        self._run(
            title,
            lambda pipeline: (
                self._spread(pipeline, elements)
                | "read" >> reading
                | "by shard" >> beam.GroupByKey()
                | "write" >> beam.Map(write)
            ),
        )

    def _spread(self, pipeline: Any, elements: Sequence[Any]) -> Any:
        """The elements, each of which may go to another worker."""
        beam = self._beam
        created = beam.Create(list(elements), reshuffle=False)
        return pipeline | "files" >> created | "spread" >> beam.Reshuffle()

    def _run(self, title: str, build: Callable[[Any], Any]) -> None:
        try:
            pipeline = self._beam.Pipeline(options=self._options)
            build(pipeline)
            pipeline.run().wait_until_finish()
        except Exception as error:
            lines = str(error).strip().splitlines() or [type(error).__name__]
            reason = lines[-1][:_LINE].rstrip(".")
            raise BeamError(
                f"Beam's {self.name} failed at the step {title!r}: {reason}. Finished shards are "
                "kept: run the same command again. T5X_LIKE_TRACEBACK=1 shows all"
            ) from error
