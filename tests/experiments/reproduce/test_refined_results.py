"""GQR's setting comes from the next corpus, never from the one that is ranked."""

import numpy as np

from experiments.baselines.gqr import GRID
from experiments.reproduce.method_results import choose_refinements
from ridgerank.evaluation.metrics import MEASURES
from ridgerank.ragged import Floats


def best_at(*settings: int) -> Floats:
    """(settings, measures, queries): nDCG@5 is highest at the settings given, other measures elsewhere."""
    values = np.zeros((len(GRID), len(MEASURES), 4))
    values[list(settings), MEASURES.index("nDCG@5")] = 50.0
    values[0, MEASURES.index("R@10")] = 90.0
    return values


def test_a_corpus_is_ranked_with_the_setting_that_is_best_on_the_next_one() -> None:
    assert choose_refinements([best_at(3), best_at(7), best_at(11)]) == [7, 11, 3]


def test_of_equally_good_settings_the_first_in_the_authors_order_is_taken() -> None:
    assert choose_refinements([best_at(5, 9), best_at(17, 4)]) == [4, 5]
