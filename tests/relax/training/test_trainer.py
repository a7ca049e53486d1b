# SPDX-License-Identifier: Apache-2.0
"""SetupTrainer and Trainer: small models are trained for some steps and compared with NumPy, step by step."""

import textwrap

import numpy as np
import pytest

import relaxvm
from relaxvm import relax
from relaxvm.relax.analysis import well_formed
from relaxvm.relax.training import SetupTrainer, Trainer
from relaxvm.relax.training.loss import CrossEntropyLoss, MSELoss
from relaxvm.relax.training.optimizer import SGD, Adam, MomentumSGD
from relaxvm.script import from_source

OPTIMIZERS = {
    "sgd": lambda: SGD(0.05),
    "momentum": lambda: MomentumSGD(0.02, 0.9),
    "adam": lambda: Adam(0.02),
}


def module(function: str, params: int, states: int) -> relaxvm.IRModule:
    header = "from relaxvm.script import ir as I, relax as R\n@I.ir_module\nclass Module:\n"
    mod = from_source(header + textwrap.indent(textwrap.dedent(function), "    "))
    return mod.with_attrs({"param_num": params, "state_num": states})


MLP = """
@R.function
def backbone(
    x: R.Tensor((6, 4), "float32"), w0: R.Tensor((4, 8), "float32"), b0: R.Tensor((8,), "float32"),
    w1: R.Tensor((8, 3), "float32"), b1: R.Tensor((3,), "float32")
):
    with R.dataflow():
        p = R.matmul(x, w0)
        q = R.add(p, b0)
        h = R.nn.relu(q)
        r = R.matmul(h, w1)
        out = R.add(r, b1)
        R.output(out)
    return out
"""

CONV = """
@R.function
def backbone(
    x: R.Tensor((4, 2, 8, 8), "float32"), w: R.Tensor((3, 2, 3, 3), "float32"),
    gamma: R.Tensor((3,), "float32"), beta: R.Tensor((3,), "float32"), v: R.Tensor((48, 3), "float32"),
    mean: R.Tensor((3,), "float32"), var: R.Tensor((3,), "float32")
):
    with R.dataflow():
        c = R.nn.conv2d(x, w, padding=1)
        n = R.nn.batch_norm(c, gamma, beta, mean, var, axis=1)
        y = n[0]
        new_mean = n[1]
        new_var = n[2]
        h = R.nn.relu(y)
        p = R.nn.max_pool2d(h, (2, 2), (2, 2))
        f = R.reshape(p, (4, 48))
        out = R.matmul(f, v)
        R.output(out, new_mean, new_var)
    return (out, new_mean, new_var)
"""


def shapes_of(mod: relaxvm.IRModule) -> dict[str, list[int]]:
    return {str(p.name): [int(d) for d in p.ty.shape.values] for p in mod["backbone"].params}


def trainer_of(mod, loss, optimizer, loss_args, **options) -> Trainer:
    train = SetupTrainer(loss, optimizer, loss_args, **options)(mod)
    well_formed(train)
    vm = relax.VirtualMachine(relaxvm.compile(train), relaxvm.cpu())
    return Trainer(train, vm, relaxvm.cpu())


def class_loss(logits, targets):
    """Cross entropy, and its gradient by the logits."""
    e = np.exp(logits - logits.max(1, keepdims=True))
    p = e / e.sum(1, keepdims=True)
    rows = np.arange(len(targets))
    grad = p.copy()
    grad[rows, targets] -= 1
    return -np.log(p[rows, targets]).mean(), grad / len(targets)


class NumPyMLP:
    def __init__(self, params):
        self.params = params

    def step(self, x, targets):
        w0, b0, w1, b1 = self.params
        h = np.maximum(x @ w0 + b0, 0)
        loss, g = class_loss(h @ w1 + b1, targets)
        gh = (g @ w1.T) * (h > 0)
        return loss, [x.T @ gh, gh.sum(0), h.T @ g, g.sum(0)]

    def predict(self, x):
        w0, b0, w1, b1 = self.params
        return np.maximum(x @ w0 + b0, 0) @ w1 + b1


def windows(x):
    """The 3x3 windows of padded images: [n, c, h, w, 3, 3]."""
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    return np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))


