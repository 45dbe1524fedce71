"""LSTM and GRU against torch's, in values and gradients; clips; resets; a state that is carried."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from t5x_like.layers.recurrent.gru import Gru
from t5x_like.layers.recurrent.lstm import Inits, Lstm
from t5x_like.layers.recurrent.lstm_scan import Clips, LstmMatrices, LstmState, Steps, lstm_scan

torch = pytest.importorskip("torch")

ROWS, LENGTH, D_IN, CELLS, D_OUT = 3, 7, 5, 6, 4
NORMAL = nnx.initializers.normal(0.5)


def arrays(*shapes, seed=0):
    rng = np.random.default_rng(seed)
    return [jnp.asarray(rng.normal(size=shape), jnp.float32) for shape in shapes]


def made(kind, projected=False):
    settings = {"dtype": "float32", "rngs": nnx.Rngs(0)}
    if kind == "gru":
        return Gru(D_IN, CELLS, init=NORMAL, recurrent_init=NORMAL, **settings)
    more = {"d_out": D_OUT if projected else None, "recurrent_bias": True}
    return Lstm(D_IN, CELLS, init=Inits.same(NORMAL), **more, **settings)


def theirs_of(layer, projected=False):
    kind = torch.nn.GRU if isinstance(layer, Gru) else torch.nn.LSTM
    more = {"proj_size": D_OUT} if projected else {}
    other = kind(D_IN, CELLS, batch_first=True, **more)
    layer.input.bias[...], layer.recurrent_bias[...] = arrays(*[layer.input.bias.shape] * 2)
    given = [layer.input.kernel[...].T, layer.recurrent[...].T]
    given += [layer.input.bias[...], layer.recurrent_bias[...]]
    if projected:
        given.append(layer.projection[...].T)
    with torch.no_grad():
        for parameter, value in zip(other.parameters(), given, strict=True):
            parameter.copy_(torch.tensor(np.asarray(value)))
    return other


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
@pytest.mark.parametrize(("kind", "projected"), [("lstm", False), ("lstm", True), ("gru", False)])
def test_values_and_gradients_are_those_of_torch(kind, projected):
    layer = made(kind, projected)
    other = theirs_of(layer, projected)
    width = D_OUT if projected else CELLS
    x, h, c, weights = arrays(
        (ROWS, LENGTH, D_IN), (ROWS, width), (ROWS, CELLS), (ROWS, LENGTH, width), seed=1
    )
    first = [h, c] if kind == "lstm" else [h]

    def loss(layer, x, first):
        if kind == "gru":
            y = layer(x, first[0])
            return (y * weights).sum(), y
        y, last = layer(x, LstmState(*first))
        return (y * weights).sum() + last.cells.sum() + last.outputs.sum(), y

    (_, y), (of_layer, of_x, of_first) = jax.jit(
        jax.value_and_grad(loss, argnums=(0, 1, 2), has_aux=True)
    )(layer, x, first)
    x_, *first_ = (torch.tensor(np.asarray(v), requires_grad=True) for v in (x, *first))
    state = tuple(v[None] for v in first_) if kind == "lstm" else first_[0][None]
    y_, last_ = other(x_, state)
    total = (y_ * torch.tensor(np.asarray(weights))).sum()
    total = total + sum(v.sum() for v in last_) if kind == "lstm" else total
    total.backward()

    def close(ours, theirs):
        np.testing.assert_allclose(ours, theirs.detach().numpy(), rtol=1e-5, atol=2e-6)

    close(y, y_)
    for ours, their in zip([of_x, *of_first], [x_, *first_], strict=True):
        close(ours, their.grad)
    grads = dict(other.named_parameters())
    close(of_layer.input.kernel[...].T, grads["weight_ih_l0"].grad)
    close(of_layer.recurrent[...].T, grads["weight_hh_l0"].grad)
    close(of_layer.input.bias[...], grads["bias_ih_l0"].grad)
    close(of_layer.recurrent_bias[...], grads["bias_hh_l0"].grad)
    if projected:
        close(of_layer.projection[...].T, grads["weight_hr_l0"].grad)


def test_gradients_with_clips_resets_and_padding_are_those_of_jax():
    """Of the same loop without a gradient of its own."""
    clips = Clips(cells=0.4, outputs=0.3)
    gates, h, c, recurrent, projection = arrays(
        (LENGTH, ROWS, 4 * CELLS), (ROWS, D_OUT), (ROWS, CELLS), (D_OUT, 4 * CELLS), (CELLS, D_OUT)
    )
    keep, counts = (
        (x > -0.5).astype(jnp.float32) for x in arrays((LENGTH, ROWS), (LENGTH, ROWS), seed=2)
    )

    def ours(gates, h, c, recurrent, projection):
        y, last = lstm_scan(
            gates,
            Steps(keep, counts),
            LstmState(h, c),
            LstmMatrices(recurrent, projection),
            clips=clips,
        )
        return y, last.cells

    def plain(gates, h, c, recurrent, projection):
        outputs = []
        for t in range(LENGTH):
            before = h, c
            h, c = h * keep[t][:, None], c * keep[t][:, None]
            i, f, g, o = jnp.split(gates[t] + h @ recurrent, 4, axis=-1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            c = jnp.clip(c, -clips.cells, clips.cells)
            h = (jax.nn.sigmoid(o) * jnp.tanh(c)) @ projection
            h = jnp.clip(h, -clips.outputs, clips.outputs)
            there = counts[t][:, None] > 0
            h, c = jnp.where(there, h, before[0]), jnp.where(there, c, before[1])
            outputs.append(h)
        return jnp.stack(outputs), c

    given = (gates, h, c, recurrent, projection)
    (y, last), pull = jax.vjp(ours, *given)
    (want_y, want_last), want_pull = jax.vjp(plain, *given)
    np.testing.assert_allclose(y, want_y, atol=1e-6)
    np.testing.assert_allclose(last, want_last, atol=1e-6)
    assert (jnp.abs(want_last) == clips.cells).any()
    assert (jnp.abs(want_y) == clips.outputs).any()
    cotangent = tuple(arrays(y.shape, last.shape, seed=3))
    for got, want in zip(pull(cotangent), want_pull(cotangent), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=2e-6)


def test_a_state_that_is_carried_is_one_long_row_and_a_reset_begins_another():
    layer = made("lstm", projected=True)
    (x,) = arrays((ROWS, 2 * LENGTH, D_IN))
    start = layer.initial_state(ROWS)
    whole, last = layer(x, start)
    first, middle = layer(x[:, :LENGTH], start)
    second, end = layer(x[:, LENGTH:], middle)
    np.testing.assert_allclose(jnp.concatenate([first, second], axis=1), whole, atol=1e-6)
    np.testing.assert_allclose(end.cells, last.cells, atol=1e-6)
    keep = jnp.ones((ROWS, 2 * LENGTH)).at[:, LENGTH].set(0)
    reset, _ = layer(x, start, keep_BL=keep)
    alone, _ = layer(x[:, LENGTH:], start)
    np.testing.assert_allclose(reset[:, LENGTH:], alone, atol=1e-6)
