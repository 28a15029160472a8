"""The centered ridge solution and its whole path, eq. 9-10."""

import numpy as np

from ridgerank.errors import CalibrationError
from ridgerank.lists import Floats
from ridgerank.readout.moments import CenteredMoments, Rows

PENALTIES: Floats = np.logspace(-3, 6, 10)
"""λ from 10⁻³ to 10⁶; the paper's choices, 10¹ to 10⁴, lie inside."""


def ridge_path(moments: CenteredMoments, penalties: Floats = PENALTIES) -> Floats:
    """a = (H_c'H_c + λI)⁻¹ H_c't_c for every λ, from one factorization: (penalties, dim).

    With fewer pairs than dimensions the dual form H_c'(H_c H_c' + λI)⁻¹ t_c gives the same vectors.
    """
    # Here, so that only those who solve pay for loading scipy.linalg.
    from ridgerank.readout.band import lower_gram, reduce_to_band

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
        dual = reduce_to_band(lower_gram(problem.states)).solve(lambdas, problem.targets)
        return np.ascontiguousarray((problem.states.T @ dual).T)
    return np.ascontiguousarray(reduce_to_band(problem.gram.T).solve(lambdas, problem.moment).T)
