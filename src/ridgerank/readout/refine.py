"""A whole path of penalties: reduced to a band in float32, made exact in float64.

The costly part, the Gram matrix and its reduction, runs in float32 at twice the speed. What comes of it
is a solver that is right to some five digits; a few sweeps x ← x + solver(r − (G + λI) x), with the
residual in float64 and all penalties side by side, make it right to all. The states of language models
have a few directions that are huge beside the others, in which float32 would drown: these are turned to
the first coordinates before anything is rounded, so that rounding is relative to what stands in a place.

A penalty that does not settle is solved a second time by the same means in float64. That happens when
the spectrum falls by more than the digits of float32 behind its leading directions and λ is near its
end, and for products when G + λI has a condition beyond some 10⁶: products have lost by then what the
residual would have to show.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import DTypeLike
from scipy.linalg import lapack

from ridgerank.errors import CalibrationError
from ridgerank.ragged import Bools, Floats, Ints
from ridgerank.readout.band import Band, Reals, Reflection, reduce_to_band, reflect
from ridgerank.readout.system import System

_LEADING = 32
"""Directions turned to the front: those with huge states are fewer, each one costs a few products."""
_SWEEPS = 8
"""More would cost as much as the reduction in float64."""
_EXACT = 1e-13
"""Relative error of a readout at which it is not refined further."""
SETTLED = 1e-10
"""Relative error that float64 residuals allow even where the system is ill-conditioned; above, it failed."""


@dataclass(frozen=True, slots=True, eq=False)
class Solver:
    """(G + λI)⁻¹ as Q₀ Q (B + λI)⁻¹ Q' Q₀', to the precision of Q, for the penalties it was made for."""

    leading: Reflection
    """Q₀."""
    band: Band
    """Q and B, of the scaled matrix."""
    scale: float
    precision: DTypeLike
    factors: tuple[Floats | None, ...]
    """Of B + λI; none where λ is too small for this precision."""

    @property
    def definite(self) -> Bools:
        """Which penalties it can solve for."""
        return np.array([factor is not None for factor in self.factors])

    def solve(self, right: Floats, penalties: Ints) -> Floats:
        """A right-hand side for each of some penalties: (n, columns), their numbers (columns,)."""
        columns = np.array(right, order="F")
        self.leading.turn(columns)
        rounded, before = self._round(columns)
        self.band.turn(rounded)
        columns[...] = rounded
        for number, penalty in enumerate(penalties):
            column = columns[:, number : number + 1]
            column[...], _ = lapack.dpbtrs(self.factors[penalty], column, lower=1)
        rounded, after = self._round(columns)
        self.band.turn_back(rounded)
        columns[...] = rounded
        columns *= before * after / self.scale
        self.leading.turn_back(columns)
        return columns

    def _round(self, columns: Floats) -> tuple[Reals, Floats]:
        """Columns of length one in the solver's precision, whose range is small, and their lengths."""
        lengths = _lengths(columns)
        return (columns / lengths).astype(self.precision), lengths


def solve_path(system: System, penalties: Floats) -> Floats:
    """The readout at every penalty: (penalties,) → (dim, penalties)."""
    sketch = _sketch(system)
    scale = float(np.sqrt(np.sum(sketch * sketch))) or 1.0  # about ‖G‖: nothing overflows in float32
    leading, _ = reflect(sketch, 0)
    readouts, errors = refine(system, make_solver(system, leading, scale, penalties, np.float32), penalties)
    left = np.flatnonzero(errors > SETTLED)
    if len(left):
        solver = make_solver(system, leading, scale, penalties[left], np.float64)
        if not solver.definite.all():
            least = penalties[left][~solver.definite].max()
            raise CalibrationError(
                f"the ridge system is not positive definite at penalty {least:g}: it is too small for "
                "states of this size; wanted a larger one"
            )
        readouts[:, left], _ = refine(system, solver, penalties[left])
    return readouts


def make_solver(
    system: System, leading: Reflection, scale: float, penalties: Floats, precision: DTypeLike
) -> Solver:
    """Reduce G, seen through `leading` and divided by `scale`, in a precision; factor it at each penalty."""
    band = reduce_to_band(system.turned(leading, scale, precision))
    return Solver(
        leading, band, scale, precision, tuple(band.factor(penalty / scale) for penalty in penalties)
    )


def refine(system: System, solver: Solver, penalties: Floats) -> tuple[Floats, Floats]:
    """Readouts (dim, penalties) and their estimated relative errors (penalties,), infinite if unsolved.

    Corrections shrink from sweep to sweep by about the same factor, so what is still missing after one is
    its own size times that factor. One that fails to halve the one before is not made: either rounding
    in float64 allows no more, or the solver is of no use here.
    """
    live = np.flatnonzero(solver.definite)
    errors = np.full(len(penalties), np.inf)
    solutions = np.zeros((len(system.right), len(penalties)), order="F")
    solutions[:, live] = solver.solve(np.repeat(system.right[:, None], len(live), axis=1), live)
    readouts = system.readouts(solutions)
    sizes = np.ones(len(penalties))
    for _ in range(_SWEEPS):
        if not len(live):
            break
        residuals = system.right[:, None] - system.image(readouts[:, live])
        residuals -= penalties[live] * solutions[:, live]
        corrections = solver.solve(residuals, live)
        changes = system.readouts(corrections)
        size = _lengths(changes) / _lengths(readouts[:, live])
        halved = size <= 0.5 * sizes[live]
        errors[live] = np.where(halved, size * size / sizes[live], size)
        solutions[:, live[halved]] += corrections[:, halved]
        readouts[:, live[halved]] += changes[:, halved]
        sizes[live] = size
        live = live[halved & (errors[live] > _EXACT)]
    return readouts, errors


def _sketch(system: System) -> Floats:
    """G Ω for a few random columns Ω, of about the length of G: they lie where G is large."""
    n = len(system.right)
    count = min(_LEADING, n)
    random = np.random.default_rng(0).standard_normal((count, n)).T / np.sqrt(count)
    return system.image(system.readouts(random))


def _lengths(columns: Floats) -> Floats:
    """Of each column: (rows, columns) → (columns,), kept from zero so that one can divide by them."""
    lengths: Floats = np.maximum(np.linalg.norm(columns, axis=0), np.finfo(np.float64).tiny)
    return lengths