class NumPyConv:
    """Convolution, batch norm with statistics of the batch, relu, maximum of 2x2, matrix product."""

    def __init__(self, params):
        self.params, self.states = params, [np.zeros(3), np.ones(3)]

    def _head(self, y):
        h = np.maximum(y, 0)
        blocks = h.reshape(4, 3, 4, 2, 4, 2).transpose(0, 1, 2, 4, 3, 5).reshape(4, 3, 4, 4, 4)
        return blocks, blocks.max(-1).reshape(4, 48)

    def step(self, x, targets):
        w, gamma, beta, v = self.params
        per_channel = (1, 3, 1, 1)
        c = np.einsum("nchwij,ocij->nohw", windows(x), w)
        mean, var = c.mean((0, 2, 3)), c.var((0, 2, 3))
        root = np.sqrt(var + 1e-5).reshape(per_channel)
        normal = (c - mean.reshape(per_channel)) / root
        y = normal * gamma.reshape(per_channel) + beta.reshape(per_channel)
        blocks, f = self._head(y)
        loss, g = class_loss(f @ v, targets)

        gf = (g @ v.T).reshape(4, 3, 4, 4)
        first = np.arange(4) == blocks.argmax(-1)[..., None]
        gblocks = np.where(first, gf[..., None], 0.0)
        gh = gblocks.reshape(4, 3, 4, 4, 2, 2).transpose(0, 1, 2, 4, 3, 5).reshape(4, 3, 8, 8)
        gy = gh * (y > 0)
        gn = gy * gamma.reshape(per_channel)
        over = {"axis": (0, 2, 3), "keepdims": True}
        gc = (gn - gn.mean(**over) - normal * (gn * normal).mean(**over)) / root
        gw = np.einsum("nchwij,nohw->ocij", windows(x), gc)
        self.states = [0.9 * s + 0.1 * new for s, new in zip(self.states, (mean, var))]
        return loss, [gw, (gy * normal).sum((0, 2, 3)), gy.sum((0, 2, 3)), f.T @ g]

    def predict(self, x):
        w, gamma, beta, v = self.params
        per_channel = (1, 3, 1, 1)
        mean, var = (s.reshape(per_channel) for s in self.states)
        c = np.einsum("nchwij,ocij->nohw", windows(x), w)
        y = (c - mean) / np.sqrt(var + 1e-5) * gamma.reshape(per_channel)
        return self._head(y + beta.reshape(per_channel))[1] @ v


class NumPyOptimizer:
    def __init__(self, name, params):
        self.name, self.t = name, 0
        self.m, self.v = ([np.zeros_like(p) for p in params] for _ in range(2))

    def step(self, params, grads):
        self.t += 1
        return [self._one(i, p, g) for i, (p, g) in enumerate(zip(params, grads))]

    def _one(self, i, p, g):
        if self.name == "sgd":
            return p - 0.05 * g
        if self.name == "momentum":
            self.v[i] = 0.9 * self.v[i] + g
            return p - 0.02 * self.v[i]
        self.m[i] = 0.9 * self.m[i] + 0.1 * g
        self.v[i] = 0.999 * self.v[i] + 0.001 * g * g
        m_hat, v_hat = self.m[i] / (1 - 0.9**self.t), self.v[i] / (1 - 0.999**self.t)
        return p - 0.02 * m_hat / (np.sqrt(v_hat) + 1e-8)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("model", ["mlp", "conv"])
