"""All tasks and mixtures of the package `t5` train; their examples are T5's, or follow its law."""

from __future__ import annotations

import dataclasses
import importlib
import itertools
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import gin
import numpy as np
import pytest
import sentencepiece
import seqio

from t5x_like.core.protocols.answers import Answers
from t5x_like.data import user_modules
from t5x_like.data.corpora import registry
from t5x_like.data.dataset import Data
from t5x_like.data.rows.feature_converters import default_converter
from t5x_like.data.streams import mixtures
from t5x_like.data.streams.stream import Examples, train_stream
from t5x_like.data.task import Task
from t5x_like.evaluation.task_metrics import ask, measure
from t5x_like.evaluation.tasks import evaluated_task
from t5x_like.objectives.supervised.text_to_text import TextToText
from tests.data.seqio import t5_sources

t5 = pytest.importorskip("t5", reason="pip install --no-deps t5==0.9.4, and the extra t5")
pytestmark = pytest.mark.slow

LENGTH = 96
LENGTHS = {"inputs": LENGTH, "targets": LENGTH}
TEST_ONLY = {
    "glue_ax_v002",
    *("super_glue_axb_v102", "super_glue_axb_v102_1_sentinel"),
    *("super_glue_axg_v102", "super_glue_axg_v102_1_sentinel"),
}
NOISE = {
    "c4_v220_span_corruption",
    "c4_v220_iid_denoising",
    "c4_v220_prefix_lm",
    "c4_v220_full_lm",
    "c4_prefix_lm_objective_encoder_decoder_architecture",
    "c4_prefix_lm_objective_decoder_architecture",
}
EPOCHS = 3
SENTINEL = 700
"""The lowest id that is a sentinel."""

Pair = tuple[np.ndarray, np.ndarray]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of the caches, while T5's tasks are registered with local texts and pieces."""
    folder = tmp_path_factory.mktemp("t5")
    text = registry.get("stdlib_docs").documents("train")
    documents = [one["targets"][:3000] for one in itertools.islice(text, 150)]
    words = "the of quick trophy suitcase number film it was too big for and said red blue dog cat"
    pieces = folder / "pieces.model"
    with pieces.open("wb") as file:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter([*documents, *[words] * 20]),
            model_writer=file,
            vocab_size=SENTINEL,
            minloglevel=2,
            pad_id=0,
            eos_id=1,
            unk_id=2,
            bos_id=-1,
        )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(seqio.TaskRegistry, "_REGISTRY", {})
        patch.setattr(seqio.MixtureRegistry, "_REGISTRY", {})
        for module in ("t5.data.tasks", "t5.data.mixtures"):
            patch.delitem(sys.modules, module, raising=False)  # importing it registers anew
            importlib.import_module(module)
        for task in map(seqio.TaskRegistry.get, seqio.TaskRegistry.names()):
            name, splits = task.source.tfds_dataset.name, t5_sources.splits(task)
            patch.setattr(task, "_source", t5_sources.local_source(name, documents, splits))
            for feature in task.output_features.values():
                patch.setattr(feature.vocabulary, "_sentencepiece_model_file", str(pieces))
        yield folder
    gin.clear_config()


def opened(root: Path, name: str) -> tuple[Task, ...]:
    return Data(mixture_or_task_name=name, lengths=LENGTHS, cache_dir=str(root)).open()


def examples(task: Task, split: str = "train", seed: int = 0) -> Examples:
    converter = default_converter(task.objective)
    (found,) = mixtures.examples([task], split, converter=converter, seed=seed)
    return found


def reference(
    name: str, split: str = "train", lengths: Mapping[str, int] = LENGTHS, epochs: int | None = 1
):
    return seqio.TaskRegistry.get(name).get_dataset(
        dict(lengths), split, shuffle=False, seed=1, num_epochs=epochs, try_in_mem_cache=False
    )


def test_every_task_opens_and_a_deterministic_one_has_the_examples_of_seqio(root: Path) -> None:
    every = [*seqio.TaskRegistry.names()]
    assert len(every) == 60
    for name in every:
        if name in TEST_ONLY:
            with pytest.raises(ValueError, match="only test"):
                opened(root, name)
            continue
        (task,) = opened(root, name)
        if name in NOISE:
            assert task.objective is not None, name
            continue
        assert task.objective == TextToText(), name
        if name == "trivia_qa_v010":
            continue
        split = "train" if task.has("train") else "validation"
        ours = examples(task, split)
        expected = [*reference(name, split).as_numpy_iterator()]
        assert len(ours) == len(expected) > 0
        for n, row in enumerate(expected):
            (found,) = ours.features(n)
            for feature in LENGTHS:
                assert found[feature].tolist() == row[feature].tolist(), (name, split, n)


