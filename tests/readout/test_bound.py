import numpy as np

from ridgerank.readout.ridge import relevance_floor


def test_no_three_vectors_break_the_bound() -> None:
    vectors = np.random.default_rng(0).standard_normal((5000, 3, 4))
    vectors -= vectors.mean(axis=2, keepdims=True)
    vectors /= np.linalg.norm(vectors, axis=2, keepdims=True)
    gram = vectors @ vectors.transpose(0, 2, 1)
    r, c_s, c_t = gram[:, 0, 1], gram[:, 0, 2], gram[:, 1, 2]
    assert (c_s >= relevance_floor(r, c_t) - 1e-12).all()


def test_the_floor_is_reached() -> None:
    """s and y at the same angle on either side of t."""
    angle = np.linspace(0.1, 1.4, 20)
    np.testing.assert_allclose(relevance_floor(np.cos(angle), np.cos(angle)), np.cos(2 * angle), atol=1e-12)


def test_agreement_raises_the_floor() -> None:
    r = np.linspace(0.01, 0.99, 99)
    for c_t in (0.1, 0.5, 0.9):
        assert (np.diff(relevance_floor(r, np.full(99, c_t))) > 0).all()
