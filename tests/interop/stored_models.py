"""Small models of transformers with random weights, in directories with a tokenizer."""

import parity
import transformers

from t5x_like.interop.tokenizers import to_files

SIZES = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 130,
}


def stored(directory, model_type, cls, config, vocabulary, **settings):
    """A model of theirs with random weights, in a directory with a tokenizer."""
    size = {"vocab_size": vocabulary.vocab_size, "pad_token_id": vocabulary.token_ids.pad}
    their_config = getattr(transformers, config)(**{**size, **settings})
    model = parity.random_model(getattr(transformers, cls), their_config, std=0.4)
    model.save_pretrained(directory)
    to_files.write(vocabulary, directory, model_type=model_type, max_length=128)
    return model
