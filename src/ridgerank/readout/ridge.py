"""The centered ridge solution and its whole path, eq. 9-10."""

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from ridgerank.errors import CalibrationError
from ridgerank.ragged import Floats
from ridgerank.readout.moments import CenteredMoments, Rows

PENALTIES: Floats = np.logspace(-3, 6, 10)
"""λ from 10⁻³ to 10⁶; the paper's choices, 10¹ to 10⁴, lie inside."""
_NEAR_ROUNDING = 1e4
"""Times the rounding of G: above it Cholesky is right to five digits even where G lacks full rank."""


def ridge_path(moments: CenteredMoments, penalties: Floats = PENALTIES) -> Floats:
    """a = (H_c'H_c + λI)⁻¹ H_c't_c for every λ: (penalties, dim).

    With fewer contrasts than dimensions the dual form H_c'(H_c H_c' + λI)⁻¹ t_c gives the same vectors.
    """
    lambdas = np.asarray(penalties, dtype=np.float64)
    if lambdas.ndim != 1 or not len(lambdas) or not ((lambdas > 0) & np.isfinite(lambdas)).all():
        raise CalibrationError(f"penalties {penalties}, wanted at least one, all positive and finite")
    if moments.target_square == 0.0:
        raise CalibrationError(
            f"the targets of all {moments.lists} lists are constant within their list: "
            "there is no order to learn; wanted lists in which the full model tells pages apart"
        )
    problem = moments.problem()
    if isinstance(problem, Rows):
        H = problem.states
        return _solve_path(H @ H.T, problem.targets, lambdas, lambda x: H @ (H.T @ x)) @ H
    return _solve_path(problem.gram, problem.moment, lambdas, lambda x: problem.gram @ x)


def _solve_path(
    gram: Floats, right: Floats, penalties: Floats, multiply: Callable[[Floats], Floats]
) -> Floats:
    """x of (G + λI) x = r for every λ: (n, n), (n,), (penalties,) → (penalties, n).

    `multiply` is x ↦ G x for one step of refinement. From rows it goes through H, which has digits that HH'
    has lost: where eigenvalues are 10⁸ apart, the step brings the error from 10⁻⁷ to 10⁻¹¹.
    """
    solutions = []
    for penalty, inverse in zip(penalties, _inverses(gram, penalties), strict=True):
        x = inverse(right)
        solutions.append(x + inverse(right - penalty * x - multiply(x)))
    return np.array(solutions)


def _inverses(gram: Floats, penalties: Floats) -> Iterator[Callable[[Floats], Floats]]:
    """(G + λI)⁻¹ for every λ: by Cholesky, or by eigenvectors where λ is near the rounding of G.

    Eigenvalues that are only rounding are left out then: λ → 0 is the least-squares solution of least norm.
    """
    # Here, so that only those who solve pay for loading scipy.linalg.
    from scipy.linalg import cho_factor, cho_solve, eigh

    rounding = np.finfo(np.float64).eps * np.trace(gram)
    near_rounding = penalties <= _NEAR_ROUNDING * rounding
    if near_rounding.any():
        values, vectors = eigh(gram)
        kept = values > rounding
        values, vectors = values[kept], vectors[:, kept]
    for penalty, use_eigenvectors in zip(penalties, near_rounding, strict=True):
        if use_eigenvectors:
            yield partial(_solve_by_eigenvectors, values + penalty, vectors)
        else:
            shifted = np.array(gram, order="F")
            shifted[np.diag_indices(len(gram))] += penalty
            yield partial(cho_solve, cho_factor(shifted, lower=True, overwrite_a=True))


def _solve_by_eigenvectors(values: Floats, vectors: Floats, right: Floats) -> Floats:
    solution: Floats = vectors @ (vectors.T @ right / values)
    return solution