def test_trivia_qa_reads_a_part_of_the_text_that_holds_the_answer(root: Path) -> None:
    (task,) = opened(root, "trivia_qa_v010")
    ours = examples(task)
    whole = [*reference("trivia_qa_v010", lengths=dict.fromkeys(LENGTHS, 1000)).as_numpy_iterator()]
    assert len(ours) == len(whole)
    cut = 0
    for n, row in enumerate(whole):
        (found,) = ours.features(n)
        inputs, targets = (found[name][:-1].tobytes() for name in LENGTHS)
        assert inputs in row["inputs"].tobytes()
        assert targets == row["targets"][:-1].tobytes()
        assert len(found["inputs"]) <= LENGTH
        cut += len(found["inputs"]) < len(row["inputs"])
    assert 0 < cut < len(whole)


def test_every_mixture_gives_batches_at_t5s_rates(root: Path) -> None:
    every = [*seqio.MixtureRegistry.names()]
    assert len(every) == 20
    bind_objective("span_3_15_u_u")
    for name in every:
        tasks = [one for one in opened(root, name) if one.has("train")]
        mixture = seqio.MixtureRegistry.get(name)
        used = [task for task in mixture.tasks if "train" in task.splits]
        rates = {task.name: rate for task in used if (rate := mixture.get_rate(task))}
        first = rates[tasks[0].name]
        shares = {one.name: one.weight / tasks[0].weight for one in tasks}
        assert shares == pytest.approx({name: rate / first for name, rate in rates.items()})
        batch = next(train_stream([examples(one) for one in tasks], batch_size=8, num_threads=0))
        assert batch["encoder_input_tokens"].shape == (8, LENGTH)
        assert batch["decoder_loss_weights"].any(axis=1).all()


def bind_objective(name: str) -> None:
    """Binds the functions of `unsupervised` as the package's own gin file does."""

    def text(file: Path) -> Iterator[str]:
        for line in file.read_text().splitlines():
            if line.startswith("include"):
                yield from text(file.parent / Path(line.split("'")[1]).name)
            elif not line.startswith("inputs_length"):
                yield line

    folder = Path(t5.__file__).parent / "models" / "gin" / "objectives"
    gin.clear_config()
    lines = [*text(folder / f"{name}.gin"), f"inputs_length = {LENGTH}"]
    gin.parse_config("\n".join(lines), skip_unknown=True)


def ours_in_pairs(task: Task) -> list[Pair]:
    found = examples(task)
    rows = itertools.chain.from_iterable(map(found.features, range(EPOCHS * len(found))))
    return [(row.get("inputs", row["targets"][:0]), row["targets"]) for row in rows]


def theirs_in_pairs(name: str) -> list[Pair]:
    rows = reference(name, epochs=EPOCHS).as_numpy_iterator()
    return [(row.get("inputs", row["targets"][:0]), row["targets"]) for row in rows]


def facts(pair: Pair) -> list[int]:
    """What an objective decides about an example."""
    inputs, targets = pair
    marks = [np.flatnonzero(tokens >= SENTINEL) for tokens in pair]
    return [
        len(inputs),
        len(targets),
        *map(len, marks),
        *(int(places[0]) if len(places) else -1 for places in marks),
        *(int((np.diff(places) == 2).sum()) for places in marks),  # spans of one token
        len(np.unique(inputs[marks[0]])),
        int(len(inputs) == len(targets) and (inputs != targets).sum()),
        int(sorted(inputs.tolist()) == sorted(targets.tolist())),
    ]


def full(pairs: Sequence[Pair], *, whole: bool) -> np.ndarray:
    """The facts of full samples, which are most; `whole`: targets hold a sample by themselves."""

    def size(pair: Pair) -> int:
        parts = pair[1:] if whole else pair
        return sum(int((tokens < SENTINEL).sum()) for tokens in parts)

    sizes = [size(pair) for pair in pairs]
    longest = max(sizes)
    return np.array([facts(p) for p, n in zip(pairs, sizes, strict=True) if n == longest])


