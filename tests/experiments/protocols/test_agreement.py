import numpy as np

from experiments.protocols.agreement import measure_agreement
from experiments.simulation import World, simulate


def test_a_readout_that_is_its_teacher_has_the_teachers_relevance_as_floor() -> None:
    sample = simulate(World(), queries=50, seed=1)
    agreement = measure_agreement(sample.teacher, sample.teacher, sample.grades, sample.lists)
    np.testing.assert_allclose(agreement.teacher, 1.0)
    np.testing.assert_allclose(agreement.floor, agreement.relevance, atol=1e-6)
