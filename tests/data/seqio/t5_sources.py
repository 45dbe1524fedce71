"""Small local sources with the fields of the data sets that T5's tasks read."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import seqio
import tensorflow as tf

SIZES = {"train": 12, "validation": 4, "test": 3}
GLUE = {
    "cola": ("sentence",),
    "sst2": ("sentence",),
    "mrpc": ("sentence1", "sentence2"),
    "qqp": ("question1", "question2"),
    "stsb": ("sentence1", "sentence2"),
    "mnli": ("hypothesis", "premise"),
    "mnli_matched": ("hypothesis", "premise"),
    "mnli_mismatched": ("hypothesis", "premise"),
    "qnli": ("question", "sentence"),
    "rte": ("sentence1", "sentence2"),
    "ax": ("hypothesis", "premise"),
}
SUPER_GLUE = {
    "boolq": ("passage", "question"),
    "cb": ("hypothesis", "premise"),
    "copa": ("choice1", "choice2", "premise", "question"),
    "multirc": ("answer", "paragraph", "question"),
    "rte": ("hypothesis", "premise"),
    "wic": ("sentence1", "sentence2", "word"),
    "axb": ("sentence1", "sentence2"),
    "axg": ("hypothesis", "premise"),
}
INDEXES = {"multirc": ("answer", "paragraph", "question"), "record": ("passage", "query")}
LANGUAGES = {"de-en": ("de", "en"), "fr-en": ("fr", "en"), "ro-en": ("ro", "en")}


def local_source(tfds_name: str, documents: list[str], splits: list[str]) -> seqio.DataSource:
    """A source of random examples in place of a data set of TFDS; documents for c4, wikipedia."""
    dataset, _, rest = tfds_name.partition(":")[0].partition("/")

    def examples(split: str) -> list[dict[str, Any]]:
        if dataset in ("c4", "wikipedia"):
            held = len(documents) // 10
            part = documents[held:] if split == "train" else documents[:held]
            return [{"text": text} for text in part]
        rng = random.Random(f"{tfds_name} {split}")
        return [_example(dataset, rest, rng, n) for n in range(SIZES[split.partition("_")[0]])]

    def read(split: str, shuffle_files: bool, seed: int | None = None) -> tf.data.Dataset:
        shown = examples(split)
        signature = {name: _spec(value) for name, value in shown[1].items()}
        return tf.data.Dataset.from_generator(lambda: iter(shown), output_signature=signature)

    counts = {split: len(examples(split)) for split in splits}
    return seqio.FunctionDataSource(read, splits=splits, num_input_examples=counts)


def _spec(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _spec(part) for name, part in value.items()}
    array = np.asarray(value)
    kinds = {"U": tf.string, "i": tf.int32, "f": tf.float32}
    dtype = kinds[array.dtype.kind]
    return tf.TensorSpec([None] * array.ndim, dtype)


def _sentence(rng: random.Random, words: int = 9) -> str:
    known = "the of quick trophy suitcase number film it was too big for and said".split()
    return " ".join(rng.choice(known) for _ in range(words)).capitalize() + "."


def _example(dataset: str, config: str, rng: random.Random, n: int) -> dict[str, Any]:
    sentence = lambda words=9: _sentence(rng, words)  # noqa: E731
    match dataset:
        case "glue" if config == "wnli":
            premise = f"The dog {n} ate the meat. It was hungry."
            hypothesis = f"The dog {n} was hungry."
            return {"sentence1": premise, "sentence2": hypothesis, "label": n % 2, "idx": n}
        case "glue" | "super_glue" if config in (known := GLUE | SUPER_GLUE):
            fields = (GLUE if dataset == "glue" else known)[config]
            label = round(5 * rng.random(), 3) if config == "stsb" else rng.randrange(2)
            idx = dict.fromkeys(INDEXES[config], n) if config in INDEXES else n
            return {name: sentence() for name in fields} | {"label": label, "idx": idx}
        case "super_glue" if config == "record":
            names = [f"Name{n}", f"Other{n}", "Third"]
            return {
                "passage": f"{sentence()}\n@highlight\n{names[0]} met {names[1]}.",
                "query": "@placeholder was there.",
                "entities": names,
                "answers": names[: n % 3 or 3],
                "idx": {"passage": n, "query": n},
            }
        case "super_glue":  # wsc.fixed
            return {
                "text": f"Ann asked Tom {n} if he could come.",
                "span1_index": 2,
                "span1_text": "Tom",
                "span2_index": 5,
                "span2_text": "he",
                "label": n % 2,
                "idx": n,
            }
        case "definite_pronoun_resolution":
            return {
                "sentence": f"The dog {n} saw the cat because it was near.",
                "pronoun": "it",
                "candidates": ["the dog", "the cat"],
                "label": n % 2,
            }
        case "cnn_dailymail":
            return {"article": sentence(60), "highlights": sentence(), "id": str(n)}
        case "squad":
            answers = {"text": ["red", "blue"], "answer_start": [10, 20]}
            context = f"{sentence(20)} It was red, then blue. {sentence(20)}"
            return {"context": context, "question": sentence(), "answers": answers, "id": str(n)}
        case "trivia_qa":
            answer = {"normalized_aliases": ["red", "absent"], "value": "red"}
            pages = [f"{sentence(30 * (n % 4))} It was red. {sentence(30)}", sentence(5)]
            found = {"entity_pages": {"wiki_context": pages}}
            return {"question": sentence(), "answer": answer, **found}
    return {language: sentence() for language in LANGUAGES[config]}


def splits(task: seqio.Task) -> list[str]:
    """The splits of a task of T5, which TFDS knows only with the data at hand."""
    config = task.source.tfds_dataset.name.partition(":")[0].partition("/")[2]
    if config == "mnli":
        return ["train", "validation_matched", "validation_mismatched"]
    usual = ["validation", "test"] if config.startswith("mnli_") else [*SIZES]
    return [*task.source._splits] or usual
