import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgerank.documents.sources import MAX_ASPECT_RATIO, fit_within_pixels
from ridgerank.errors import DocumentError

sides = st.floats(min_value=1e-3, max_value=1e9)
ratios = st.floats(min_value=1.01 / MAX_ASPECT_RATIO, max_value=0.99 * MAX_ASPECT_RATIO)


@given(
    height=sides,
    ratio=ratios,
    budget=st.integers(1, 10**8),
)
def test_fitted_size_is_within_the_budget_and_loses_at_most_a_row_and_a_column(
    height: float, ratio: float, budget: int
) -> None:
    columns, rows = fit_within_pixels(height * ratio, height, budget)
    assert columns >= 1
    assert rows >= 1
    assert columns * rows <= budget
    exact_columns, exact_rows = math.sqrt(budget * ratio), math.sqrt(budget / ratio)
    assert columns * rows >= (exact_columns - 1) * (exact_rows - 1) * (1 - 1e-9) - 1


@given(height=sides, budget=st.integers(200_000, 10**7), ratio=st.floats(min_value=0.2, max_value=5))
def test_fitted_size_keeps_the_shape(height: float, budget: int, ratio: float) -> None:
    columns, rows = fit_within_pixels(height * ratio, height, budget)
    assert columns / rows == pytest.approx(ratio, rel=1 / min(columns, rows) * 1.01)


@pytest.mark.parametrize("size", [(0, 10), (10, -1), (math.inf, 10), (10, math.nan)])
def test_a_page_without_area_is_refused(size: tuple[float, float]) -> None:
    with pytest.raises(DocumentError, match="no area"):
        fit_within_pixels(*size, 1000)


@pytest.mark.parametrize("size", [(1, 201), (1000, 4.9)])
def test_a_thread_is_refused(size: tuple[float, float]) -> None:
    with pytest.raises(DocumentError, match="cut it up"):
        fit_within_pixels(*size, 1000)
