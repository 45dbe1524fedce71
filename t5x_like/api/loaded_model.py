"""A trained model, loaded from a directory: evaluates, fills blanks, gives states, exports."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from etils import epath
from flax import nnx

from t5x_like.config import gin_text
from t5x_like.core.protocols import Decodable, lacking
from t5x_like.runs import run_directory, saved_model, trained_run
from t5x_like.runs.saved_model import SavedModel

if TYPE_CHECKING:
    from t5x_like.core.protocols import Vocabulary
    from t5x_like.inference.fill_blanks import Filled
    from t5x_like.runs.baseline_comparison import Columns
    from t5x_like.runs.trained_run import TrainedRun


@dataclasses.dataclass(frozen=True, repr=False)
class LoadedModel:
    """A model with its parameters and its vocabulary.

    Attributes:
      model: the NNX module; `model.config` is its architecture.
      vocabulary: the vocabulary; None if it is unknown, as for some imports.
      step: the checkpoint's step.
      directory: where it was loaded from.
      run: the run; None if the directory holds no run.
      original: the folder of the files that came with it from Hugging Face; None for a run.
    """

    model: Any
    vocabulary: Vocabulary | None
    step: int
    directory: str
    run: TrainedRun | None = None
    original: epath.Path | None = None

    def __repr__(self) -> str:
        return f"LoadedModel({type(self.model).__name__}, step {self.step}, {self.directory!r})"

    def evaluate(self, *, batches: int = 50) -> dict[str, Columns]:
        """{task: {who: {metric: value}}} on held-out text, beside baselines, as `t5x_like eval`.

        Args:
          batches: the most batches of each task, of 32 rows or as many as the mesh divides.

        Raises:
          ValueError: this is not a run, or its tasks have no held-out documents.
        """
        from t5x_like.runs import baseline_comparison

        if self.run is None:
            raise ValueError(
                f"{self.directory} is not a run and has no text to evaluate on: train with it "
                "(INIT_FROM), or evaluate the run that it came from"
            )
        rows = self.run.rows
        found = baseline_comparison.columns(self.run, batch_size=rows, batches=batches)
        if not found:
            raise ValueError(f"the tasks of {self.directory} hold no documents out")
        return found

    def fill(self, texts: str | Sequence[str], *, k: int = 1) -> Any:
        """Fills the blanks of a text, or of each of several: `___`, `[MASK]` or `<extra_id_0>`.

        An encoder-decoder writes any number of words into each (`Filled`); a masked language model
        guesses one token for each, with `k` alternatives and their probabilities (`Guesses`).

        Raises:
          ValueError: the model fills no blanks, a text has none, or `k` is not for this model.
        """
        several = [texts] if isinstance(texts, str) else list(texts)
        vocabulary = self._known_vocabulary()
        if lacking(self.model, Decodable):
            from t5x_like.inference import masked_words

            found: list[Any] = masked_words.fill(
                several, self.model, vocabulary, k=k, template=self._template()
            )
        else:
            if k != 1:
                raise ValueError("an encoder-decoder writes one answer: k must be 1")
            found = [*self.write(several)]
        return found[0] if isinstance(texts, str) else found

    def write(
        self, texts: Sequence[str], *, max_length: int = 128, batch_size: int = 8
    ) -> list[Filled]:
        """The text that an encoder-decoder writes into blanks, decoded greedily.

        Args:
          texts: each with `___` or `<extra_id_0>`, `<extra_id_1>`, ...
          max_length: tokens of an answer, all blanks of a text together.
          batch_size: how many texts are decoded at once.

        Raises:
          ValueError: the model is no encoder-decoder, knows no sentinels, or a text has no blank.
        """
        from t5x_like.inference import fill_blanks

        vocabulary = self._known_vocabulary()
        check_writes(self)
        return list(
            fill_blanks.fill(
                texts,
                vocabulary,
                generate=self._generator(max_length),
                batch_size=batch_size,
            )
        )

    def hidden(self, texts: Sequence[str]) -> list[np.ndarray]:
        """The last states of each text's tokens, special ones included: [tokens, d_model] each.

        They are the encoder's, where there is one; float32.

        Raises:
          ValueError: no vocabulary is known, or a text is longer than the model has positions.
        """
        from t5x_like.inference import text_rows

        vocabulary = self._known_vocabulary()
        ids = vocabulary.token_ids
        rows = [
            text_rows.with_special_tokens(vocabulary.encode(t), ids, self._template())
            for t in texts
        ]
        return text_rows.states(self.model, rows, pad=ids.pad)

    def export(self, directory: str | Path, *, overwrite: bool = False) -> list[str]:
        """Writes the model for transformers: config.json, weights, tokenizer.

        Args:
          directory: a folder without weights; an ELECTRA is written as two, in its subfolders.
          overwrite: whether to replace existing weights.

        Returns:
          A line about each model that was written: its folder, its class, its step.

        Raises:
          FileExistsError: there are weights already.
          ValueError: the model has no counterpart at Hugging Face.
        """
        from t5x_like.api import export

        params = nnx.to_pure_dict(nnx.state(self.model, nnx.Param))
        mine = SavedModel(self.model, params, self.step, self.vocabulary, self.original)
        return export.write(mine, Path(directory), overwrite=overwrite)

    def _known_vocabulary(self) -> Vocabulary:
        if self.vocabulary is None:
            raise ValueError(f"no vocabulary is known for {self.directory}: it reads no text")
        return self.vocabulary

    def _template(self) -> str:
        """The special tokens around a text, as in the family's tokenizers at Hugging Face."""
        from t5x_like.interop.hugging_face import families
        from t5x_like.interop.tokenizers.to_files import FAMILIES

        try:
            return FAMILIES[families.of_model(self.model).MODEL_TYPES[0]].text
        except (KeyError, ValueError):  # a family of the user's
            return "cls:0 A:0 sep:0" if lacking(self.model, Decodable) else "A:0 eos:0"

    def _generator(self, max_length: int) -> Callable[[np.ndarray], np.ndarray]:
        """A function from int32 [B, M] encoder tokens to int32 [B, max_length] decoder tokens."""
        from t5x_like.inference import decoding

        ids = self._known_vocabulary().token_ids
        converter = None if self.run is None else self.run.run.feature_converter
        start = getattr(ids, getattr(converter, "decoder_start", "pad"))

        def generate(tokens: Any) -> np.ndarray:
            return np.asarray(
                decoding.greedy(
                    self.model,
                    tokens,
                    max_length=max_length,
                    vocab_size=self._known_vocabulary().vocab_size,
                    start=ids.pad if start is None else start,
                    pad=ids.pad,
                    eos=ids.eos if ids.eos is not None else -1,
                )
            )

        if self.run is None:
            return generate
        run = self.run

        def on_mesh(tokens: np.ndarray) -> np.ndarray:
            with run.run.layout.active():
                return generate(trained_run.batch_to_device(run, {"x": tokens})["x"])

        return on_mesh