@pytest.mark.parametrize("legalize", [True, False])
def test_training_is_that_of_numpy(model, optimizer, legalize):
    text, params, states, reference = {
        "mlp": (MLP, 4, 0, NumPyMLP),
        "conv": (CONV, 4, 2, NumPyConv),
    }[model]
    mod = module(text, params, states)
    shapes = shapes_of(mod)
    rng = np.random.default_rng(4)
    batch = shapes["x"][0]
    x, targets = rng.normal(size=shapes["x"]), rng.integers(0, 3, batch)
    names = list(shapes)[1 : 1 + params]
    weights = [rng.normal(size=shapes[n]) * 0.3 for n in names]
    loss_args = [
        relax.TensorType((batch, 3), "float32"),
        relax.TensorType((batch,), "int64"),
    ]
    trainer = trainer_of(
        mod, CrossEntropyLoss(), OPTIMIZERS[optimizer](), loss_args, legalize=legalize
    )
    trainer.load_params([w.astype("float32") for w in weights])
    if states:
        trainer.load_states({"var": np.ones(3, "float32")})
    expected = reference(weights)
    stepper = NumPyOptimizer(optimizer, weights)
    losses = []
    for _ in range(12):
        loss, grads = expected.step(x, targets)
        expected.params = stepper.step(expected.params, grads)
        losses.append(float(trainer.update(x.astype("float32"), targets).numpy()))
        np.testing.assert_allclose(losses[-1], loss, rtol=2e-4)
    assert losses[-1] < 0.8 * losses[0]
    for got, want in zip(trainer.export_params().values(), expected.params):
        np.testing.assert_allclose(got.numpy(), want, rtol=2e-3, atol=2e-4)
    if states:
        for got, want in zip(trainer.export_states().values(), expected.states):
            np.testing.assert_allclose(got.numpy(), want, rtol=1e-3, atol=1e-4)
    result = trainer.predict(x.astype("float32")).numpy()
    np.testing.assert_allclose(result, expected.predict(x), rtol=2e-3, atol=2e-3)


NORM = """
@R.function
def backbone(
    x: R.Tensor((5, 6), "float64"), w: R.Tensor((6, 4), "float64"), gamma: R.Tensor((4,), "float64"),
    beta: R.Tensor((4,), "float64")
):
    with R.dataflow():
        p = R.matmul(x, w)
        out = R.nn.layer_norm(p, gamma, beta, axes=[-1])
        R.output(out)
    return out
"""


def test_layer_norm_is_trained():
    """The loss falls along the gradient as much as the gradient says."""
    mod = module(NORM, 3, 0)
    out = relax.TensorType((5, 4), "float64")
    trainer = trainer_of(mod, MSELoss(), SGD(1e-4), [out, out])
    rng = np.random.default_rng(8)
    before = [rng.normal(size=s) for s in list(shapes_of(mod).values())[1:]]
    trainer.load_params(before)
    x, targets = rng.normal(size=(5, 6)), rng.normal(size=(5, 4))
    first, second = (float(trainer.update(x, targets).numpy()) for _ in range(2))
    trainer.load_params(before)
    trainer.update(x, targets)
    after = [p.numpy() for p in trainer.export_params().values()]
    squares = sum(((b - a) ** 2).sum() for a, b in zip(after, before)) / 1e-4
    np.testing.assert_allclose(first - second, squares, rtol=1e-2)


DYNAMIC = """
@R.function
def backbone(x: R.Tensor(("n", 4), "float32"), w: R.Tensor((4, 3), "float32")):
    with R.dataflow():
        out = R.matmul(x, w)
        R.output(out)
    return out
"""


def test_batches_of_every_size_are_trained():
    out = relax.TensorType((relaxvm.tirx.Var("n", "int64"), 3), "float32")
    trainer = trainer_of(module(DYNAMIC, 1, 0), MSELoss(), SGD(0.1), [out, out])
    rng = np.random.default_rng(6)
    w = np.zeros((4, 3))
    for batch in (5, 2, 9):
        x, targets = rng.normal(size=(batch, 4)), rng.normal(size=(batch, 3))
        difference = x @ w - targets
        loss = trainer.update(x.astype("float32"), targets.astype("float32")).numpy()
        np.testing.assert_allclose(loss, (difference**2).mean(), rtol=1e-5)
        w -= 0.1 * 2 / difference.size * x.T @ difference
    np.testing.assert_allclose(trainer.export_params()["w"].numpy(), w, rtol=1e-4, atol=1e-6)


def mlp_trainer(zero: bool = True) -> Trainer:
    args = [relax.TensorType((6, 3), "float32")] * 2
    train = SetupTrainer(MSELoss(), SGD(0.1), args)(module(MLP, 4, 0))
    vm = relax.VirtualMachine(relaxvm.compile(train), relaxvm.cpu())
    return Trainer(train, vm, relaxvm.cpu(), zero_init_param_state=zero)


X, Y = np.ones((6, 4), "float32"), np.ones((6, 3), "float32")


