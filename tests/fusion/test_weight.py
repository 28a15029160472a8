import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from ridgerank.fusion.weight import (
    fit_one_factor,
    is_interior,
    objective,
    optimal_weight,
    partial_correlations,
)
from ridgerank.ragged import Floats

CASES = 4000


def random_cases(seed: int) -> tuple[Floats, Floats, Floats]:
    """Correlations of random vectors: every triple that can occur, end points included."""
    generator = np.random.default_rng(seed)
    mixing = generator.standard_normal((CASES, 3, 3))
    vectors = mixing @ generator.standard_normal((CASES, 3, 5))
    vectors -= vectors.mean(axis=2, keepdims=True)
    vectors /= np.linalg.norm(vectors, axis=2, keepdims=True)
    gram = vectors @ vectors.transpose(0, 2, 1)
    return gram[:, 0, 2], gram[:, 1, 2], gram[:, 0, 1]


def test_the_closed_form_is_the_argmax_of_the_correlation_to_a_millionth() -> None:
    c_b, c_s, rho = random_cases(0)
    weights = optimal_weight(c_b, c_s, rho)
    grid = np.linspace(0.0, 1.0, 2001)
    curve = objective(grid[None, :], c_b[:, None], c_s[:, None], rho[:, None])
    start = grid[curve.argmax(axis=1)]
    kinds = {"inside": 0, "retriever": 0, "reranker": 0}
    for case in range(CASES):
        b, s, r = c_b[case], c_s[case], rho[case]
        bounds = (max(0.0, start[case] - 1e-3), min(1.0, start[case] + 1e-3))
        optimum = minimize_scalar(
            lambda w, b=b, s=s, r=r: -float(objective(np.asarray(w), b, s, r)),
            bounds=bounds,
            method="bounded",
            options={"xatol": 1e-12},
        )
        # Near the optimum the objective is flat: compare the weight where it is curved, else the value.
        best = max(-optimum.fun, curve[case].max())
        assert float(objective(weights[case], b, s, r)) >= best - 1e-12
        kind = "inside" if 0 < weights[case] < 1 else "retriever" if weights[case] == 0 else "reranker"
        kinds[kind] += 1
        if kind == "inside" and bounds[0] < optimum.x < bounds[1]:
            assert weights[case] == pytest.approx(optimum.x, abs=1e-6)
        elif kind != "inside":
            assert weights[case] == start[case]
    assert min(kinds.values()) > 500


def test_interior_means_both_partial_correlations_are_positive() -> None:
    c_b, c_s, rho = random_cases(2)
    of_retriever, of_reranker = partial_correlations(c_b, c_s, rho)
    np.testing.assert_array_equal(is_interior(c_b, c_s, rho), (of_retriever > 0) & (of_reranker > 0))


def test_partial_correlation_is_the_correlation_of_residuals() -> None:
    x, y, z = np.random.default_rng(3).standard_normal((3, 50))

    def residual(v: Floats) -> Floats:
        design = np.column_stack([np.ones(50), z])
        residual: Floats = v - design @ np.linalg.lstsq(design, v, rcond=None)[0]
        return residual

    expected = np.corrcoef(residual(x), residual(y))[0, 1]
    of_x, _ = partial_correlations(np.corrcoef(x, y)[0, 1], np.corrcoef(z, y)[0, 1], np.corrcoef(x, z)[0, 1])
    assert float(of_x) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("c_b", "c_s", "rho", "weight"),
    [
        (0.5, 0.5, 0.3, 0.5),  # equals share
        (0.5, 0.15, 0.3, 0.0),  # c_s = ρ c_b: the reranker adds nothing
        (0.15, 0.5, 0.3, 1.0),  # c_b = ρ c_s: the retriever adds nothing
        (0.5, -0.5, 0.2, 0.0),  # a reranker that is wrong
        (-0.5, 0.5, 0.2, 1.0),
        (-0.2, -0.4, 0.1, 0.0),  # both wrong: the less wrong
        (-0.4, -0.2, 0.1, 1.0),
        (0.4, 0.4, 1.0, 0.0),  # one score twice
        (0.4, -0.4, -1.0, 0.0),  # mirror images
        (-0.4, 0.4, -1.0, 1.0),
        (0.0, 0.0, 0.0, 0.0),  # nothing known
    ],
)
def test_end_points_and_degenerate_cases(c_b: float, c_s: float, rho: float, weight: float) -> None:
    assert float(optimal_weight(*map(np.asarray, (c_b, c_s, rho)))) == pytest.approx(weight)


@given(st.floats(0.05, 1.0), st.floats(0.05, 1.0), st.floats(0.05, 1.0))
def test_one_factor_recovers_the_correlations_it_was_made_from(b: float, s: float, t: float) -> None:
    model = fit_one_factor(*map(np.asarray, (b * s, b * t, s * t)))
    assert bool(model.defined)
    assert (float(model.c_b), float(model.c_s), float(model.c_third)) == pytest.approx((b, s, t))


def test_one_factor_refuses_what_it_cannot_explain() -> None:
    negative = fit_one_factor(*map(np.asarray, (0.3, -0.2, 0.5)))
    assert not negative.defined
    assert not negative.heywood
    assert np.isnan(negative.c_b)
    two_negative = fit_one_factor(*map(np.asarray, (-0.3, -0.2, 0.5)))
    assert not two_negative.defined
    heywood = fit_one_factor(*map(np.asarray, (0.1, 0.005, 0.6)))
    assert not heywood.defined
    assert heywood.heywood
    assert heywood.c_s > 1
