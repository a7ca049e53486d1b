# SPDX-License-Identifier: Apache-2.0
"""Random numbers: their distributions, and that seeds decide them."""

import numpy as np
import pytest

ZEROS = np.zeros(100_000, "f4")
DRAW = "g (float[n] x) => ({dtype}[n] y) {{ y = {op}(x) }}"


@pytest.fixture
def draw(make_model, run_model_once):
    def build(op, dtype="float", opset=21):
        run = run_model_once(make_model(DRAW.format(op=op, dtype=dtype), opset))
        return lambda x=ZEROS: run({"x": x})[0]

    return build


@pytest.mark.parametrize("seed", ["", "seed=3.0, "])
def test_uniform_numbers_fill_their_range(seed, draw):
    y = draw(f"RandomUniformLike<{seed}low=-2.0, high=6.0>")()
    assert y.min() >= -2 and y.max() < 6
    counts = np.histogram(y, 8, (-2, 6))[0]
    np.testing.assert_allclose(counts, 12_500, rtol=0.06)
    assert len(np.unique(y)) > 99_000
    # Neighbours tell nothing about each other.
    assert abs(np.corrcoef(y[:-1], y[1:])[0, 1]) < 0.02


def test_normal_numbers_have_mean_and_spread(draw):
    y = draw("RandomNormalLike<seed=1.0, mean=3.0, scale=2.0>")()
    assert abs(y.mean() - 3) < 0.05 and abs(y.std() - 2) < 0.05
    within = np.mean(np.abs(y - 3) < 2)
    assert abs(within - 0.6827) < 0.01
    assert np.isfinite(y).all()


def test_doubles_have_all_their_bits(draw):
    y = draw("RandomUniformLike<seed=1.0, dtype=11>", "double")()
    assert y.dtype == np.float64 and len(np.unique(y)) == y.size
    assert np.any(y != y.astype("f4"))


def test_seed_repeats_and_its_absence_does_not(draw):
    fixed, free = draw("RandomUniformLike<seed=5.0>"), draw("RandomUniformLike")
    np.testing.assert_array_equal(fixed(), fixed())
    assert np.mean(free() == free()) < 0.01
    other = draw("RandomUniformLike<seed=6.0>")
    assert np.mean(fixed() == other()) < 0.01


def test_nodes_without_seeds_differ(make_model, run_model_once):
    text = "g (float[n] x) => (float[n] y, float[n] z) { y = RandomUniformLike(x) z = RandomUniformLike(x) }"
    y, z = run_model_once(make_model(text))({"x": np.zeros(1000, "f4")})
    assert np.mean(y == z) < 0.01


def test_a_seed_of_zero_is_one_like_others(draw):
    y = draw("RandomUniformLike<seed=0.0>")()
    assert 0 < y[0] and abs(y.mean() - 0.5) < 0.01


def test_bernoulli_hits_as_often_as_it_should(draw):
    chances = np.repeat(np.float32([0, 0.25, 1]), 20_000)
    y = draw("Bernoulli<seed=2.0, dtype=6>", "int32")(chances).reshape(3, -1)
    assert y.dtype == np.int32 and (y[0] == 0).all() and (y[2] == 1).all()
    assert abs(y[1].mean() - 0.25) < 0.02


def test_multinomial_draws_classes_by_probability(make_model, run_model_once):
    text = "g (float[n, 4] x) => (int32[n, 20000] y) { y = Multinomial<sample_size=20000, seed=4.0>(x) }"
    share = np.float32([[0.1, 0.2, 0.3, 0.4], [0, 0, 1, 0]])
    with np.errstate(divide="ignore"):
        y = run_model_once(make_model(text))({"x": np.log(share)})[0]
    have = [np.bincount(row, minlength=4) / row.size for row in y]
    np.testing.assert_allclose(have, share, atol=0.02)


DROPOUT = "g (float[n] x, float r, bool t) => (float[n] y, bool[n] m) { y, m = Dropout(x, r, t) }"


def test_dropout_follows_its_mode_while_running(make_model, run_model_once):
    run = run_model_once(make_model(DROPOUT))
    x = np.ones(10_000, "f4")
    y, kept = run({"x": x, "r": np.float32(0.75), "t": np.array(True)})
    assert abs(kept.mean() - 0.25) < 0.03
    np.testing.assert_array_equal(y, np.where(kept, np.float32(4), 0))
    for ratio, training in ((0.0, True), (0.75, False)):
        y, kept = run({"x": x, "r": np.float32(ratio), "t": np.array(training)})
        assert kept.all()
        np.testing.assert_array_equal(y, x)


def test_loop_draws_anew_in_every_iteration(make_model, run_model_once):
    text = (
        "g (float[n] x, int64 m) => (float[n] z, float[k, n] y) { c = Constant<value = bool {1}>() "
        "z, y = Loop (m, c, x) <body = b (int64 i, bool ci, float[n] v) => (bool co, float[n] w, float[n] u) "
        "{ co = Identity(ci) u = RandomUniformLike(v) w = Add(v, u) }> }"
    )
    _, y = run_model_once(make_model(text))({"x": np.zeros(50, "f4"), "m": np.array(200)})
    assert y.shape == (200, 50) and len(np.unique(y)) > 9_900
