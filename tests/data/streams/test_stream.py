from __future__ import annotations

import dataclasses
import itertools
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from t5x_like.core.protocols.data import TokenIds
from t5x_like.data.rows.feature_converters import EncoderDecoder
from t5x_like.data.samples.samples import DuplicatedSamples, make_samples
from t5x_like.data.streams.stream import Examples, eval_stream, evaluated_rows, train_stream
from t5x_like.data.task import Task
from t5x_like.objectives.parts import formats
from t5x_like.objectives.parts.geometry import PerRecord
from t5x_like.objectives.span_corruption import SpanCorruption

LENGTHS = {"inputs": 32, "targets": 14}
BATCH = 6
EOS = {"inputs": 1, "targets": 1}
STEPS = ("append_eos_after_trim",)


@dataclasses.dataclass(frozen=True)
class Noisy(formats.InputsAndTargets):
    """An objective whose inputs are the sample, which identifies a row, and targets are noise."""

    static: bool = False

    def geometry(self, lengths):
        return PerRecord()

    def __call__(self, sample, rng, ids: TokenIds):
        return {
            "inputs": sample["targets"],
            "targets": rng.integers(10, 200, 8).astype(np.int32),
        }


def task(cache, objective=Noisy(), *, name="task", weight=1) -> Task:
    return Task(
        name=name,
        objective=objective,
        steps=STEPS,
        eos=EOS,
        weight=weight,
        cache=cache,
        lengths=LENGTHS,
    )


def examples_of(cache, *args, split="train", seed=3, **options) -> Examples:
    found = task(cache, *args, **options)
    return Examples(found, found.samples(split), EncoderDecoder(), seed)


def batches(examples, count, **options):
    iterator = train_stream(examples, **({"batch_size": BATCH, "num_threads": 0} | options))
    return list(itertools.islice(iterator, count))


def assert_equal(ours, theirs) -> None:
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs, strict=True):
        assert one.keys() == other.keys()
        for name in one:
            np.testing.assert_array_equal(one[name], other[name], strict=True)


def sources(rows) -> list[bytes]:
    return [row.tobytes() for row in rows]


@pytest.fixture
def mixture(make_cache) -> list[Examples]:
    """Span corruption and noise over caches of about 1,100 and 17 samples, in proportion 3 to 2."""
    long = make_cache([f"document {i} of the first corpus\n" * 20 for i in range(60)])
    short = make_cache([f"text {i}" for i in range(17)])
    return [
        examples_of(long, SpanCorruption(), name="long", weight=3),
        examples_of(short, name="short", weight=2),
    ]


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    start=st.integers(0, 60),
    rows=st.lists(st.integers(0, BATCH - 1), min_size=1, max_size=BATCH),
    threads=st.integers(0, 3),
)
def test_a_row_depends_on_nothing_but_seed_step_and_batch_size(mixture, start, rows, threads):
    whole = batches(mixture, 3, start_step=start)
    some = batches(mixture, 3, start_step=start, rows=rows, num_threads=threads)
    assert_equal(some, [{name: value[rows] for name, value in b.items()} for b in whole])


def test_start_skips_and_never_differs(mixture):
    assert_equal(batches(mixture, 40)[37:], batches(mixture, 3, start_step=37))


def test_batches_of_growing_sizes_read_the_rows_of_equal_ones(mixture):
    """Ten batches of 6 rows hold the rows of two of 3, two of 6, and 42 rows in batches of 7."""
    equal, grown, read = batches(mixture, 10), [], 0
    for count, size in ((2, 3), (2, 6), (6, 7)):
        grown += batches(mixture, count, batch_size=size, rows_before=read)
        read += count * size
    assert read == 60
    for name in equal[0]:
        wanted, rows = (np.concatenate([b[name] for b in part]) for part in (equal, grown))
        np.testing.assert_array_equal(rows, wanted)


def test_rows_that_depend_on_the_size_cannot_follow_other_sizes(mixture):
    carried = dataclasses.replace(mixture[0], rows=BATCH)
    with pytest.raises(ValueError, match="cannot continue the rows"):
        batches([carried], 1, rows_before=3)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [2, 1, 3])
def test_worker_processes_change_nothing(mixture, workers):
    # Workers unpickle the objective by its module, which a test file lacks.
    corrupted = mixture[:1]
    rows = [5, 0, 3]
    options = {"start_step": 37, "rows": rows}
    ours = batches(corrupted, 6, num_workers=workers, num_threads=1, **options)
    assert_equal(ours, batches(corrupted, 6, **options))
    assert {type(value) for batch in ours for value in batch.values()} == {np.ndarray}


