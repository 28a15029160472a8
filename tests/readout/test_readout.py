import numpy as np

from ridgerank.readout.ridge import Readout
from tests.test_lineage import LINEAGE


def test_a_score_is_one_vector_product() -> None:
    vector = np.random.default_rng(0).standard_normal(8)
    readout = Readout(vector=vector, penalty=1000.0, lists=154, pairs=3080, lineage=LINEAGE)
    states = np.random.default_rng(1).standard_normal((3, 8))
    np.testing.assert_allclose(readout.score(states), [vector @ state for state in states])
