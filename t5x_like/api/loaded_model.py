"""A trained model, loaded from a directory: evaluates, fills blanks, gives states, exports."""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from etils import epath
from flax import nnx

from t5x_like.api import foreign_names, predictors
from t5x_like.api.foreign_names import named_here
from t5x_like.api.options import Options
from t5x_like.api.predictors import Asked
from t5x_like.core.buckets import staging, storage
from t5x_like.core.spelling import nearest
from t5x_like.inference.attention_maps import AttentionMap, attention_maps
from t5x_like.inference.decoding.settings import Decoding
from t5x_like.inference.masked_words import MaskedWords
from t5x_like.inference.model_on_mesh import ModelOnMesh
from t5x_like.inference.text_rows import whole_rows
from t5x_like.runs import run_directory
from t5x_like.runs.saved_model import SavedModel
from t5x_like.runs.trained import one_head, shared_parameters, trained_run

if TYPE_CHECKING:
    from t5x_like.api.predictors import Ask
    from t5x_like.core.protocols.data import Vocabulary
    from t5x_like.inference.predictions import Predictor
    from t5x_like.runs.trained.baseline_comparison import Columns
    from t5x_like.runs.trained.trained_run import TrainedRun
    from t5x_like.training.checkpointing.ranking import WantedStep


