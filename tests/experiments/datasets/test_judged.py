from experiments.datasets.judged import keep_judged
from ridgerank.records import Query


def test_only_queries_that_a_page_answers_are_measured() -> None:
    queries_before = [Query("a", "one"), Query("b", "two"), Query("c", "three"), Query("d", "four")]
    qrels = {"d": {"x": 0, "y": 1}, "a": {"x": 2}, "b": {"x": 0}, "unasked": {"x": 1}}
    queries, judgements, left_out = keep_judged(queries_before, qrels)
    assert [query.query_id for query in queries] == ["a", "d"]
    assert judgements == {"a": {"x": 2}, "d": {"x": 0, "y": 1}}
    assert list(judgements) == ["a", "d"]
    assert left_out == 2