def check_equal_law(ours: Sequence[Pair], theirs: Sequence[Pair], *, whole: bool = False) -> None:
    found, expected = (full(pairs, whole=whole) for pairs in (ours, theirs))
    assert len(expected) > 500
    assert len(found) == pytest.approx(len(expected), rel=0.01)
    spread = np.sqrt(found.var(0) / len(found) + expected.var(0) / len(expected))
    difference = np.abs(found.mean(0) - expected.mean(0))
    assert (difference <= 4.5 * spread).all(), (found.mean(0), expected.mean(0), spread)


@pytest.mark.parametrize("name", ["span_corruption", "iid_denoising", "prefix_lm"])
def test_a_noise_task_follows_t5s_law(root: Path, name: str) -> None:
    (task,) = opened(root, f"c4_v220_{name}")
    check_equal_law(ours_in_pairs(task), theirs_in_pairs(task.name))


BOUND = {
    **dict.fromkeys(("span", "span_2_15_u_u", "span_3_15_u_u", "span_5_15_u_u"), False),
    "span_10_15_u_u": False,
    **dict.fromkeys(("iid_10_u_u", "iid_15_u_u", "iid_25_u_u", "iid_50_u_u", "iid_15_d_d"), False),
    **dict.fromkeys(("denoise", "iid_15_m_f", "iid_15_r10s90_f", "all_permute"), True),
    "prefix_lm": False,
}
"""T5's gin files of objectives but `lm`, and whether targets hold the whole sample."""


@pytest.mark.parametrize("name", BOUND)
def test_an_unsupervised_task_follows_the_law_of_its_gin_file(
    root: Path, tmp_path: Path, name: str
) -> None:
    bind_objective(name)
    (task,) = opened(tmp_path, "wikipedia_20190301.en_v003_unsupervised")
    check_equal_law(ours_in_pairs(task), theirs_in_pairs(task.name), whole=BOUND[name])


def test_every_gin_file_of_an_objective_is_tried() -> None:
    folder = Path(t5.__file__).parent / "models" / "gin" / "objectives"
    assert {file.stem for file in folder.glob("*.gin")} == {*BOUND, "lm"}


@pytest.mark.parametrize(
    ("binding", "said"),
    [
        ("select_random_chunk.max_length = 1000", "select_random_chunk with max_length=1000"),
        ("denoise.noise_mask_fn = @regular_noise_mask", "denoise with regular_noise_mask, noise"),
        ("denoise.inputs_fn = @noise_span_to_sentinel", "with iid_noise_mask, noise_span_to_s"),
        (
            "unsupervised.preprocessors = [@split_tokens_to_random_length, @denoise]",
            "unsupervised with preprocessors .*split_tokens_to_random_length, .*denoise, which no",
        ),
        ("sentinel_id.return_value = 5", "sentinel_id with return_value=5"),
    ],
)
def test_what_gin_binds_without_an_objective_is_refused(
    root: Path, tmp_path: Path, binding: str, said: str
) -> None:
    bind_objective("iid_15_u_u")
    gin.parse_config(binding)
    with pytest.raises(ValueError, match=f"t5.data.preprocessors.*{said}"):
        opened(tmp_path, "c4_v020_unsupervised")


def test_the_length_of_inputs_that_gin_binds_is_that_of_the_run(root: Path, tmp_path: Path) -> None:
    bind_objective("span_3_15_u_u")
    data = Data(mixture_or_task_name="c4_v020_unsupervised", lengths={"inputs": 64, "targets": 64})
    with pytest.raises(ValueError, match=r"inputs_length=96, but the feature lengths are .*64"):
        dataclasses.replace(data, cache_dir=str(tmp_path)).open()


def streams(pairs: Sequence[Pair], *, ends: int) -> list[int]:
    return np.concatenate([targets[: len(targets) - ends] for _, targets in pairs]).tolist()


