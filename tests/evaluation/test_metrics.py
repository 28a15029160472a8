import math

import pytest
import pytrec_eval

from experiments.simulation import World, simulate
from ridgerank.errors import ScoreError
from ridgerank.evaluation.metrics import MEASURES, evaluate
from ridgerank.trec import Run


def test_metrics_equal_pytrec_evals_on_the_same_run() -> None:
    sample = simulate(World(), queries=60, seed=0)
    run, qrels = sample.run(sample.reranker), {q: dict(pages) for q, pages in sample.qrels().items()}
    result = evaluate(run, qrels)
    names = {"nDCG@5": "ndcg_cut_5", "nDCG@10": "ndcg_cut_10", "R@5": "recall_5", "R@10": "recall_10"}
    peer = pytrec_eval.RelevanceEvaluator(qrels, set(names.values())).evaluate(run.to_dict())
    for ours, theirs in names.items():
        expected = [100 * peer[query][theirs] for query in result.queries]
        assert result.of(ours).tolist() == pytest.approx(expected)
    first_ten = pytrec_eval.RelevanceEvaluator(qrels, {"recip_rank"}).evaluate(run.top(10).to_dict())
    assert result.of("RR@10").tolist() == pytest.approx(
        [100 * first_ten[query]["recip_rank"] for query in result.queries]
    )


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
