"""Times an epoch of fine-tuning a BERT on a CPU beside transformers' Trainer with the same rows.

    python benchmarks/finetuning_vs_hf.py --train sst2.tsv
    python benchmarks/finetuning_vs_hf.py --model bert_base --rows 512 --json finetuning.jsonl
    python benchmarks/finetuning_vs_hf.py --method lora --rows 512

Both begin with the same weights and train on the same rows in batches of the same size, in float32,
with AdamW, dropout and clipping, on all cores. The Trainer pads each batch to its longest row
(`DataCollatorWithPadding`), once as its rows come, and once with `train_sampling_strategy` (before
transformers 5: `group_by_length`). The first epoch of each compiles and warms up; the second is
timed. Ratios are their time / our time, also of processor time, for a busy machine. Without
`--train` the rows are sentences of Python's documentation, cut to lengths like those of SST-2 (a
geometric distribution of 9 words on average). With `--method lora` both train LoRA of rank 8 at
queries and values, theirs by peft. Needs torch, transformers and accelerate, and peft for LoRA.
"""

from __future__ import annotations

import argparse
import inspect
import itertools
import json
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import numpy as np
import torch
import transformers

import t5x_like as t5x
from t5x_like.data.corpora import registry
from t5x_like.vocabularies.learning.subword_training import train_wordpiece

SIZES = {
    "bert_base": {},  # transformers' defaults
    "bert-mini": {
        "hidden_size": 256,
        "intermediate_size": 1024,
        "num_attention_heads": 4,
        "num_hidden_layers": 4,
    },
}
Times = tuple[float, float]


def sentences(count: int) -> list[str]:
    """Stretches of the documentation, of 1 to 50 words."""
    sizes = np.random.default_rng(0).geometric(1 / 9, count).clip(1, 50)
    documents = registry.get("stdlib_docs").documents("train")
    words = itertools.chain.from_iterable(text["targets"].split() for text in documents)
    return [" ".join(itertools.islice(words, int(size))) for size in sizes]


def read(path: str, count: int) -> list[str]:
    """The first texts of a table with a header, whose first column they are."""
    lines = Path(path).read_text(encoding="utf-8").splitlines()[1 : count + 1]
    return [line.split("\t")[0] for line in lines]


def prepared(folder: Path, name: str, texts: list[str]) -> Path:
    """A directory of transformers with a BERT and a tokenizer of `texts`."""
    directory = folder / "model"
    torch.manual_seed(0)
    model = transformers.BertModel(transformers.BertConfig(**SIZES[name]))
    model.save_pretrained(directory)
    learned = train_wordpiece(texts, size=4000, extra_ids=0, character_coverage=1.0, lowercase=True)
    pieces = [learned.piece(i) for i in range(learned.vocab_size)]
    (directory / "vocab.txt").write_text("\n".join(pieces) + "\n", encoding="utf-8")
    tokenizer = transformers.BertTokenizerFast(vocab=str(directory / "vocab.txt"))
    tokenizer.save_pretrained(directory)
    return directory


def ours(directory: Path, file: Path, folder: Path, args: argparse.Namespace) -> Times:
    """Seconds of our second epoch, and seconds of processors."""
    run = t5x.finetune(
        str(directory),
        train=str(file),
        epochs=2,
        batch_size=args.batch_size,
        method=args.method,
        model_dir=str(folder / "run"),
        cache_dir=str(folder / "cache"),
        gin=["CORPUS_VALIDATION=0.0", "CHECKPOINT_PERIOD=1000000"],
    )
    return second_half(step.step for step in run.steps())


def second_half(steps: Iterator[int], *, epochs: int = 2) -> Times:
    """Times of the later half of the steps, which are all taken."""
    marks = [(time.perf_counter(), time.process_time())]
    for _ in steps:
        marks.append((time.perf_counter(), time.process_time()))
    middle = marks[len(marks) // epochs]
    return marks[-1][0] - middle[0], marks[-1][1] - middle[1]


class Marks(transformers.TrainerCallback):  # type: ignore[misc]
    """The times at which epochs end."""

    def __init__(self) -> None:
        self.ends: list[Times] = []

    def on_epoch_end(self, *args: Any, **kwargs: Any) -> None:
        """Remembers the time."""
        self.ends.append((time.perf_counter(), time.process_time()))


def theirs(
    directory: Path,
    rows: list[tuple[str, int]],
    folder: Path,
    args: argparse.Namespace,
    **more: Any,
) -> Times:
    """Seconds of the Trainer's second epoch, and seconds of processors."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    data = [{**tokenizer(text, truncation=True, max_length=128), "labels": n} for text, n in rows]
    marks = Marks()
    model = transformers.AutoModelForSequenceClassification.from_pretrained(directory)
    if args.method == "lora":
        import peft

        lora = peft.LoraConfig(task_type="SEQ_CLS", r=8, lora_alpha=16)
        model = peft.get_peft_model(model, lora)
    trainer = transformers.Trainer(
        model=model,
        args=transformers.TrainingArguments(
            output_dir=str(folder / "theirs"),
            per_device_train_batch_size=args.batch_size,
            num_train_epochs=2,
            learning_rate=3e-5,
            weight_decay=0.01,
            save_strategy="no",
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
            dataloader_pin_memory=False,
            **more,
        ),
        train_dataset=data,
        data_collator=transformers.DataCollatorWithPadding(tokenizer),
        callbacks=[marks],
    )
    trainer.train()
    (wall, used), (wall_end, used_end) = marks.ends
    return wall_end - wall, used_end - used


def by_length() -> dict[str, Any]:
    """The argument of the Trainer that puts rows of like length into a batch."""
    known = inspect.signature(transformers.TrainingArguments).parameters
    if "group_by_length" in known:
        return {"group_by_length": True}
    return {"train_sampling_strategy": "group_by_length"}


def main() -> None:
    """Prints a line of times and ratios; appends it as JSON with `--json`."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", choices=SIZES, default="bert_base")
    parser.add_argument("--method", choices=("full", "lora"), default="full")
    parser.add_argument("--train", help="a .tsv file whose first column are texts")
    parser.add_argument("--rows", type=int, default=512)
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--json", help="append the result to this file")
    args = parser.parse_args()
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    texts = read(args.train, args.rows) if args.train else sentences(args.rows)
    rows = [(text, n % 2) for n, text in enumerate(texts)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        directory = prepared(folder, args.model, texts)
        file = folder / "rows.tsv"
        lines = [f"{text}\t{'ab'[label]}\n" for text, label in rows]
        file.write_text("text\tlabel\n" + "".join(lines), encoding="utf-8")
        times = {
            "ours": ours(directory, file, folder, args),
            "theirs": theirs(directory, rows, folder, args),
            "theirs, by length": theirs(directory, rows, folder, args, **by_length()),
        }
    result = {"model": args.model, "method": args.method}
    result |= {"rows": len(rows), "batch_size": args.batch_size}
    for who, (wall, used) in times.items():
        result |= {f"{who}, s": round(wall, 2), f"{who}, processor s": round(used, 2)}
        if who != "ours":
            result |= {
                f"{who}, ratio": round(wall / times["ours"][0], 2),
                f"{who}, ratio of processor time": round(used / times["ours"][1], 2),
            }
    print(json.dumps(result))
    if args.json:
        with open(args.json, "a", encoding="utf-8") as file_:
            file_.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
