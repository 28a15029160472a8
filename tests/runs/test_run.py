import pytest

from ridgerank.errors import ScoreError
from ridgerank.trec import Run


def test_pages_are_ordered_by_score_then_by_page_id_last_first() -> None:
    run = Run.of_dict({"q": {"a": 1.0, "c": 2.0, "b": 1.0}})
    assert list(run.rows()) == [("q", "c", 1, 2.0), ("q", "b", 2, 1.0), ("q", "a", 3, 1.0)]


def test_queries_keep_the_order_in_which_they_came() -> None:
    run = Run.of_columns(["z", "a", "z"], ["p", "p", "o"], [1.0, 1.0, 2.0])
    assert run.queries == ("z", "a")
    assert run.pages(0) == ["o", "p"]
    assert len(run) == 2


def test_a_page_twice_under_one_query_is_refused_by_name() -> None:
    with pytest.raises(ScoreError, match="'p' stands twice under query 'q'"):
        Run.of_columns(["q", "q"], ["p", "p"], [1.0, 2.0])


def test_nan_is_refused() -> None:
    with pytest.raises(ScoreError, match="nan"):
        Run.of_dict({"q": {"p": float("nan")}})


def test_top_keeps_the_best_of_every_query() -> None:
    run = Run.of_dict({"q": {"a": 1.0, "b": 3.0, "c": 2.0}, "r": {"a": 1.0}}).top(2)
    assert run.to_dict() == {"q": {"b": 3.0, "c": 2.0}, "r": {"a": 1.0}}
