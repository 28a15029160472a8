import math

import pytest

from ridgerank.errors import ScoreError
from ridgerank.evaluation.metrics import MEASURES, evaluate
from ridgerank.trec import Run


def test_ndcg_and_reciprocal_rank_by_hand() -> None:
    result = evaluate(
        Run.of_dict({"q": {"a": 3.0, "b": 2.0, "c": 1.0}}), {"q": {"b": 2, "c": 1, "missed": 1}}
    )
    ideal = 2 + 1 / math.log2(3) + 1 / math.log2(4)
    got = 2 / math.log2(3) + 1 / math.log2(4)
    means = result.means()
    assert means["nDCG@5"] == pytest.approx(100 * got / ideal)
    assert means["R@5"] == pytest.approx(100 * 2 / 3)
    assert means["RR@10"] == pytest.approx(50)
    assert tuple(means) == MEASURES


def test_a_judged_query_the_run_lacks_counts_as_zero_and_an_unjudged_one_not_at_all() -> None:
    run = Run.of_dict({"q": {"a": 1.0}, "unjudged": {"a": 1.0}})
    result = evaluate(run, {"q": {"a": 1}, "missing": {"a": 1}})
    assert result.means()["nDCG@5"] == pytest.approx(50)
    assert (result.queries_missing, result.queries_unjudged) == (1, 1)


def test_scores_that_differ_in_the_last_bit_are_ranked_as_they_are() -> None:
    close = Run.of_dict({"q": {"z": 1.0, "a": math.nextafter(1.0, 2.0)}})
    assert evaluate(close, {"q": {"a": 1}}).means()["RR@10"] == 100


def test_no_judgements_are_an_error() -> None:
    with pytest.raises(ScoreError, match="no judgements"):
        evaluate(Run.of_dict({"q": {"a": 1.0}}), {})
