"""A symmetric matrix made narrow: G = Q B Q' with B banded, in float32 or float64.

(G + λI)⁻¹ is wanted for many λ and one right-hand side. A Cholesky factor serves one λ; an
eigendecomposition serves all but costs ten times as much. Reducing G to a narrow band by block
Householder reflections costs about four Cholesky factors, runs almost wholly in matrix products, and
leaves, for each λ, a banded solve that is as good as free: Q'(G + λI)Q = B + λI. Knows nothing of ridge.
"""

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import get_blas_funcs, lapack

from ridgerank.ragged import Floats

Reals: TypeAlias = NDArray[np.floating[Any]]
"""float32 or float64; everything computed from such an array has its precision."""

WIDTH = 112
"""Half the band: wide enough for fast products, narrow enough for cheap solves (64 to 128 run alike)."""
_QR = {"f": (lapack.sgeqrf, lapack.strtri), "d": (lapack.dgeqrf, lapack.dtrtri)}
"""The routines of QR in each precision, by numpy's letter for it."""


@dataclass(frozen=True, slots=True, eq=False)
class Reflection:
    """Q = I − V T V', acting on the coordinates from `start` on."""

    start: int
    V: Reals
    T: Reals

    def turn(self, columns: Reals) -> None:
        """Q'C, in place; C has the reflection's precision."""
        self._apply(self.T.T, columns)

    def turn_back(self, columns: Reals) -> None:
        """Q C, in place."""
        self._apply(self.T, columns)

    def _apply(self, inner: Reals, columns: Reals) -> None:
        gemm = get_blas_funcs("gemm", dtype=self.V.dtype)
        projected = gemm(1.0, self.V, columns[self.start :], trans_a=1)
        columns[self.start :] -= gemm(1.0, self.V, gemm(1.0, inner, projected))


@dataclass(frozen=True, slots=True, eq=False)
class Band:
    """Q as reflections, B in LAPACK's lower band form (width + 1, n)."""

    reflections: tuple[Reflection, ...]
    diagonals: Floats

    def factor(self, penalty: float) -> Floats | None:
        """The Cholesky factor of B + λI in band form; none where that is not positive definite."""
        shifted = self.diagonals.copy(order="F")
        shifted[0] += penalty
        factor, info = lapack.dpbtrf(shifted, lower=1, overwrite_ab=1)
        return None if info else factor

    def turn(self, columns: Reals) -> None:
        """Q'C, in place."""
        for reflection in self.reflections:
            reflection.turn(columns)

    def turn_back(self, columns: Reals) -> None:
        """Q C, in place."""
        for reflection in reversed(self.reflections):
            reflection.turn_back(columns)


def reduce_to_band(gram: Reals, *, width: int = WIDTH) -> Band:
    """G = Q B Q' for a symmetric G (n, n), of which the lower triangle is read; column order saves a copy."""
    n = len(gram)
    diagonals = np.zeros((width + 1, n), order="F")
    reflections = []
    # What is left of G alternates between two buffers: a fresh array at every step would cost more in
    # page faults than in arithmetic.
    buffers = [np.empty(max(n - steps * width, 0) ** 2, gram.dtype) for steps in (2, 1)]
    rest = gram
    start = 0
    while n - start > width + 1:
        _store(diagonals, start, 0, rest[:width, :width])
        step, triangle = reflect(rest[width:, :width], start + width)
        _store(diagonals, start, width, triangle)
        rest = _fortran(buffers[1], rest[width:, width:])
        buffers.reverse()
        turn_matrix(rest, step)
        reflections.append(step)
        start += width
    _store(diagonals, start, 0, rest)
    return Band(tuple(reflections), diagonals)


def reflect(panel: Reals, start: int) -> tuple[Reflection, Reals]:
    """QR of a panel in compact form: Q = I − V T V', and R."""
    geqrf, trtri = _QR[panel.dtype.char]
    gemm = get_blas_funcs("gemm", dtype=panel.dtype)
    packed, tau, _, _ = geqrf(panel, lwork=64 * panel.shape[1])
    size = min(panel.shape)
    triangle = np.triu(packed[:size])
    V = packed[:, :size]
    V[:size] = np.tril(V[:size], -1) + np.eye(size, dtype=panel.dtype)  # below R lie the reflections
    # T⁻¹ is the strict upper triangle of V'V with 1/τ on the diagonal; τ = 0 marks a reflection that
    # does nothing.
    active = tau != 0.0
    inverse = np.triu(gemm(1.0, V, V, trans_a=1), 1)
    inverse[np.diag_indices(size)] = 1.0 / np.where(active, tau, 1.0)
    T, _ = trtri(inverse, overwrite_c=1)
    T[~active] = 0.0
    T[:, ~active] = 0.0
    return Reflection(start, V, T), triangle


def turn_matrix(matrix: Reals, step: Reflection) -> None:
    """Q'SQ = (I − VT'V') S (I − VTV') = S − VW' − WV', in place on the lower triangle.

    Every product goes through scipy's BLAS: numpy brings its own, and two thread pools that spin for
    work beside each other make the loop five times slower.
    """
    gemm, symm, syr2k = get_blas_funcs(("gemm", "symm", "syr2k"), dtype=matrix.dtype)
    product = gemm(1.0, symm(1.0, matrix, step.V, lower=1), step.T)
    inner = gemm(1.0, step.T, gemm(1.0, step.V, product, trans_a=1), trans_a=1)
    W = gemm(-0.5, step.V, inner, beta=1.0, c=product, overwrite_c=1)
    syr2k(-1.0, step.V, W, beta=1.0, c=matrix, lower=1, overwrite_c=1)


def _fortran(buffer: Reals, matrix: Reals) -> Reals:
    """A copy of a square matrix in column order, laid into `buffer`."""
    copy = buffer[: matrix.size].reshape(matrix.shape, order="F")
    copy[...] = matrix
    return copy


def _store(diagonals: Floats, column: int, below: int, block: Reals) -> None:
    """Put the lower part of a block whose corner is (column + below, column) into band form."""
    rows, columns = block.shape
    for j in range(columns):
        first = max(j - below, 0)
        distance = below + first - j
        take = min(rows - first, len(diagonals) - distance)
        diagonals[distance : distance + take, column + j] = block[first : first + take, j]
