"""One factorization for a whole path of penalties: G = Q B Q' with B banded.

(G + λI)⁻¹ is wanted for many λ and one right-hand side. A Cholesky factor serves one λ; an
eigendecomposition serves all but costs ten times as much. Reducing G to a narrow band by block
Householder reflections costs about four Cholesky factors, runs almost wholly in matrix products, and
leaves, for each λ, a banded solve that is as good as free: Q'(G + λI)Q = B + λI.
"""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import blas, lapack

from ridgerank.errors import CalibrationError
from ridgerank.lists import Floats

WIDTH = 112
"""Half the band: wide enough for fast products, narrow enough for cheap solves (64 to 128 run alike)."""


@dataclass(frozen=True, slots=True, eq=False)
class Reflection:
    """I − V T V', acting on the coordinates from `start` on."""

    start: int
    V: Floats
    T: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Band:
    """Q as reflections, B in LAPACK's lower band form (width + 1, n)."""

    reflections: tuple[Reflection, ...]
    diagonals: Floats

    def solve(self, penalties: Floats, right: Floats) -> Floats:
        """(G + λI)⁻¹ r for every λ > 0: (penalties,) and (n,) → (n, penalties)."""
        rotated = right[:, None].copy()
        for step in self.reflections:  # Q' r
            _apply(step.T.T, step, rotated)
        solutions = np.empty((len(right), len(penalties)), order="F")
        shifted = np.empty_like(self.diagonals)
        for column, penalty in enumerate(penalties):
            shifted[...] = self.diagonals
            shifted[0] += penalty
            _, solutions[:, column : column + 1], info = lapack.dpbsv(
                shifted, rotated, lower=1, overwrite_ab=1
            )
            if info:
                raise CalibrationError(
                    f"the ridge system is not positive definite at penalty {penalty:g}: it is too small for "
                    "states of this size; wanted a larger one"
                )
        for step in reversed(self.reflections):  # Q y
            _apply(step.T, step, solutions)
        return solutions


def _apply(inner: Floats, step: Reflection, columns: Floats) -> None:
    """(I − V X V') C for X the reflection's T or its transpose, in place on the rows from `start` on."""
    projected = blas.dgemm(1.0, step.V, columns[step.start :], trans_a=1)
    columns[step.start :] -= blas.dgemm(1.0, step.V, blas.dgemm(1.0, inner, projected))


def reduce_to_band(gram: Floats, *, width: int = WIDTH) -> Band:
    """G = Q B Q' for a symmetric G (n, n), of which the lower triangle is read; column order saves a copy."""
    n = len(gram)
    diagonals = np.zeros((width + 1, n), order="F")
    reflections = []
    # What is left of G alternates between two buffers: a fresh array at every step would cost more in
    # page faults than in arithmetic.
    buffers = [np.empty(max(n - steps * width, 0) ** 2) for steps in (2, 1)]
    rest = gram
    start = 0
    while n - start > width + 1:
        _store(diagonals, start, 0, rest[:width, :width])
        step, triangle = _reflect(rest[width:, :width], start + width)
        _store(diagonals, start, width, triangle)
        rest = _fortran(buffers[1], rest[width:, width:])
        buffers.reverse()
        _update(rest, step)
        reflections.append(step)
        start += width
    _store(diagonals, start, 0, rest)
    return Band(tuple(reflections), diagonals)


def lower_gram(rows: Floats) -> Floats:
    """R R' for rows (n, d), lower triangle only, in column order: half the work of a full product."""
    return np.asarray(blas.dsyrk(1.0, np.asfortranarray(rows.T), trans=1, lower=1))


def _update(rest: Floats, step: Reflection) -> None:
    """(I − VT'V') S (I − VTV') = S − VW' − WV', in place.

    Every product goes through scipy's BLAS: numpy brings its own, and two thread pools that spin for
    work beside each other make the loop five times slower.
    """
    product = blas.dgemm(1.0, blas.dsymm(1.0, rest, step.V, lower=1), step.T)
    inner = blas.dgemm(1.0, step.T, blas.dgemm(1.0, step.V, product, trans_a=1), trans_a=1)
    W = blas.dgemm(-0.5, step.V, inner, beta=1.0, c=product, overwrite_c=1)
    blas.dsyr2k(-1.0, step.V, W, beta=1.0, c=rest, lower=1, overwrite_c=1)


def _reflect(panel: Floats, start: int) -> tuple[Reflection, Floats]:
    """QR of a panel in compact form: Q = I − V T V', and R."""
    packed, tau, _, _ = lapack.dgeqrf(panel, lwork=64 * panel.shape[1])
    size = min(panel.shape)
    triangle = np.triu(packed[:size])
    V = packed[:, :size]
    V[:size] = np.tril(V[:size], -1) + np.eye(size)  # below R lie the reflections
    # T⁻¹ is the strict upper triangle of V'V with 1/τ on the diagonal; τ = 0 marks a reflection that
    # does nothing.
    active = tau != 0.0
    inverse = np.triu(blas.dgemm(1.0, V, V, trans_a=1), 1)
    inverse[np.diag_indices(size)] = 1.0 / np.where(active, tau, 1.0)
    T, _ = lapack.dtrtri(inverse, overwrite_c=1)
    T[~active] = 0.0
    T[:, ~active] = 0.0
    return Reflection(start, V, T), triangle


def _fortran(buffer: Floats, matrix: Floats) -> Floats:
    """A copy of a square matrix in column order, laid into `buffer`."""
    copy = buffer[: matrix.size].reshape(matrix.shape, order="F")
    copy[...] = matrix
    return copy


def _store(diagonals: Floats, column: int, below: int, block: Floats) -> None:
    """Put the lower part of a block whose corner is (column + below, column) into band form."""
    rows, columns = block.shape
    for j in range(columns):
        first = max(j - below, 0)
        distance = below + first - j
        take = min(rows - first, len(diagonals) - distance)
        diagonals[distance : distance + take, column + j] = block[first : first + take, j]
