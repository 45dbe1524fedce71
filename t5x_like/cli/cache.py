"""`t5x_like cache`: tokenises a corpus or task once, to files that training reads."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from t5x_like.cli.common import arguments
from t5x_like.cli.common.parsers import CommandParser
from t5x_like.core.buckets import staging

if TYPE_CHECKING:
    from t5x_like.data.cache.reader import Cache

_EPILOG = """\
examples:
  t5x_like cache stdlib_docs --vocab_size 4000
  t5x_like cache --corpus 'data/*.jsonl.gz' --vocabulary mine.model --workers 8
  t5x_like cache my_task --module my_tasks.py
  t5x_like cache my_task --module my_tasks.py --lengths inputs=512,targets=114
      also the examples on which the task's metrics are computed, for machines without SeqIO
  t5x_like cache my_task --module my_tasks.py --materialize --lengths inputs=512,targets=114

on Apache Beam, with the same bytes (pip install 't5x_like[beam]'; Dataflow: 't5x_like[dataflow]'):
  t5x_like cache --corpus 'data/*.jsonl.gz' --vocabulary mine.model --beam --runner=DirectRunner \\
      --direct_running_mode=multi_processing --direct_num_workers=8
  t5x_like cache --corpus 'gs://b/text/*.jsonl.gz' --vocabulary mine.model \\
      --cache_dir gs://b/cache --beam --runner=DataflowRunner --project=P --region=us-central1 \\
      --temp_location=gs://b/tmp --sdk_container_image=IMAGE_WITH_T5X_LIKE
  ... --beam --runner=FlinkRunner --flink_master=HOST:8081 --parallelism=64
  ... --beam --runner=SparkRunner --spark_master_url=spark://HOST:7077
  ... --beam --runner=apache_beam.runners.dask.dask_runner.DaskRunner \\
      --dask_client_address=HOST:8786
      every other option of Beam's runner may follow; docs/beam.md explains them

One cache serves every objective and length. `t5x_like train` makes a missing cache itself. With a
copy of a finished cache, machines can train without TensorFlow and without the text.
A command that was killed resumes where it stopped.
"""


def main(argv: list[str]) -> int:
    """Writes the caches of the named tasks, and prints what they hold."""
    parser = CommandParser(
        "cache",
        description="Tokenises a corpus or task once, to sharded files that training reads.",
        epilog=_EPILOG,
    )
    arguments.add_text(parser)
    arguments.add_vocabulary(parser, size=32000)
    group = parser.add_argument_group("work")
    group.add_argument(
        "--workers", type=int, metavar="N", help="processes (default: one for each core)"
    )
    group.add_argument(
        "--beam",
        action="store_true",
        help="spread the work over machines with Apache Beam, whose options (--runner=...) may "
        "follow; for text in files, which all machines can read",
    )
    group.add_argument("--overwrite", action="store_true", help="make a complete cache again")
    _add_seqio_task(parser)
    args, beam_options = _parse(parser, argv)
    if args.materialize and not args.lengths:
        parser.error("--materialize needs --lengths, such as --lengths inputs=512,targets=114")
    if args.beam and (args.workers or args.lengths):
        parser.error(
            "--beam takes neither --workers (runners have options for it, such as "
            "--direct_num_workers or --max_num_workers) nor --lengths (of SeqIO tasks)"
        )

    data = arguments.text_data(
        args,
        lengths=args.lengths,
        vocabulary=arguments.vocabulary_choice(args),
        workers=args.workers,
    )
    if args.beam:
        from t5x_like.data.named_caches import make_caches

        caches = make_caches(data, beam_options, overwrite=args.overwrite)
    elif args.materialize:
        caches = data.materialize(seed=args.seed, epochs=args.epochs, overwrite=args.overwrite)
    else:
        caches = data.make_caches(overwrite=args.overwrite)
    for cache in caches:
        _print(cache)
    for file in data.write_evaluation_files() if args.lengths else []:
        print(file)
    return 0


def _add_seqio_task(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("a SeqIO task")
    group.add_argument(
        "--lengths",
        type=arguments.feature_lengths,
        metavar="F=N,F=N",
        help="task feature lengths, for steps that depend on them, and for the examples on which "
        "the task's metrics are computed",
    )
    group.add_argument(
        "--materialize",
        action="store_true",
        help="cache the features after its last step, which training cannot run",
    )
    group.add_argument("--seed", type=int, default=0, help="seed of random steps (default: 0)")
    group.add_argument("--epochs", type=int, default=1, help="epochs to cache (default: 1)")


def _parse(
    parser: argparse.ArgumentParser, argv: list[str]
) -> tuple[argparse.Namespace, list[str]]:
    """The arguments, and those that are for Beam."""
    if "--beam" not in argv or {"-h", "--help"} & set(argv):
        return parser.parse_args(argv), []
    from t5x_like.data.cache.beam import pipelines

    # Beam's options are taken out first, because only Beam knows which of them have values.
    beam_options, ours = pipelines.divided(argv)
    return parser.parse_args(ours), beam_options


def _print(cache: Cache) -> None:
    print(staging.known_as(cache.directory))
    for name, split in cache.manifest.splits.items():
        tokens = ", ".join(
            f"{count:,} tokens of {feature}" for feature, count in split.tokens.items()
        )
        skipped = (
            f", skipped {split.skipped_documents:,} (invalid UTF-8)"
            if split.skipped_documents
            else ""
        )
        print(f"  {name}: {split.documents:,} documents{skipped}, {tokens}")
