"""Linear probes: logistic regression on the frozen states of a trained encoder.

    python benchmarks/probes.py runs/local --data data
    python benchmarks/probes.py runs/local --data data --untrained

They predict the sentiment of SST-2 (10,000 training phrases), the acceptability of CoLA, and
universal parts of speech in the English Web Treebank (30,000 training words). The folder holds
`glue_sst2/{train,dev}.tsv`, `glue_cola/{in_domain_train,in_domain_dev,out_of_domain_dev}.tsv` and
`ud_english_ewt/en_ewt-ud-{train,dev}.conllu`, also with .gz.

Features are the last layer (`last`), or the mean over the layers' outputs (`mean`), as pretraining
specialises a last layer. A word has the state of its first token; a sentence has the mean over its
tokens and the state of the first position. Needs scikit-learn.

Suffixes: B batch, L length, D d_model, F features, S the two sets of features.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import probe_data
from flax import nnx

from t5x_like.core.abilities import Want
from t5x_like.core.protocols.data import FeatureSpec
from t5x_like.data.rows.feature_converters import Encoder
from t5x_like.models import bert
from t5x_like.objectives.noise import masking
from t5x_like.runs.trained import trained_run
from t5x_like.training.checkpointing.checkpoint_items import CheckpointError

ROWS = 64
LENGTHS = (16, 32, 64)
"""Lengths of rows: the smallest that fits is used, and none exceeds the run's own."""
SETS = ("last", "mean")
PENALTIES = (0.01, 0.1, 1.0)
SENTENCES, WORDS = 10_000, 30_000


class Features:
    """The frozen encoder of a run.

    Raises:
      ValueError, OSError: it is not a run, has no such checkpoint, or has no BERT-like encoder.
    """

    def __init__(self, run_dir: str, *, step: int | None = None, untrained: bool = False) -> None:
        self._run = run = trained_run.load(run_dir, step=step, rows=ROWS)
        self.vocabulary, self.step = run.vocabulary, run.step
        if not isinstance(getattr(run.model, "encoder", None), bert.Encoder):
            raise ValueError(
                f"{run_dir} trains a {type(run.model).__name__}: probes read encoders alone (BERT, "
                "RoBERTa, ALBERT, ELECTRA and their kin)"
            )
        longest = max(part.data.lengths["inputs"] for _, part in run.run.in_phases())
        self._lengths = [length for length in LENGTHS if length <= longest] or [longest]
        self._params = run.params
        with run.run.layout.active():
            if untrained:
                init = jax.jit(lambda key: run.program.init(key).params)
                self._params = init(jax.random.key(run.run.options.seed))
        self._states = jax.jit(self._computed)

    def _computed(self, params: Any, batch: dict[str, jax.Array]) -> jax.Array:
        encoder = nnx.merge(self._run.program.graphdef, params).encoder
        hidden = encoder.hidden(batch, want=Want(states=True))
        return jnp.stack([hidden.last, hidden.states[1:].mean(0)]).astype(jnp.float32)

    def rows(self, texts: Sequence[np.ndarray]) -> Iterator[tuple[int, np.ndarray]]:
        """For each text (int [n] tokens), its number and states, float32 [S, n + 2, D], cut at L.

        The first and last states are of [CLS] and [SEP]. Short texts come first.
        """
        ids = self.vocabulary.token_ids
        examples = [
            dict(zip(("inputs", "token_type_ids"), masking.with_specials(ids, text), strict=True))
            for text in (text[: self._lengths[-1] - 2] for text in texts)
        ]
        sizes = np.array([len(example["inputs"]) for example in examples])
        buckets = np.searchsorted(self._lengths, sizes)
        for bucket, length in enumerate(self._lengths):
            members = (buckets == bucket).nonzero()[0]
            specs = {name: FeatureSpec(length) for name in ("inputs", "token_type_ids")}
            for start in range(0, len(members), ROWS):
                chosen = members[start : start + ROWS]
                groups = [[examples[i]] for i in chosen] + [[]] * (ROWS - len(chosen))
                made = [Encoder().convert(group, features=specs, ids=ids) for group in groups]
                batch = {name: np.stack([row[name] for row in made]) for name in made[0]}
                with self._run.run.layout.active():
                    on_device = trained_run.batch_to_device(self._run, batch)
                    x_SBLD = np.asarray(self._states(self._params, on_device))
                for i, x_SLD in zip(chosen, x_SBLD.swapaxes(0, 1), strict=False):
                    yield int(i), x_SLD[:, : sizes[i]]

    def sentences(self, texts: Sequence[str]) -> np.ndarray:
        """Mean over the text's tokens, and the first state: float32 [S, len(texts), 2 D]."""
        found: dict[int, np.ndarray] = {}
        encoded = [np.asarray(ids, np.int32) for ids in self.vocabulary.encode_batch(texts)]
        for i, x_SLD in self.rows(encoded):
            mean_SD = x_SLD[:, 1:-1].sum(1) / max(1, x_SLD.shape[1] - 2)
            found[i] = np.concatenate([mean_SD, x_SLD[:, 0]], axis=1)
        return np.stack([found[i] for i in range(len(texts))], axis=1)

    def words(self, tagged: Sequence[probe_data.Tagged]) -> tuple[np.ndarray, np.ndarray]:
        """States, float32 [S, W, D], and tags, str [W], of the words that are not cut off."""
        align = probe_data.Aligner(self.vocabulary)
        aligned = [align(sentence) for sentence in tagged]
        states, tags = [], []
        for i, x_SLD in self.rows([tokens for tokens, _ in aligned]):
            firsts = aligned[i][1] + 1  # past [CLS]
            firsts = firsts[firsts < x_SLD.shape[1] - 1]
            states.append(x_SLD[:, firsts])
            tags.append(np.array(tagged[i].tags[: len(firsts)]))
        return np.concatenate(states, axis=1), np.concatenate(tags)


