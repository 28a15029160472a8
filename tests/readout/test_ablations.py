import numpy as np
from sklearn.linear_model import Ridge

from ridgerank.readout.ablations import logit_lens, pointwise_path
from ridgerank.readout.ridge import PENALTIES


def test_pointwise_is_ridge_with_an_intercept() -> None:
    generator = np.random.default_rng(0)
    states, targets = generator.standard_normal((50, 6)) + 3.0, generator.standard_normal(50) - 2.0
    for row, penalty in zip(pointwise_path(states, targets), PENALTIES, strict=True):
        np.testing.assert_allclose(
            row, Ridge(alpha=penalty).fit(states, targets).coef_, rtol=1e-7, atol=1e-10
        )


def test_the_logit_lens_ignores_the_scale_of_a_state() -> None:
    generator = np.random.default_rng(1)
    states, u, gain = generator.standard_normal((4, 6)), generator.standard_normal(6), generator.random(6)
    lens = logit_lens(states, u, gain, epsilon=0.0)
    np.testing.assert_allclose(logit_lens(5.0 * states, u, gain, epsilon=0.0), lens)
    normed = gain * states / np.sqrt((states**2).mean(axis=1, keepdims=True))
    np.testing.assert_allclose(lens, normed @ u)
