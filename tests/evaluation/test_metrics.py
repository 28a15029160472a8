"""Measures by hand, paired differences of runs, and intervals that know which queries belong together."""

import math
from collections.abc import Sequence

import numpy as np
import pytest

from ridgerank.errors import ScoreError
from ridgerank.evaluation import metrics
from ridgerank.evaluation.metrics import (
    MEASURES,
    Evaluation,
    Verdict,
    compare_evaluations,
    evaluate,
    group_by_document,
    reach_verdict,
    widen,
)
from ridgerank.ragged import Floats
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


def evaluation(values: Floats) -> Evaluation:
    queries = tuple(f"q{number}" for number in range(len(values)))
    return Evaluation(queries, ("nDCG@5",), values[None, :], 0, 0)


def test_the_difference_is_paired_and_its_interval_that_of_the_normal_approximation() -> None:
    generator = np.random.default_rng(0)
    first = generator.uniform(0, 100, 400)
    gains = generator.normal(3.0, 10.0, 400)
    [paired] = compare_evaluations(evaluation(first), evaluation(first + gains))
    error = 1.96 * gains.std() / np.sqrt(400)
    assert paired.difference == pytest.approx(gains.mean())
    assert paired.interval == pytest.approx((gains.mean() - error, gains.mean() + error), abs=0.15)
    assert paired.share_above > 0.99
    assert paired.groups == 400


def test_queries_that_move_together_make_the_interval_wider() -> None:
    generator = np.random.default_rng(1)
    gains = np.repeat(generator.normal(1.0, 10.0, 20), 10)
    first, second = evaluation(np.zeros(200)), evaluation(gains)
    groups = {query: str(number // 10) for number, query in enumerate(first.queries)}
    [alone], [grouped] = (compare_evaluations(first, second, groups=each) for each in (None, groups))
    assert grouped.difference == pytest.approx(alone.difference)
    width = {each.groups: each.interval[1] - each.interval[0] for each in (alone, grouped)}
    assert width[20] == pytest.approx(np.sqrt(10) * width[200], rel=0.15)


def test_no_judgements_and_evaluations_of_other_queries_are_refused() -> None:
    with pytest.raises(ScoreError, match="no judgements"):
        evaluate(Run.of_dict({"q": {"a": 1.0}}), {})
    with pytest.raises(ScoreError, match="other queries"):
        compare_evaluations(evaluation(np.zeros(3)), evaluation(np.zeros(4)))


def test_queries_are_grouped_by_document() -> None:
    qrels = {"a-1": {"x.pdf#1": 2, "y.pdf#4": 1}, "a-2": {"x.pdf#3": 1}, "b-1": {"z.pdf#1": 0}}
    assert group_by_document(qrels) == {"a-1": "x.pdf", "a-2": "x.pdf", "b-1": "query b-1"}


def judge(gains: Floats, documents: Sequence[int], *, made: bool = False, blind: str = "") -> Verdict:
    """The verdict on questions that gain so much each."""
    queries = tuple(f"q{number}" for number in range(len(gains)))
    before = Evaluation(queries, ("nDCG@5",), np.zeros((1, len(gains))), 0, 0)
    after = Evaluation(queries, ("nDCG@5",), gains[None, :], 0, 0)
    groups = dict(zip(queries, map(str, documents), strict=True))
    [difference] = compare_evaluations(before, after, groups=groups)
    return reach_verdict(widen(difference), questions=len(gains), made=made, blind=blind)


def test_without_an_effect_at_most_5_percent_of_1000_trials_say_worth_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(metrics, "RESAMPLES", 1000)
    generator = np.random.default_rng(0)
    worth_it = 0
    for _ in range(1000):
        documents = generator.integers(0, generator.integers(5, 30), size=generator.integers(16, 120))
        moved = generator.random(len(documents)) < 0.4  # most questions keep their pages
        effects = generator.normal(0.0, 10.0, 30)[documents] + generator.normal(0.0, 30.0, len(documents))
        worth_it += judge(np.where(moved, effects, 0.0), documents.tolist()).outcome == "worth it"
    assert 0 < worth_it <= 50


def test_a_clear_gain_is_worth_it_and_on_made_questions_is_not_called_so() -> None:
    gains, documents = np.tile([0.0, 8.0, 12.0, 4.0], 15), [number // 4 for number in range(60)]
    assert judge(gains, documents).outcome == "worth it"
    made = judge(gains, documents, made=True)
    assert made.outcome == "cannot tell yet"
    assert made.sentence.startswith("On questions made from your pages: reranking gains")
    against = judge(-gains, documents, made=True)
    assert against.outcome == "not worth it"
    assert against.sentence.startswith("On questions made from your pages: not worth it")
    assert judge(gains, documents, blind="the model does not read these pages").outcome == "not worth it"


def test_the_number_of_questions_that_would_tell_follows_from_gain_and_deviation() -> None:
    generator = np.random.default_rng(1)
    gains = generator.normal(0.0, 20.0, 400)
    gains += 1.5 - gains.mean()
    verdict = judge(gains, range(400))
    assert verdict.outcome == "cannot tell yet"
    assert verdict.questions_needed is None
    assert "over 500" in verdict.sentence
    gains = gains[:60] + 4.0 - gains[:60].mean()
    verdict = judge(gains, range(60))
    assert verdict.questions_needed == pytest.approx((1.96 * gains.std() / 4.0) ** 2, rel=0.15)


def test_one_document_cannot_tell() -> None:
    assert judge(np.full(30, 5.0), [0] * 30).outcome == "cannot tell yet"
