"""The caches of the texts that a command names, made by Beam."""

from __future__ import annotations

from collections.abc import Sequence

from t5x_like.core.buckets import staging
from t5x_like.data.cache import location
from t5x_like.data.cache.beam import cache_writer
from t5x_like.data.cache.beam.pipelines import Pipelines
from t5x_like.data.cache.reader import Cache
from t5x_like.data.corpora.sentences import DEFAULT
from t5x_like.data.dataset import Data


def make_caches(data: Data, options: Sequence[str], *, overwrite: bool = False) -> list[Cache]:
    """Makes the caches of all named texts, one after the other.

    The vocabulary is loaded or trained by this process.

    Args:
      data: the names.
      options: options of Beam's pipelines, as on a command line.
      overwrite: whether to replace complete caches.

    Raises:
      ValueError: a name is not of text in files; or the runner's machines do not see the caches.
      CacheError, CorpusError: as for `cache_writer.write_cache`.
    """
    workers = Pipelines(options)
    if workers.name == "DataflowRunner" and staging.address(data.root) is None:
        raise ValueError(
            f"Dataflow's machines do not see {data.root}: name a folder in a bucket with "
            "--cache_dir, such as gs://BUCKET/caches"
        )
    corpora = [
        (named_task, cache_writer.files_of(named_task.corpus, named_task.name))
        for named_task in data.find_tasks()
    ]
    vocabulary = data.open_vocabulary([named_task for named_task, _ in corpora])
    caches = []
    for task, corpus in corpora:
        directory = data.root / task.with_directory(vocabulary).directory
        location.check_place(data.root, directory)
        print(f"caching {task.name} in {staging.known_as(directory)}", flush=True)
        manifest = cache_writer.write_cache(
            directory,
            corpus,
            vocabulary,
            workers=workers,
            sentences=task.sentences or DEFAULT,
            overwrite=overwrite,
        )
        caches.append(Cache(directory, manifest))
    return caches
