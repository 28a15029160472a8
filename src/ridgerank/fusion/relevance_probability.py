"""From a target predicted for each candidate to probabilities: of a page, and of a query being answered.

Both are logistic regressions. A page's needs the predicted target of that page, so that it means the same in
every list; a query's needs the best of its candidates and how far they stand above the others. Pure formulas.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from ridgerank.errors import CalibrationError
from ridgerank.ragged import Bools, Floats, Ragged

PAGE_FEATURES = ("predicted", "above_mean")
"""Of a page: its predicted target, and by how much it exceeds the mean of its list."""
QUERY_FEATURES = ("best", "second", "mean", "spread")
"""Of a list: the largest and second largest predicted target, their mean and standard deviation."""
_PENALTY = 1.0
"""On squared coefficients of standardized features: next to nothing with a hundred rows, and finite where a
feature separates the classes."""
_STEPS = 100
_TOLERANCE = 1e-10


@dataclass(frozen=True, slots=True)
class Logistic:
    """P(yes) = 1 / (1 + exp(−(intercept + coefficients · features)))."""

    intercept: float
    coefficients: tuple[float, ...]

    def probabilities(self, features: Floats) -> Floats:
        """(rows, features) → (rows,)."""
        probabilities: Floats = expit(self.intercept + features @ np.array(self.coefficients))
        return probabilities


def fit_logistic(features: Floats, labels: Bools, *, columns: int | None = None) -> Logistic:
    """Penalized maximum likelihood by Newton's method: (rows, features), (rows,).

    It minimizes −Σ log P(label) + ½ ‖b‖², b the coefficients of the features standardized over the rows. Only
    the first `columns` features are used, all by default; the other coefficients are 0.
    """
    if not labels.any() or labels.all():
        raise CalibrationError("all rows have the same label; wanted some of both, to tell them apart by")
    used = features[:, : features.shape[1] if columns is None else columns]
    means, widths = used.mean(axis=0), used.std(axis=0)
    scales = np.where(widths > 0, widths, 1.0)
    rows = np.column_stack([np.ones(len(used)), (used - means) / scales])
    solution = _maximize(rows, labels.astype(np.float64))
    slopes = solution[1:] / scales
    unused = (0.0,) * (features.shape[1] - used.shape[1])
    return Logistic(float(solution[0] - slopes @ means), (*slopes.tolist(), *unused))


def _maximize(rows: Floats, labels: Floats) -> Floats:
    """Newton's steps, halved while they do not help; the first column is the intercept, not penalized."""
    penalty = np.full(rows.shape[1], _PENALTY)
    penalty[0] = 0.0

    def loss(b: Floats) -> float:
        z = rows @ b
        # log(1 + exp(z)) without overflow.
        return float(
            (np.maximum(z, 0) + np.log1p(np.exp(-np.abs(z))) - labels * z).sum() + penalty @ b**2 / 2
        )

    solution = np.zeros(rows.shape[1])
    current = loss(solution)
    for _ in range(_STEPS):
        probabilities = expit(rows @ solution)
        gradient = rows.T @ (probabilities - labels) + penalty * solution
        curvature = (rows * (probabilities * (1 - probabilities))[:, None]).T @ rows + np.diag(penalty)
        step = np.linalg.solve(curvature, gradient)
        size = 1.0
        while loss(solution - size * step) > current and size > _TOLERANCE:
            size /= 2
        solution = solution - size * step
        previous, current = current, loss(solution)
        if previous - current <= _TOLERANCE * (1 + abs(current)):
            break
    return solution


def page_features(predicted: Floats, lists: Ragged) -> Floats:
    """`PAGE_FEATURES` of every member: (members,) → (members, 2)."""
    return np.column_stack([predicted, lists.center(predicted)])


def query_features(predicted: Floats, lists: Ragged) -> Floats:
    """`QUERY_FEATURES` of every list: (members,) → (lists, 4). A lone member is its own second."""
    best = lists.max(predicted)
    ranks = lists.ranks(predicted)
    seconds = best.copy()
    second_members = ranks == 2
    seconds[lists.list_numbers()[second_members]] = predicted[second_members]
    means = lists.sum(predicted) / lists.lengths
    spreads = np.sqrt(lists.sum(lists.center(predicted) ** 2) / lists.lengths)
    return np.column_stack([best, seconds, means, spreads])


def remove_relevant(lists: Ragged, relevant: Bools) -> tuple[Ragged, Bools]:
    """The lists as they would be without their relevant members: what remains, and the mask of its members.

    Lists in which every member is relevant are left out.
    """
    lengths = lists.sum((~relevant).astype(np.float64)).astype(np.int64)
    return Ragged.of_lengths(lengths[lengths > 0].tolist()), ~relevant
