import numpy as np

from experiments.protocols.agreement import measure_agreement
from experiments.simulation import World, simulate


def test_no_list_falls_below_the_floor_its_agreement_sets() -> None:
    sample = simulate(World(c_s=0.7, c_t=0.8), queries=200, seed=0)
    agreement = measure_agreement(sample.reranker, sample.teacher, sample.grades, sample.lists)
    assert (agreement.relevance >= agreement.floor - 1e-9).all()


def test_a_readout_that_is_its_teacher_has_the_teachers_relevance_as_floor() -> None:
    sample = simulate(World(), queries=50, seed=1)
    agreement = measure_agreement(sample.teacher, sample.teacher, sample.grades, sample.lists)
    np.testing.assert_allclose(agreement.teacher, 1.0)
    np.testing.assert_allclose(agreement.floor, agreement.relevance, atol=1e-6)