def test_functions_and_attributes_of_a_training_module():
    args = [relax.TensorType((6, 3), "float32")] * 2
    train = SetupTrainer(MSELoss(), Adam(0.1), args)(module(MLP, 4, 0))
    assert {"backbone", "backbone_loss", "backbone_loss_adjoint", "optimizer"} <= {
        str(g.name_hint) for g in train.get_global_vars()
    }
    assert [train.get_attr(k) for k in ("input_num", "param_num", "state_num")] == [1, 4, 0]
    assert len(train.get_attr("optim_state")) == 3 + 2 * 4


def test_the_loss_of_images_is_that_of_their_statistics_and_prediction_of_the_moving_ones():
    args = [relax.TensorType((4, 3), "float32")] * 2
    train = SetupTrainer(MSELoss(), SGD(0.1), args, legalize=False)(module(CONV, 4, 2))
    assert "R.variance" in train["backbone_loss"].script()
    assert "R.variance" not in train["backbone"].script()


def test_parameters_are_zero_unless_said_otherwise():
    assert all(not p.numpy().any() for p in mlp_trainer().export_params().values())
    trainer = mlp_trainer(zero=False)
    assert set(trainer.export_params().values()) == {None}
    with pytest.raises(RuntimeError, match="parameter w0 has no value yet"):
        trainer.predict(X)
    with pytest.raises(RuntimeError, match="parameter w0 has no value yet"):
        trainer.update(X, Y)


def test_xaviers_distribution_is_bounded_by_the_sizes():
    np.random.seed(5)
    trainer = mlp_trainer(zero=False)
    trainer.xaiver_uniform_init_params()
    w0 = trainer.export_params()["w0"].numpy()
    bound = np.sqrt(6 / (4 + 8))
    assert 0.5 * bound < np.abs(w0).max() <= bound


def test_parameters_by_name_keep_the_others():
    trainer = mlp_trainer()
    trainer.load_params({"b1": np.ones(3, "float32")})
    np.testing.assert_array_equal(trainer.predict(X).numpy(), Y)


def test_inputs_and_targets_are_arrays_tensors_or_lists():
    x, y = relaxvm.runtime.tensor(X), relaxvm.runtime.tensor(Y)
    losses = [float(mlp_trainer().update(a, b).numpy()) for a, b in ((X, Y), (x, [y]), ([X], y))]
    assert losses == [1.0, 1.0, 1.0]


VALUES = {
    "3 values are given for 4 parameters": [np.zeros(3, "float32")] * 3,
    "there is no parameter 'w9'; there are: w0, b0, w1, b1": {"w9": np.zeros(3, "float32")},
    "parameter b0 must be of float32, not float64": {"b0": np.zeros(8)},
    "parameter b0 must be .* not of shape": {"b0": np.zeros(9, "float32")},
}


@pytest.mark.parametrize("message", VALUES)
def test_values_that_are_refused(message):
    trainer = mlp_trainer()
    with pytest.raises(ValueError, match=message):
        trainer.load_params(VALUES[message])


def test_a_wrong_number_of_inputs_is_an_error():
    for call in (lambda t: t.predict(X, X), lambda t: t.update([X, X], Y)):
        with pytest.raises(ValueError, match="the model takes 1 input"):
            call(mlp_trainer())


def test_a_module_that_is_not_set_up_is_an_error():
    trainer = mlp_trainer()
    with pytest.raises(ValueError, match="run SetupTrainer on it first"):
        Trainer(module(MLP, 4, 0), trainer.vm, relaxvm.cpu())


MODULES = {
    'needs an integer attribute "param_num"': module(MLP, 4, 0).without_attr("param_num"),
    'needs an integer attribute "state_num"': module(MLP, 4, 0).without_attr("state_num"),
    'a Relax function called "backbone"': module(MLP.replace("backbone", "model"), 4, 0),
    "nothing to train": module(MLP, 0, 0),
    "add up to 6": module(MLP, 6, 0),
    "longer than state_num, 2; it gives 1": module(MLP, 2, 2),
}


@pytest.mark.parametrize("message", MODULES)
def test_modules_that_are_refused(message):
    args = [relax.TensorType((6, 3), "float32")] * 2
    with pytest.raises(ValueError, match=message):
        SetupTrainer(MSELoss(), SGD(0.1), args)(MODULES[message])