@dataclasses.dataclass(frozen=True, repr=False)
class LoadedModel:
    """A model with its parameters and its vocabulary.

    Attributes:
      model: the NNX module; `model.config` is its architecture.
      vocabulary: the vocabulary; None if it is unknown, as for some imports.
      step: the checkpoint's step.
      directory: where it was loaded from, or its name at the hub.
      run: the run; None if the directory holds no run.
      original: the folder of the files that came with it from Hugging Face; None for a run.
      labels: the names of the classes that a run has learned.
      task_head: the task whose head it has, of a run of several.
    """

    model: Any
    vocabulary: Vocabulary | None
    step: int
    directory: str
    run: TrainedRun | None = None
    original: epath.Path | None = None
    labels: Sequence[str] = ()
    task_head: str | None = None

    def __repr__(self) -> str:
        return f"LoadedModel({type(self.model).__name__}, step {self.step}, {self.directory!r})"

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            other = foreign_names.METHODS.get(name)
            advice = f": here it is {other}" if other else ""
            raise AttributeError(f"a LoadedModel has no {name!r}{advice}", name=name, obj=self)

    def head(self, task: str) -> LoadedModel:
        """The model of one task of a run of several: the body, and the head of this task.

        Raises:
          ValueError: it has no such head.
        """
        one_head.check(self.model, task)
        assert self.run is not None  # several heads are those of a run
        run = one_head.of_run(self.run, task)
        labels = run_directory.read_class_names(storage.path(self.directory), task)
        return dataclasses.replace(self, model=run.model, run=run, labels=labels, task_head=task)

    def evaluate(
        self,
        *,
        task: str | None = None,
        data_dir: str | None = None,
        corpus: str | Sequence[str] | None = None,
        split: str = "validation",
        batches: int | None = None,
        predictions: str | Path | None = None,
    ) -> dict[str, Columns]:
        """{task: {who: {metric: value}}}, as `t5x_like eval`.

        Without a task or files, they are those of the held-out text of the run, beside baselines;
        of a run of several tasks those of each.

        Args:
          task: a task or mixture to evaluate on: its author's metrics, or else `exact_match`; for a
            run of `finetune` a task by name ("mnli_mismatched"), whose held-out rows are read.
          data_dir: the folder of the files of a task by name; None for `datasets` and TFDS.
          corpus: files in place of a task: rows with inputs and targets, or plain text.
          split: the split of `task`.
          batches: the most batches of each task, of 32 rows or as many as the mesh divides; None
            for 50 of the run's own text, and for all of `task` or `corpus`.
          predictions: the `.jsonl` file, or the folder, of predictions beside targets of `task` or
            `corpus`; by default the folder `predictions` of the run.

        Raises:
          ValueError: this is not a run, it has no held-out documents, or `task`, `split` or
            `corpus` is not there or not for this model.
          OSError: predictions cannot be written.
        """
        from t5x_like.runs.trained import run_evaluation

        if self.run is None:
            raise ValueError(
                f"{self.directory} is not a run and has no text to evaluate on: train with it "
                "(INIT_FROM), or evaluate the run that it came from"
            )
        return run_evaluation.columns(
            self.run,
            self.directory,
            task=task,
            data_dir=data_dir,
            corpus=corpus,
            split=split,
            batches=batches,
            predictions=predictions,
            report=_note,
        )

    def predict(
        self,
        inputs: str | Sequence[str | Mapping[str, Any]],
        *,
        ask: Ask | None = None,
        **options: Any,
    ) -> Any:
        """The model's answer to a text, or to each of several, as `t5x_like predict`.

        Args:
          inputs: a text, or several; or records with the text `inputs` and further fields, such as
            `targets` or `choices`. For tags, `inputs` may be a list of words.
          ask: one of `predictors.ASKS`; by default, a text's blanks are filled if it has some, and
            else the model does what it is for.
          options: fields of `Options`, such as `batch_size`, and of `Decoding`, such as
            `num_beams=4`.

        Returns:
          The JSON fields of the answer: a dict for a text, a list of them for several.

        Raises:
          ValueError: the model cannot be asked this, or not with such inputs or options.
        """
        from t5x_like.inference import predictions

        is_text = isinstance(inputs, str)
        records: list[Mapping[str, Any]] = [
            {"inputs": each} if isinstance(each, str) else each
            for each in ([inputs] if isinstance(inputs, str) else inputs)
        ]
        predictor = self.predictor(ask or self.usual_ask(records), **options)
        predictions.check_all(predictor, records)
        answers = predictor(records)
        return answers[0] if is_text else answers

    @named_here(foreign_names.FILLING)
    def fill(self, texts: str | Sequence[str], *, k: int = 1, max_new_tokens: int = 64) -> Any:
        """Fills the blanks of a text, or of each of several: `___`, `[MASK]` or `<extra_id_0>`.

        An encoder-decoder writes any number of words into each, a BART the whole text (`Filled`); a
        masked language model guesses one token for each, with `k` alternatives and their
        probabilities (`Guesses`).

        Args:
          texts: one or several, each with at least one blank.
          k: the guesses of a masked language model for each blank.
          max_new_tokens: the most tokens that an encoder-decoder writes, for all blanks of a text.

        Raises:
          ValueError: the model fills no blanks, a text has none, or `k` is not for this model.
        """
        filler: Any = self.predictor("fill", k=k, max_new_tokens=max_new_tokens)
        several = [texts] if isinstance(texts, str) else list(texts)
        texts_filled = (
            filler.guesses(several) if isinstance(filler, MaskedWords) else filler.fill(several)
        )
        return texts_filled[0] if isinstance(texts, str) else texts_filled

    def hidden(self, texts: Sequence[str], *, layer: int = -1) -> list[np.ndarray]:
        """The states of each text's tokens, special ones included: float32 [tokens, d_model] each.

        They are the encoder's, where there is one. Layer 0 is the first layer's input, -1 the last.

        Raises:
          ValueError: no vocabulary is known, or a text is longer than the model has positions.
        """
        reader: Any = self.predictor("embed", layer=layer, pooling="tokens")
        states: list[np.ndarray] = reader.vectors(whole_rows(reader.framing, texts))
        return states

    def attention(self, texts: Sequence[str]) -> list[AttentionMap]:
        """The tokens of each text, and what each of them looks at: float32 [N, H, tokens, tokens].

        It is the encoder's self-attention, where there is an encoder.

        Raises:
          ValueError: no vocabulary is known, the model gives no states, or a text is longer than it
            has positions.
        """
        reader: Any = self.predictor("embed")
        return attention_maps(reader.model, reader.framing, whole_rows(reader.framing, texts))

    def export(
        self,
        directory: str | Path,
        *,
        overwrite: bool = False,
        push: str | None = None,
        private: bool = False,
    ) -> list[str]:
        """Writes the model for transformers: config.json, weights, tokenizer, model card.

        Args:
          directory: a folder without weights; an ELECTRA is written as two, in its subfolders.
          overwrite: whether to replace existing weights and an existing README.md.
          push: the name of a model of the hub to upload to as well, such as "me/my-model".
          private: whether only its owner shall see it there.

        Returns:
          A line about each model that was written: its folder, its class, its step.

        Raises:
          FileExistsError: there are weights or a README.md already.
          ValueError, OSError: the model has no counterpart at Hugging Face, or no upload.
        """
        from t5x_like.api.exporting import export

        params = nnx.to_pure_dict(nnx.state(self.model, nnx.Param))
        saved = SavedModel(
            self.model,
            params,
            self.step,
            self.vocabulary,
            self.directory,
            self.original,
            self.labels,
            self.task_head,
        )
        return export.write(saved, directory, overwrite=overwrite, push=push, private=private)

    def beside(self, directory: str | Path, *, step: WantedStep = None) -> LoadedModel:
        """The model of another run that left its frozen parameters to the same base.

        Those are in memory once, for both models: only what trains is read.

        Args:
          directory: the directory of the other run, such as one of `method="lora"`.
          step: the step of its checkpoint, or "best"; the newest by default.

        Raises:
          ValueError, OSError: one of them has all its parameters itself, or another base.
        """
        for place, is_run in (
            (self.directory, self.run is not None),
            (directory, run_directory.is_run(storage.path(str(directory)))),
        ):
            if not is_run:
                raise ValueError(f"{place} is not a run that left parameters to its base")
        assert self.run is not None  # for the type checker
        shared = shared_parameters.of_run(self.directory, self.step, self.run.params)
        run = trained_run.load(str(directory), step=step, rows=self.run.rows, shared=shared)
        labels = run_directory.read_class_names(storage.path(str(directory)))
        return LoadedModel(run.model, run.vocabulary, run.step, str(directory), run, labels=labels)

    def predictor(self, ask: Ask, **options: Any) -> Predictor:
        """The predictor that answers `ask`, for many records (`inference.predictions`).

        Arguments as in `predict`.

        Raises:
          ValueError: the model cannot be asked this, or not with such options.
        """
        how = {field.name for field in dataclasses.fields(Decoding)} & options.keys()
        settings = {name: options.pop(name) for name in how}
        asked = self._asked()
        unread = asked.unread_decoding() if ask in ("write", "fill") and asked.writes else []
        if unread:
            _note_once(
                f"note: {', '.join(unread)} in {self.directory}'s generation_config.json has no "
                "counterpart here: answers may differ from transformers'"
            )
        decoding = Decoding(
            **{**asked.usual_decoding(most=settings.get("max_new_tokens")), **settings}
        )
        known = {field.name for field in dataclasses.fields(Options)}
        for name in options.keys() - known:
            raise ValueError(f"there is no option {name!r}" + nearest(name, known, of="options"))
        return predictors.predictor(asked, ask, Options(decoding=decoding, **options))

    def usual_ask(self, records: Sequence[Mapping[str, Any]]) -> Ask:
        """The default request for such records (`predictors.usual_ask`)."""
        return predictors.usual_ask(self._asked(), records)

    def _asked(self) -> Asked:
        if self.vocabulary is None:
            from t5x_like.interop.tokenizers import from_files

            original = self.original and staging.fetched(self.original)
            raise ValueError(f"{self.directory} reads no text: {from_files.why_none(original)}")
        run = None if self.run is None else self.run.run
        mesh = ModelOnMesh(self.model, None if run is None else run.layout)
        tuned = (
            (None, None, None)
            if self.run is None
            else (self.run.no_answer_threshold, self.run.class_threshold, self.run.temperature)
        )
        return Asked(mesh, self.vocabulary, run, self.original, self.labels, *tuned)


def _note(line: str) -> None:
    print(line, file=sys.stderr)


@functools.cache
def _note_once(line: str) -> None:
    _note(line)