def load(
    directory: str | Path,
    *,
    step: int | None = None,
    gin: Sequence[str] = (),
    modules: Collection[str] = (),
) -> LoadedModel:
    """The model of a directory, with its parameters and its vocabulary.

    Args:
      directory: the directory of a run, of imported weights, or of transformers' `save_pretrained`.
      step: the step of a run's checkpoint; the newest by default.
      gin: settings that replace those saved with a run: `["BATCH_SIZE=8"]`.
      modules: modules or `.py` files that the directory's configuration may name, because you
        trust them: nothing else is imported or run but t5x_like itself.

    Raises:
      ValueError, OSError: it holds no model that can be read, or no such step.
      UntrustedError: its configuration names a module that is not allowed.
    """
    path = epath.Path(directory)
    if not run_directory.has_config(path) and (path / "config.json").exists():
        return _from_hugging_face(Path(directory))
    if _is_run(path):
        run = trained_run.load(str(directory), step=step, bindings=gin, modules=modules)
        return LoadedModel(run.model, run.vocabulary, run.step, str(directory), run)
    saved = saved_model.read(str(directory), step=step, modules=modules)
    params = jax.tree.map(lambda one: one.read(), saved.params)
    model = nnx.merge(nnx.graphdef(saved.model), params)
    return LoadedModel(model, saved.vocabulary, saved.step, str(directory), None, saved.original)


def _is_run(directory: epath.Path) -> bool:
    """Whether the directory is a run's: imported weights have no task."""
    parsed = gin_text.read(run_directory.read_config(directory))
    return any(one.selector.rpartition(".")[2] == "Run" for one in parsed.bindings)


def _from_hugging_face(directory: Path) -> LoadedModel:
    from t5x_like.interop.hugging_face import model_directory
    from t5x_like.interop.tokenizers import from_files

    found = model_directory.read(directory)
    graph = nnx.graphdef(nnx.eval_shape(lambda: found.make(rngs=nnx.Rngs(0))))
    model = nnx.merge(graph, jax.tree.map(jnp.asarray, found.params))
    vocabulary, _ = from_files.find(directory)
    return LoadedModel(model, vocabulary, 0, str(directory), None, epath.Path(directory))


def check_writes(model: LoadedModel) -> None:
    """Raises ValueError if a model has no decoder that fills blanks; the error says what to do."""
    module, kind = model.model, type(model.model).__name__
    advice = (
        "`t5x_like export --from RUN --to HF_DIR` writes it for transformers, where "
        "pipeline({task!r}, 'HF_DIR') asks it"
    )
    if lacking(module, Decodable):
        reads = hasattr(module, "encoder")
        task = "fill-mask" if reads else "text-generation"
        what = "reads and does not write" if reads else "continues with a text"
        raise ValueError(
            f"this model, a {kind}, {what}: only an encoder-decoder fills blanks with words of its "
            "own. "
            + "In Python t5x_like.load(RUN).fill(TEXT, k=5) guesses a token. " * reads
            + advice.format(task=task)
        )
    if model.vocabulary is None or not model.vocabulary.token_ids.sentinels:
        raise ValueError(
            f"this {kind} has no sentinels in its vocabulary, so it was not trained to fill "
            "numbered blanks. " + advice.format(task="fill-mask")
        )
