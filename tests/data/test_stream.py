from __future__ import annotations

import dataclasses
import itertools
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from t5x_like.data import stream
from t5x_like.data.feature_converters import EncoderDecoder
from t5x_like.data.samples import make_samples
from t5x_like.data.stream import Component, Examples, eval_stream, train_stream
from t5x_like.objectives.geometry import PerRecord
from t5x_like.objectives.span_corruption import SpanCorruption
from t5x_like.protocols import TokenIds

LENGTHS = {"inputs": 32, "targets": 14}
BATCH = 6
EOS = {"inputs": 1, "targets": 1}
STEPS = ("append_eos_after_trim",)


@dataclasses.dataclass(frozen=True)
class Noisy:
    """Inputs are the sample, so that rows tell where they come from; targets are noise."""

    def geometry(self, lengths):
        return PerRecord()

    def __call__(self, sample, rng, ids: TokenIds):
        return {
            "inputs": sample["targets"],
            "targets": rng.integers(10, 200, 8).astype(np.int32),
        }


def component(cache, objective=Noisy(), *, name="task", weight=1, split="train") -> Component:
    samples = make_samples(objective.geometry(LENGTHS), cache.split(split))
    return Component(name, samples, objective, STEPS, EOS, cache.token_ids, weight)


def batches(components, count, **options):
    defaults = {"lengths": LENGTHS, "converter": EncoderDecoder(), "batch_size": BATCH, "seed": 3}
    iterator = train_stream(components, **(defaults | {"num_threads": 0} | options))
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
def mixture(make_cache) -> list[Component]:
    """Span corruption and noise over caches of 1,100 and 17 samples or so, 3 to 2."""
    long = make_cache([f"document {i} of the first corpus\n" * 20 for i in range(60)])
    short = make_cache([f"text {i}" for i in range(17)])
    return [
        component(long, SpanCorruption(), name="long", weight=3),
        component(short, name="short", weight=2),
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


@pytest.mark.parametrize(
    "workers", [2, pytest.param(1, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.slow)]
)
def test_worker_processes_change_nothing(mixture, workers):
    # Workers unpickle the objective by its module, which a test file has not.
    corrupted = mixture[:1]
    rows = [5, 0, 3]
    options = {"start_step": 37, "rows": rows}
    ours = batches(corrupted, 6, num_workers=workers, num_threads=1, **options)
    assert_equal(ours, batches(corrupted, 6, **options))
    assert {type(value) for batch in ours for value in batch.values()} == {np.ndarray}


def test_each_epoch_has_every_sample_once_in_another_order_under_other_noise(make_cache):
    size, epochs = 24, 3
    task = component(make_cache([f"text {i}" for i in range(size)]))
    found = batches([task], epochs * size // BATCH)
    inputs = np.concatenate([batch["encoder_input_tokens"] for batch in found])
    noise = np.concatenate([batch["decoder_target_tokens"] for batch in found])
    orders = [sources(inputs[e * size : (e + 1) * size]) for e in range(epochs)]
    assert all(len(set(order)) == size for order in orders)
    assert set(orders[0]) == set(orders[1]) == set(orders[2])
    assert len(set(map(tuple, orders))) == epochs
    assert len(set(sources(noise))) == size * epochs


def test_noise_is_that_of_epoch_times_size_plus_index(make_cache):
    size = 7
    task = component(make_cache([f"text {i}" for i in range(size)]))
    examples = Examples(task, LENGTHS, 3, EncoderDecoder())
    place = {examples[n]["decoder_target_tokens"].tobytes(): n for n in range(3 * size)}
    rows = batches([task], 3 * size, batch_size=1)
    numbers = [place[row["decoder_target_tokens"].tobytes()] for row in rows]
    for epoch in range(3):
        in_epoch = numbers[epoch * size : (epoch + 1) * size]
        assert sorted(in_epoch) == list(range(epoch * size, (epoch + 1) * size))
    unshuffled = batches([task], 3 * size, batch_size=1, shuffle=False)
    assert [place[row["decoder_target_tokens"].tobytes()] for row in unshuffled] == list(
        range(3 * size)
    )


@pytest.mark.parametrize("weights", [(3, 2), (1, 99), (1, 2, 4), (7, 7), (200, 1)])
def test_mixture_has_exactly_its_weights(make_cache, weights):
    texts = "abc"
    tasks = [
        component(make_cache([texts[i] * 3] * 5), name=texts[i], weight=weight)
        for i, weight in enumerate(weights)
    ]
    total = sum(weights)
    rows = batches(tasks, 2 * total, batch_size=1, converter=Which())
    found = [row["which"].item() for row in rows]
    for period in (found[:total], found[total:]):
        assert Counter(period) == {ord(texts[i]) + 3: w for i, w in enumerate(weights)}


class Which:
    """A row is the first id of its inputs."""

    def convert(self, examples, lengths):
        return {"which": examples[0]["inputs"][:1]}


def test_seed_and_name_decide_the_order(make_cache):
    cache = make_cache([f"text {i}" for i in range(40)])

    def order(**options) -> list[bytes]:
        seed = options.pop("seed", 3)
        rows = batches([component(cache, **options)], 40, batch_size=1, seed=seed)
        return [row["encoder_input_tokens"].tobytes() for row in rows]

    assert order() == order()
    different = [order(), order(seed=4), order(name="other")]
    assert len(set(map(tuple, different))) == 3


def test_seeds_of_neighbours_share_no_epoch(make_cache):
    """Grain's shuffle adds the epoch to its seed: seed 0, epoch 1 must not be seed 1, epoch 0."""
    task = component(make_cache([f"text {i}" for i in range(40)]))

    def inputs(seed: int, start: int) -> list[bytes]:
        rows = batches([task], 40, batch_size=1, seed=seed, start_step=start)
        return [row["encoder_input_tokens"].tobytes() for row in rows]

    assert inputs(0, 40) != inputs(1, 0)


def test_order_of_a_seed_is_fixed(make_cache):
    # Runs are resumed by later versions of this code and of Grain.
    assert [stream._component_seed(0, n) for n in ("a", "b")] == [2598482685, 4059100481]
    texts = [chr(ord("a") + i) for i in range(8)]
    rows = batches([component(make_cache(texts))], 16, batch_size=1, converter=Which())
    assert "".join(chr(row["which"].item() - 3) for row in rows) == "cdbfehgaefdcgbah"


def test_evaluation_is_in_order_repeatable_and_padded(make_cache):
    task = component(make_cache(["x"], [f"text {i}" for i in range(8)]), split="validation")
    options = {"lengths": LENGTHS, "converter": EncoderDecoder(), "batch_size": 5, "seed": 1}
    found = list(eval_stream(task, **options))
    assert_equal(found, list(eval_stream(task, **options)))
    examples = Examples(task, LENGTHS, 1, EncoderDecoder())
    rows = {name: np.concatenate([b[name] for b in found]) for name in found[0]}
    for n in range(8):
        assert_equal([{name: value[n] for name, value in rows.items()}], [examples[n]])
    assert all((value[8:] == 0).all() and len(value) == 10 for value in rows.values())
    assert_equal(list(eval_stream(task, max_batches=1, **options)), found[:1])
    part = list(eval_stream(task, rows=[4, 1], **options))
    assert_equal(part, [{name: value[[4, 1]] for name, value in b.items()} for b in found])


def test_bad_arguments_are_errors(make_cache):
    cache = make_cache(["text"])
    task = component(cache)
    with pytest.raises(ValueError, match="rows must be some of 0 to 5"):
        batches([task], 1, rows=[6])
    with pytest.raises(ValueError, match="weights of at least 1"):
        batches([task, component(cache, name="b", weight=0)], 1)

    class Empty:
        def __len__(self) -> int:
            return 0

    nothing = dataclasses.replace(task, samples=Empty())
    with pytest.raises(ValueError, match="'task' has no samples"):
        batches([nothing], 1)
    with pytest.raises(ValueError, match="'task' has no samples"):
        eval_stream(nothing, lengths=LENGTHS, converter=EncoderDecoder(), batch_size=1, seed=0)


def test_closing_ends_the_stream(mixture):
    iterator = train_stream(
        mixture, lengths=LENGTHS, converter=EncoderDecoder(), batch_size=2, seed=0, num_threads=1
    )
    next(iterator)
    iterator.close()
    assert list(iterator) == []


def test_a_program_that_drops_its_stream_ends_quietly(make_cache):
    cache = make_cache([f"document {i} of the first corpus\n" * 20 for i in range(60)])
    code = """
import sys
from t5x_like.data.cache import Cache
from t5x_like.data.feature_converters import EncoderDecoder
from t5x_like.data.samples import make_samples
from t5x_like.data.stream import Component, train_stream
from t5x_like.objectives.span_corruption import SpanCorruption
cache, lengths = Cache.open(sys.argv[1]), {"inputs": 32, "targets": 14}
samples = make_samples(SpanCorruption().geometry(lengths), cache.split("train"))
task = Component("task", samples, SpanCorruption(), (), {}, cache.token_ids)
batches = train_stream([task], lengths=lengths, converter=EncoderDecoder(), batch_size=2, seed=0)
next(batches)
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(cache.directory)], capture_output=True, check=True
    )
    assert done.stderr == b""
