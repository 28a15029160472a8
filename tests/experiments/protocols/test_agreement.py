import numpy as np

from experiments.protocols import measure_agreement, relevance_floor
from experiments.simulation import World, simulate


def test_a_readout_that_is_its_teacher_has_the_teachers_relevance_as_floor() -> None:
    sample = simulate(World(), queries=50, seed=1)
    agreement = measure_agreement(sample.teacher, sample.teacher, sample.grades, sample.lists)
    np.testing.assert_allclose(agreement.teacher, 1.0)
    np.testing.assert_allclose(agreement.floor, agreement.relevance, atol=1e-6)


def test_no_three_vectors_break_the_floor_of_relevance() -> None:
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