def test_language_models_read_t5s_stream(root: Path, tmp_path: Path) -> None:
    (task,) = opened(root, "c4_v220_full_lm")
    ours, theirs = ours_in_pairs(task), theirs_in_pairs(task.name)
    assert (
        streams(ours[: len(ours) // EPOCHS], ends=0)
        == streams(theirs, ends=0)[: task.tokens() + task.cache.manifest.splits["train"].records]
    )
    bind_objective("lm")
    (task,) = opened(tmp_path, "c4_v020_unsupervised")
    ours, theirs = ours_in_pairs(task), theirs_in_pairs(task.name)
    assert {targets[-1] for _, targets in ours} == {1}
    assert streams(ours, ends=1) == streams(theirs, ends=1)


def packed_pairs(row: Mapping[str, np.ndarray]) -> Iterator[Pair]:
    """The examples in a row of T5's tasks for prefix language models."""
    if "decoder_causal_attention" in row:
        prefix = int(row["decoder_causal_attention"].sum()) - 1
        yield np.split(row["decoder_target_tokens"], [prefix])
        return
    for segment in (1, 2):
        yield tuple(
            row[f"{side}_tokens"][row[f"{side.partition('_')[0]}_segment_ids"] == segment]
            for side in ("encoder_input", "decoder_target")
        )


@pytest.mark.parametrize("kind", ["encoder_decoder", "decoder"])
def test_a_prefix_language_model_follows_t5s_law(root: Path, kind: str) -> None:
    (task,) = opened(root, f"c4_prefix_lm_objective_{kind}_architecture")
    features = seqio.TaskRegistry.get(task.name).output_features
    # T5 fails at the end of an odd number of rows.
    rows = reference(task.name, lengths=dict.fromkeys(features, LENGTH), epochs=None).take(800)
    theirs = [pair for row in rows.as_numpy_iterator() for pair in packed_pairs(row)]
    unpadded = [pair for pair in theirs if all(tokens.all() for tokens in pair)]
    check_equal_law(ours_in_pairs(task)[: len(unpadded)], unpadded)


class Parrot:
    """An `Answerer` that gives every other answer rightly, and else the answer to the next one."""

    def predict(self, examples: Sequence[Mapping[str, np.ndarray]]) -> list[np.ndarray]:
        told = [examples[(n + n % 2) % len(examples)]["targets"] for n in range(len(examples))]
        return [np.pad(ids, (0, LENGTH - len(ids))) for ids in told]

    def score(self, examples: Sequence[Mapping[str, np.ndarray]]) -> list[float]:
        return [-float(np.sum(one["targets"])) / 97 for one in examples]


def of_evaluator(name: str) -> dict[str, float]:
    """The metrics of SeqIO's own evaluator, with the answers of the parrot."""
    evaluator = seqio.Evaluator(
        name,
        seqio.EncDecFeatureConverter(pack=False),
        eval_split="validation",
        sequence_length=LENGTHS,
        async_compute_metrics=False,
    )
    if not evaluator.eval_tasks:
        return {}
    said = [*evaluator.cached_task_datasets[name].as_numpy_iterator()]
    answers = ask(("predictions", "scores"), said, Parrot())
    metrics, _ = evaluator.evaluate(
        compute_metrics=True,
        predict_fn=lambda _: [*enumerate(answers.predictions)],
        score_fn=lambda _: [*enumerate(answers.scores)],
    )
    return metrics.result()[name]


@pytest.mark.parametrize("kind", ["glue", "super_glue", "squad", "wmt", "cnn"])
@pytest.mark.filterwarnings("ignore")  # of the metrics' packages
def test_metrics_are_those_of_the_evaluator_of_seqio(
    root: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("t5.evaluation.metrics", "t5.data.postprocessors"):
        user_modules.import_module(module)  # as --module does
    names = [name for name in seqio.TaskRegistry.names() if name.startswith(kind)]
    measured = 0
    for name in names:
        if "validation" not in seqio.TaskRegistry.get(name).splits:
            continue
        want = of_evaluator(name)
        data = Data(mixture_or_task_name=name, lengths=LENGTHS, cache_dir=str(root))
        (task,) = data.find_tasks()
        options = {"vocabulary": data.open_vocabulary([task]), "kinds": Answers._fields}
        for by_record in (False, True):
            with monkeypatch.context() as patch:
                if by_record:  # as where SeqIO does not know the task
                    patch.setattr(evaluated_task, "registered_task", lambda _: None)
                evaluated, missing = evaluated_task.open_task(
                    data, task, split="validation", **options
                )
            if by_record and missing:
                assert all("lambda or closure" in line for line in missing), missing
                continue
            answers = ask(("predictions", "scores"), evaluated.examples, Parrot())
            found, failures = measure(evaluated.metrics, evaluated.examples, answers)
            assert not failures
            assert found == pytest.approx({k: float(v) for k, v in want.items()}, nan_ok=True), name
        measured += bool(want)
    assert measured
