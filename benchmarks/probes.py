"""Linear probes: logistic regression on the frozen states of a trained encoder.

    python benchmarks/probes.py runs/local --data data
    python benchmarks/probes.py runs/local --data data --untrained

They predict the sentiment of SST-2 (10,000 training phrases), the acceptability of CoLA, and
universal parts of speech in the English Web Treebank (30,000 training words). The folder holds
`glue_sst2/{train,dev}.tsv`, `glue_cola/{in_domain_train,in_domain_dev,out_of_domain_dev}.tsv` and
`ud_english_ewt/en_ewt-ud-{train,dev}.conllu`, also with .gz.

The probes are those of `t5x_like language RUN probe`. Features are the last layer (`last`), or the
mean over the layers' outputs (`mean`), as pretraining specialises a last layer. A word has the
state of its first token; a sentence has the mean over its tokens and the state of the first
position. Needs scikit-learn.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import probe_data

from t5x_like.api import loading
from t5x_like.api.loaded_model import LoadedModel
from t5x_like.evaluation.language import layer_probes, linear_probes, tagged_words
from t5x_like.inference.embeddings import Embeddings
from t5x_like.runs.run import Run
from t5x_like.runs.trained import language
from t5x_like.training.checkpointing.checkpoint_items import CheckpointError

ROWS, LENGTH = 64, 64
"""Rows of a batch, and the most tokens of a row, or as many as the run reads."""
SETS = ("last", "mean")
SENTENCES, WORDS = 10_000, 30_000


def readers(model: LoadedModel, run: Run) -> dict[str, Embeddings]:
    """What reads the two sets of features: the last layer, and the mean over the layers' outputs.

    Raises:
      ValueError: the model gives no states.
    """
    longest = max(part.data.lengths["inputs"] for _, part in run.in_phases())
    options = {"pooling": "tokens", "batch_size": ROWS, "max_input_length": min(LENGTH, longest)}
    depth = model.predictor("embed").depth()
    layers = {"last": -1, "mean": [0.0] + [1.0] * depth}
    return {name: model.predictor("embed", layer=layers[name], **options) for name in SETS}


def matthews(predicted: np.ndarray, truth: np.ndarray) -> float:
    """The correlation of two arrays of 0 and 1; 0 where one of them is constant."""
    if predicted.std() == 0 or truth.std() == 0:
        return 0.0
    return float(np.corrcoef(predicted, truth)[0, 1])


def roc_area(scores: np.ndarray, truth: np.ndarray) -> float:
    """How probably an example of class 1 scores higher than one of class 0; a tie counts half."""
    _, place, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[place]
    positive = int((truth == 1).sum())
    above = ranks[truth == 1].sum() - positive * (positive + 1) / 2
    return float(above / (positive * (len(truth) - positive)))


def probe(
    run_dir: str, data: Path, *, step: int | None = None, untrained: bool = False
) -> dict[str, float]:
    """Dev scores of all tasks, by names such as "sst2_accuracy/last" and "cola_roc_area/mean".

    Args:
      run_dir: directory of the run.
      data: the folder of the tasks, as in this file's docstring.
      step: which checkpoint; the newest by default.
      untrained: probes new parameters, from the run's seed, instead.

    Raises:
      ModuleNotFoundError: scikit-learn is not installed.
      ValueError, OSError: it is not a run, has no such checkpoint, or gives no
        states; a file of the data is missing or of another format.
    """
    if importlib.util.find_spec("sklearn") is None:
        raise ModuleNotFoundError("probes need scikit-learn: pip install scikit-learn")
    # Everything is read before anything is computed, so that a missing file is reported at once.
    sst2 = [probe_data.load_sst2(data, split) for split in ("train", "dev")]
    cola = [probe_data.load_cola(data, split) for split in ("train", "dev")]
    tagged = [probe_data.load_tagged(data, split) for split in ("train", "dev")]
    sst2[0] = probe_data.subsample(sst2[0], SENTENCES)
    tagged[0] = tagged_words.some_words(tagged[0], WORDS)
    model = loading.load(run_dir, step=step, rows=ROWS)
    assert model.run is not None
    if untrained:
        model = language.untrained(model, model.run)
    found: dict[str, float] = {}
    for name, reader in readers(model, model.run.run).items():
        train, dev = (layer_probes.text_states(reader, part.texts) for part in sst2)
        predicted = linear_probes.fit(train, sst2[0].labels).predict(dev)
        found[f"sst2_accuracy/{name}"] = float((predicted == sst2[1].labels).mean())

        train, dev = (layer_probes.text_states(reader, part.texts) for part in cola)
        scores = linear_probes.fit(train, cola[0].labels).decision_function(dev)
        found[f"cola_matthews/{name}"] = matthews(scores > 0, cola[1].labels)
        found[f"cola_roc_area/{name}"] = roc_area(scores, cola[1].labels)

        (train, train_y), (dev, dev_y) = (
            layer_probes.features(reader, sentences, model.vocabulary) for sentences in tagged
        )
        predicted = linear_probes.fit(train, train_y).predict(dev)
        found[f"pos_accuracy/{name}"] = float((predicted == dev_y).mean())
    return found


def main() -> None:
    """Prints the scores, and writes them as a JSON object where asked to."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", metavar="RUN", help="the run's MODEL_DIR")
    parser.add_argument("--data", type=Path, required=True, metavar="FOLDER", help="of the tasks")
    parser.add_argument("--step", type=int, help="of the checkpoint (default: the newest)")
    parser.add_argument("--untrained", action="store_true", help="probe fresh parameters")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write JSON here too")
    args = parser.parse_args()
    try:
        found = probe(args.run, args.data, step=args.step, untrained=args.untrained)
    except (ModuleNotFoundError, OSError, ValueError, CheckpointError) as error:
        sys.exit(f"probes: {error}")
    print(f"{'dev split':16}" + "".join(f"{name:>8}" for name in SETS))
    for metric in dict.fromkeys(name.split("/")[0] for name in found):
        print(f"{metric:16}" + "".join(f"{found[f'{metric}/{name}']:8.3f}" for name in SETS))
    if args.output:
        args.output.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
