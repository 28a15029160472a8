"""The centered ridge solution and its whole path, eq. 9-10."""

import numpy as np

from ridgerank.errors import CalibrationError
from ridgerank.ragged import Floats
from ridgerank.readout.moments import CenteredMoments, Rows

PENALTIES: Floats = np.logspace(-3, 6, 10)
"""λ from 10⁻³ to 10⁶; the paper's choices, 10¹ to 10⁴, lie inside."""


def ridge_path(moments: CenteredMoments, penalties: Floats = PENALTIES) -> Floats:
    """a = (H_c'H_c + λI)⁻¹ H_c't_c for every λ, from one factorization: (penalties, dim).

    With fewer pairs than dimensions the dual form H_c'(H_c H_c' + λI)⁻¹ t_c gives the same vectors.
    The factorization is in float32, the solutions are refined in float64; `refine` says when a penalty is
    solved a second time.
    """
    # Here, so that only those who solve pay for loading scipy.linalg.
    from ridgerank.readout.refine import solve_path
    from ridgerank.readout.system import Dual, Primal

    lambdas = np.asarray(penalties, dtype=np.float64)
    if lambdas.ndim != 1 or not len(lambdas) or not ((lambdas > 0) & np.isfinite(lambdas)).all():
        raise CalibrationError(f"penalties {penalties}, wanted at least one, all positive and finite")
    if moments.target_square == 0.0:
        raise CalibrationError(
            f"the targets of all {moments.lists} lists are constant within their list: "
            "there is no order to learn; wanted lists in which the full model tells pages apart"
        )
    problem = moments.problem()
    system = Dual(problem) if isinstance(problem, Rows) else Primal(problem)
    return np.ascontiguousarray(solve_path(system, lambdas).T)