def fit(x_NF: np.ndarray, y_N: np.ndarray) -> Any:
    """A scikit-learn model: standardised features, logistic regression.

    Its penalty is the one that gives a held-out tenth of the examples the highest likelihood.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    order = np.random.default_rng(0).permutation(len(y_N))
    held_out, rest = np.split(order, [len(order) // 10])

    def fit(penalty: float, chosen: np.ndarray) -> Any:
        regression = LogisticRegression(C=penalty, max_iter=300)
        return make_pipeline(StandardScaler(), regression).fit(x_NF[chosen], y_N[chosen])

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        likelihoods = [
            log_likelihood(fit(penalty, rest), x_NF[held_out], y_N[held_out])
            for penalty in PENALTIES
        ]
        return fit(PENALTIES[int(np.argmax(likelihoods))], order)


def log_likelihood(model: Any, x_NF: np.ndarray, y_N: np.ndarray) -> float:
    """The mean over the examples whose class the model knows."""
    known = np.isin(y_N, model.classes_)
    log_p_NC = model.predict_log_proba(x_NF[known])
    columns = np.searchsorted(model.classes_, y_N[known])
    return float(log_p_NC[np.arange(len(columns)), columns].mean())


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
      ValueError, OSError: as in `Features`; a file of the data is missing or of another format.
    """
    if importlib.util.find_spec("sklearn") is None:
        raise ModuleNotFoundError("probes need scikit-learn: pip install scikit-learn")
    # Everything is read before anything is computed, so that a missing file is reported at once.
    sst2 = [probe_data.load_sst2(data, split) for split in ("train", "dev")]
    cola = [probe_data.load_cola(data, split) for split in ("train", "dev")]
    tagged = [probe_data.load_tagged(data, split) for split in ("train", "dev")]
    sst2[0] = probe_data.subsample(sst2[0], SENTENCES)
    tagged[0] = probe_data.some_words(tagged[0], WORDS)
    features = Features(run_dir, step=step, untrained=untrained)
    found: dict[str, float] = {}

    (train, train_y), (dev, dev_y) = [(features.sentences(s.texts), s.labels) for s in sst2]
    for name, x_NF, dev_x_NF in zip(SETS, train, dev, strict=True):
        predicted = fit(x_NF, train_y).predict(dev_x_NF)
        found[f"sst2_accuracy/{name}"] = float((predicted == dev_y).mean())

    (train, train_y), (dev, dev_y) = [(features.sentences(s.texts), s.labels) for s in cola]
    for name, x_NF, dev_x_NF in zip(SETS, train, dev, strict=True):
        scores = fit(x_NF, train_y).decision_function(dev_x_NF)
        found[f"cola_matthews/{name}"] = matthews(scores > 0, dev_y)
        found[f"cola_roc_area/{name}"] = roc_area(scores, dev_y)

    (train, train_y), (dev, dev_y) = [features.words(sentences) for sentences in tagged]
    for name, x_NF, dev_x_NF in zip(SETS, train, dev, strict=True):
        predicted = fit(x_NF, train_y).predict(dev_x_NF)
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
