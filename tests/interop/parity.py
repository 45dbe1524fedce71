"""Compares our models with transformers' models of the same weights."""

import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from t5x_like.interop import mapping
from t5x_like.interop.hugging_face import families, model_directory

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

MODEL_TYPES = (
    *("bert", "roberta", "distilbert", "albert", "electra", "xlnet", "modernbert", "eurobert"),
    *("deberta", "deberta-v2", "longformer", "canine"),
    *(
        "t5",
        "mt5",
        "umt5",
        "longt5",
        "led",
        "bart",
        "mbart",
        "gpt2",
        "openai-gpt",
        "modernbert-decoder",
    ),
)


def classes_of(model_type):
    """The default configuration of a family, and the names of its models: no layers, no bases."""
    config = transformers.AutoConfig.for_model(model_type)
    module = importlib.import_module(type(config).__module__.replace("configuration_", "modeling_"))
    names = [
        name
        for name in module.__all__
        if issubclass(cls := getattr(module, name), transformers.PreTrainedModel)
        and "forward" in vars(cls)
    ]
    assert len(names) > 2
    return config, names


def theirs(kind, head, **settings):
    """A random model of theirs, by the names of its family and its head."""
    config = getattr(transformers, f"{kind}Config")(**settings)
    return random_model(getattr(transformers, f"{kind}{head}"), config)


def random_model(cls, config, std=0.25):
    """A model of a transformers class, with no parameter zero or one."""
    torch.manual_seed(0)
    model = cls(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=std)
    return model


def ours_of(their_model, directory, **more):
    """The same model here, through a directory."""
    their_model.save_pretrained(directory)
    found = model_directory.read(directory, **more)
    graph = nnx.graphdef(nnx.eval_shape(lambda: found.make(rngs=nnx.Rngs(0))))
    return nnx.merge(graph, jax.tree.map(jnp.asarray, found.params))


def params_of(model):
    return nnx.to_pure_dict(nnx.state(model, nnx.Param))


def close(got, want, where=None, atol=2e-5):
    """Asserts equality within 2e-5, where it counts."""
    got, want = np.asarray(got), np.asarray(want.detach())
    if where is not None:
        got, want = got[np.asarray(where)], want[np.asarray(where)]
    np.testing.assert_allclose(got, want, rtol=0, atol=atol)


def same_layers(got, want, where=None):
    """Asserts equality of states, or of attention, of every layer; `where` are its queries."""
    for ours, their_layer in zip(got, want, strict=True):
        if where is not None and ours.ndim == 4:
            ours, their_layer = ours.swapaxes(1, 2), their_layer.swapaxes(1, 2)
        close(ours, their_layer, where)


def same_ends(logits, out, where=None):
    """Asserts equality of the logits of an answer's start and end."""
    close(logits[..., 0], out.start_logits, where)
    close(logits[..., 1], out.end_logits, where)


def truths(labels, rows=5):
    """Classes of rows; numbers with one label."""
    return np.arange(rows) % labels if labels > 1 else np.arange(rows, dtype=np.float32) / 3


def loss_and_gradients(model, batch):
    def loss(model):
        return model.loss(batch, None, (), model.weights(batch))[0]

    return jax.jit(jax.value_and_grad(loss))(model)


def same_gradients(grads, model, their_model):
    """Asserts equality of all their gradients within 1e-4 of the largest; near 0, within 1e-6."""
    names = families.of_model(model).names(model)
    made_up = names.constants.keys() | dict(names.fresh()).keys()
    got = dict(mapping.tensors(params_of(grads), model, names))
    want = {name: p.grad for name, p in their_model.named_parameters() if p.grad is not None}
    assert want.keys() <= got.keys()
    for name, grad in want.items():
        close(got.pop(name), grad, atol=max(1e-6, 1e-4 * grad.abs().max().item()))
    for name, rest in got.items():
        assert not np.any(rest) or name in made_up, f"{name} has a gradient here alone"


def same_loss(model, batch, their_model, out):
    """Asserts the same gradient of every parameter, too."""
    out.loss.backward()
    loss, grads = loss_and_gradients(model, batch)
    np.testing.assert_allclose(loss, out.loss.item(), rtol=1e-5)
    same_gradients(grads, model, their_model)


def exported(model, directory, **more):
    """What transformers opens of our model, complete and with nothing left over."""
    name = model_directory.write(directory, model, params_of(model), **more)
    back, report = getattr(transformers, name).from_pretrained(directory, output_loading_info=True)
    assert not any(report[part] for part in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    return back.eval()


def there_and_back(their_model, directory):
    """Asserts that import and export give exactly the same weights and configuration."""
    model = ours_of(their_model, directory / "theirs")
    back = exported(model, directory / "ours")
    assert type(back) is type(their_model)
    before, after = their_model.state_dict(), back.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[key], after[key]) for key in before)
    makes = [model_directory.read(directory / at).make for at in ("theirs", "ours")]
    assert repr(makes[0]) == repr(makes[1])
    return model, back