def test_each_epoch_has_every_sample_once_in_another_order_under_other_noise(make_cache):
    size, epochs = 24, 3
    examples = examples_of(make_cache([f"text {i}" for i in range(size)]))
    found = batches([examples], epochs * size // BATCH)
    inputs = np.concatenate([batch["encoder_input_tokens"] for batch in found])
    noise = np.concatenate([batch["decoder_target_tokens"] for batch in found])
    orders = [sources(inputs[e * size : (e + 1) * size]) for e in range(epochs)]
    assert all(len(set(order)) == size for order in orders)
    assert set(orders[0]) == set(orders[1]) == set(orders[2])
    assert len(set(map(tuple, orders))) == epochs
    assert len(set(sources(noise))) == size * epochs


def test_noise_is_that_of_epoch_times_size_plus_index(make_cache):
    size = 7
    examples = examples_of(make_cache([f"text {i}" for i in range(size)]))
    place = {examples[n]["decoder_target_tokens"].tobytes(): n for n in range(3 * size)}
    rows = batches([examples], 3 * size, batch_size=1)
    numbers = [place[row["decoder_target_tokens"].tobytes()] for row in rows]
    for epoch in range(3):
        in_epoch = numbers[epoch * size : (epoch + 1) * size]
        assert sorted(in_epoch) == list(range(epoch * size, (epoch + 1) * size))
    unshuffled = batches([examples], 3 * size, batch_size=1, shuffle=False)
    assert [place[row["decoder_target_tokens"].tobytes()] for row in unshuffled] == list(
        range(3 * size)
    )


@pytest.mark.parametrize("static", [False, True])
def test_static_noise_is_that_of_the_first_epoch(make_cache, static):
    size = 12
    cache = make_cache([f"text {i}" for i in range(size)])
    rows = batches([examples_of(cache, Noisy(static=static))], 2 * size, batch_size=1)
    epochs = [
        {
            row["encoder_input_tokens"].tobytes(): row["decoder_target_tokens"].tobytes()
            for row in rows[epoch * size : (epoch + 1) * size]
        }
        for epoch in range(2)
    ]
    assert len(set(epochs[0].values())) == size
    assert (epochs[0] == epochs[1]) == static


def test_duplicates_under_static_noise_differ_and_stay(make_cache):
    cache = make_cache([f"text {i}" for i in range(5)])
    samples = DuplicatedSamples(make_samples(PerRecord(), cache.split("train")), 3)
    examples = dataclasses.replace(examples_of(cache, Noisy(static=True)), samples=samples)
    noise = [examples[n]["decoder_target_tokens"].tobytes() for n in range(30)]
    assert len(set(noise)) == 15
    assert noise[15:] == noise[:15]


class Which:
    """A converter that makes a row of the first id of its inputs."""

    def convert(self, examples, *, features, ids):
        return {"which": examples[0]["inputs"][:1], "number": np.array(len(examples))}


def carried(cache, name: str, rows: int) -> Examples:
    return dataclasses.replace(examples_of(cache, name=name), rows=rows)


@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(start=st.integers(0, 30), threads=st.integers(0, 2), part=st.integers(0, 4))
def test_carried_rows_are_in_their_place_whatever_is_asked_for(make_cache, start, threads, part):
    letters = "abcdefgh"
    tasks = [
        carried(make_cache(list(letters)), "low", 2),
        carried(make_cache(list(letters[:6].upper())), "high", 3),
    ]
    tasks = [dataclasses.replace(one, converter=Which()) for one in tasks]
    options = {"batch_size": 5, "num_threads": threads}
    found = batches(tasks, 4, start_step=start, **options)
    for step, batch in enumerate(found, start=start):
        expected = [letters[(2 * step + row) % 8] for row in range(2)]
        expected += [letters[(3 * step + row) % 6].upper() for row in range(3)]
        assert [chr(row - 3) for row in batch["which"].ravel()] == expected
        assert batch["number"].shape == (5,)
    (one,) = batches(tasks, 1, start_step=start, rows=[part], **options)
    assert one["which"].item() == found[0]["which"][part].item()


def test_carried_rows_have_the_noise_of_their_place(make_cache):
    examples = carried(make_cache([f"text {i}" for i in range(6)]), "task", 3)
    for step, batch in enumerate(batches([examples], 5, batch_size=3)):
        for row in range(3):
            one = {name: value[row] for name, value in batch.items()}
            assert_equal([one], [examples[3 * step + row]])


def test_seed_and_name_decide_the_order(make_cache):
    cache = make_cache([f"text {i}" for i in range(40)])

    def order(**options) -> list[bytes]:
        rows = batches([examples_of(cache, **options)], 40, batch_size=1)
        return [row["encoder_input_tokens"].tobytes() for row in rows]

    assert order() == order()
    different = [order(), order(seed=4), order(name="other")]
    assert len(set(map(tuple, different))) == 3


def test_evaluation_is_in_order_repeatable_and_padded(make_cache):
    cache = make_cache(["x"], [f"text {i}" for i in range(8)])
    examples = examples_of(cache, split="validation", seed=1)
    found = list(eval_stream(examples, batch_size=5))
    assert_equal(found, list(eval_stream(examples, batch_size=5)))
    rows = {name: np.concatenate([b[name] for b in found]) for name in found[0]}
    for n in range(8):
        assert_equal([{name: value[n] for name, value in rows.items()}], [examples[n]])
    assert all((value[8:] == 0).all() and len(value) == 10 for value in rows.values())
    (some,) = eval_stream(examples, max_batches=1, batch_size=5)
    chosen = evaluated_rows(examples, batch_size=5, max_batches=1)
    assert chosen[0] < 2  # they are spread over the split
    assert chosen[-1] > 5
    assert_equal([some], [{name: value[chosen] for name, value in rows.items()}])
    part = list(eval_stream(examples, rows=[4, 1], batch_size=5))
    assert_equal(part, [{name: value[[4, 1]] for name, value in b.items()} for b in found])


def test_bad_arguments_are_errors(make_cache):
    cache = make_cache(["text"])
    examples = examples_of(cache)
    with pytest.raises(ValueError, match="rows must be some of 0 to 5"):
        batches([examples], 1, rows=[6])
    with pytest.raises(ValueError, match="weights of at least 1"):
        batches([examples, examples_of(cache, name="b", weight=0)], 1)
    with pytest.raises(ValueError, match=r"one seed, not \[3, 4\]"):
        batches([examples, examples_of(cache, name="b", seed=4)], 1)

    class Empty:
        def __len__(self) -> int:
            return 0

    nothing = dataclasses.replace(examples, samples=Empty())
    with pytest.raises(ValueError, match="'task' has no samples"):
        batches([nothing], 1)
    with pytest.raises(ValueError, match="'task' has no samples"):
        eval_stream(nothing, batch_size=1)
    with pytest.raises(ValueError, match="carries rows for batches of 2, not of 3"):
        eval_stream(carried(cache, "task", 2), batch_size=3)


def test_closing_ends_the_stream(mixture):
    iterator = train_stream(mixture, batch_size=2, num_threads=1)
    next(iterator)
    iterator.close()
    assert list(iterator) == []


PROGRAM = """
import sys
from t5x_like.data.cache.reader import Cache
from t5x_like.data.rows.feature_converters import EncoderDecoder
from t5x_like.data.streams import mixtures
from t5x_like.data.streams.stream import train_stream
from t5x_like.data.task import of_cache
from t5x_like.objectives.span_corruption import SpanCorruption
cache, lengths = Cache.open(sys.argv[1]), {"inputs": 32, "targets": 14}
task = of_cache(cache, SpanCorruption()).with_cache(cache, lengths)
examples = mixtures.examples([task], "train", converter=EncoderDecoder(), seed=0)
batches = train_stream(examples, batch_size=2)
next(batches)
"""
"""Opens the stream of the cache it is given and takes one batch."""


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at /proc")
def test_processes_of_a_killed_program_end(make_cache):
    cache = make_cache([f"document {i} of the first corpus\n" * 20 for i in range(60)])
    code = (
        PROGRAM.replace("batch_size=2", "batch_size=2, num_workers=2")
        + """
import multiprocessing, time
print(*[child.pid for child in multiprocessing.active_children()], flush=True)
time.sleep(600)
"""
    )
    command = [sys.executable, "-c", code, str(cache.directory)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
        workers = [Path("/proc", pid) for pid in program.stdout.readline().split()]
        running = [is_running(worker) for worker in workers]
        program.kill()
    assert running == [True, True]
    deadline = time.monotonic() + 20
    while any(map(is_running, workers)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(is_running, workers))


def is_running(process: Path) -> bool:
    """Whether a process runs, by its folder below /proc. An ended one may not be reaped yet."""
    try:
        return (process / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.slow
def test_a_program_that_drops_its_stream_ends_quietly(make_cache):
    cache = make_cache([f"document {i} of the first corpus\n" * 20 for i in range(60)])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(cache.directory)], capture_output=True, check=True
    )
    assert done.stderr == b""
