import numpy as np
from sklearn.linear_model import Ridge

from ridgerank.readout.ablations import pointwise_path
from ridgerank.readout.ridge import PENALTIES


def test_pointwise_is_ridge_with_an_intercept() -> None:
    generator = np.random.default_rng(0)
    states, targets = generator.standard_normal((50, 6)) + 3.0, generator.standard_normal(50) - 2.0
    for row, penalty in zip(pointwise_path(states, targets), PENALTIES, strict=True):
        np.testing.assert_allclose(
            row, Ridge(alpha=penalty).fit(states, targets).coef_, rtol=1e-7, atol=1e-10
        )
