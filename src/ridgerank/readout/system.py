"""The two linear systems behind a readout, (G + λI) x = r: primal with G = H'H, dual with G = HH'.

Each knows G by its products and can hand out its lower triangle, seen through a reflection, in a wanted
precision. Neither solves anything.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import DTypeLike
from scipy.linalg import blas, get_blas_funcs

from ridgerank.ragged import Floats
from ridgerank.readout.band import Reals, Reflection, turn_matrix
from ridgerank.readout.moments import Products, Rows

_CHUNK = 256
"""Rows reflected at once: few enough to stay in the cache."""


class System(Protocol):
    """What a solver needs to know of G, (n, n), and of the right-hand side."""

    @property
    def right(self) -> Floats:
        """(n,)."""

    def readouts(self, solutions: Floats) -> Floats:
        """The readouts a for solutions x of the system: (n, columns) → (dim, columns)."""

    def image(self, readouts: Floats) -> Floats:
        """G x, from the readouts of x: (dim, columns) → (n, columns)."""

    def turned(self, reflection: Reflection, scale: float, precision: DTypeLike) -> Reals:
        """Q'GQ / scale, lower triangle only, in column order; rounded to `precision` only once turned."""


@dataclass(frozen=True, slots=True, eq=False)
class Primal:
    """(H'H + λI) a = H't, from the products."""

    products: Products

    @property
    def right(self) -> Floats:
        """H't."""
        return self.products.moment

    def readouts(self, solutions: Floats) -> Floats:
        """The solutions themselves, in an array of their own."""
        return solutions.copy(order="F")

    def image(self, readouts: Floats) -> Floats:
        """H'H a."""
        image: Floats = blas.dsymm(1.0, self.products.gram.T, readouts, lower=1)
        return image

    def turned(self, reflection: Reflection, scale: float, precision: DTypeLike) -> Reals:
        """Q'(H'H)Q / scale."""
        gram = np.array(self.products.gram.T, order="F")
        turn_matrix(gram, reflection)
        gram /= scale
        return gram.astype(precision, order="F", copy=False)


@dataclass(frozen=True, slots=True, eq=False)
class Dual:
    """(HH' + λI) x = t with a = H'x, from the rows."""

    rows: Rows

    @property
    def right(self) -> Floats:
        """t."""
        return self.rows.targets

    def readouts(self, solutions: Floats) -> Floats:
        """H'x."""
        readouts: Floats = blas.dgemm(1.0, self.rows.states.T, solutions)
        return readouts

    def image(self, readouts: Floats) -> Floats:
        """H a = HH'x."""
        image: Floats = blas.dgemm(1.0, self.rows.states.T, readouts, trans_a=1)
        return image

    def turned(self, reflection: Reflection, scale: float, precision: DTypeLike) -> Reals:
        """(Q'H)(Q'H)' / scale; half the work of a full product."""
        H, V = self.rows.states, reflection.V
        inner = blas.dgemm(1.0, blas.dgemm(1.0, H.T, V), reflection.T)  # H'VT
        turned = np.empty(H.T.shape, precision, order="F")
        root = 1.0 / np.sqrt(scale)
        for first in range(0, len(H), _CHUNK):
            part = slice(first, first + _CHUNK)
            turned[:, part] = blas.dgemm(-root, inner, V[part], trans_b=1, beta=root, c=H[part].T)
        syrk = get_blas_funcs("syrk", dtype=turned.dtype)
        lower: Reals = syrk(1.0, turned, trans=1, lower=1)
        return lower
