import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgerank.errors import ScoreError
from ridgerank.fusion.join import fuse, fuse_runs, join
from ridgerank.fusion.standardize import standardize
from ridgerank.ragged import Ragged
from ridgerank.trec import Run

scored = st.dictionaries(
    st.sampled_from("pqr"),
    st.dictionaries(st.sampled_from("abcdef"), st.floats(-5, 5), min_size=1),
    min_size=1,
)


@given(scored, scored)
def test_joining_matches_a_dictionary_lookup(
    first: dict[str, dict[str, float]], second: dict[str, dict[str, float]]
) -> None:
    joined = join(Run.of_dict(first), Run.of_dict(second))
    scores_by_page = {}
    for number, query in enumerate(joined.queries):
        for member in range(*joined.lists.offsets[number : number + 2].tolist()):
            scores_by_page[query, joined.vocabulary[joined.codes[member]]] = joined.scores[:, member]
    expected = {(query, page) for run in (first, second) for query, pages in run.items() for page in pages}
    assert set(scores_by_page) == expected
    for (query, page), (first_scores, second_scores) in scores_by_page.items():
        np.testing.assert_equal(first_scores, first.get(query, {}).get(page, np.nan))
        np.testing.assert_equal(second_scores, second.get(query, {}).get(page, np.nan))


@given(scored, scored, st.floats(0, 1))
def test_fusing_keeps_every_page_and_matches_the_formula(
    first: dict[str, dict[str, float]], second: dict[str, dict[str, float]], weight: float
) -> None:
    fused = fuse_runs(join(Run.of_dict(first), Run.of_dict(second)), weight).to_dict()
    for query, pages in fused.items():
        first_scores, second_scores = first.get(query, {}), second.get(query, {})
        assert set(pages) == set(first_scores) | set(second_scores)
        both = [page for page in pages if page in first_scores and page in second_scores]
        if both:
            lists = Ragged.of_lengths([len(both)])
            b = standardize(np.array([first_scores[page] for page in both]), lists)
            s = standardize(np.array([second_scores[page] for page in both]), lists)
            np.testing.assert_allclose(
                [pages[page] for page in both], (1 - weight) * b + weight * s, atol=1e-12
            )
            below = [page for page in pages if page not in both]
            assert all(pages[page] < min(pages[known] for known in both) for page in below)


def test_pages_one_run_lacks_follow_in_their_own_order_and_are_counted() -> None:
    retriever = Run.of_dict({"q": {"a": 9.0, "b": 8.0, "c": 7.0, "d": 6.0}, "only-b": {"a": 1.0}})
    reranker = Run.of_dict({"q": {"b": 1.0, "a": 2.0, "x": 5.0, "y": 6.0}, "only-s": {"z": 1.0, "a": 2.0}})
    joined = join(retriever, reranker)
    fused = fuse_runs(joined, 0.5)
    assert fused.pages(0) == ["a", "b", "c", "d", "y", "x"]
    assert fused.pages(1) == ["a"]
    assert fused.pages(2) == ["a", "z"]
    assert joined.missing_queries().tolist() == [1, 1]
    assert joined.missing_pages().tolist() == [2, 2]


def test_equal_fused_scores_rank_by_page_id_last_first() -> None:
    constant = Run.of_dict({"q": {"a": 1.0, "b": 1.0, "c": 1.0}})
    assert fuse_runs(join(constant, constant), 0.5).pages(0) == ["c", "b", "a"]


def test_the_output_is_already_in_the_order_a_reader_would_sort_it_into() -> None:
    generator = np.random.default_rng(0)
    runs = [
        Run.of_dict(
            {f"q{q}": {f"p{p}": float(generator.integers(3)) for p in range(q + 1)} for q in range(9)}
        )
        for _ in range(2)
    ]
    fused = fuse_runs(join(*runs), 0.3)
    assert list(Run.of_dict(fused.to_dict()).rows()) == list(fused.rows())


def test_relevance_is_zero_where_nobody_judged_and_where_the_grade_is_negative() -> None:
    joined = join(Run.of_dict({"q": {"a": 1.0, "b": 2.0, "c": 3.0}, "r": {"a": 1.0}}))
    assert joined.relevance({"q": {"a": 2, "b": -1}}).tolist() == [0.0, 0.0, 2.0, 0.0]


def test_three_runs_are_complete_only_where_all_three_score() -> None:
    runs = [Run.of_dict({"q": {"a": 1.0, "b": 2.0, page: 3.0}, "r": {page: 1.0}}) for page in "cde"]
    complete = join(*runs).complete()
    assert complete.queries == ("q",)
    assert sorted(complete.vocabulary[code] for code in complete.codes) == ["a", "b"]


def test_three_runs_are_fused_by_their_weights_and_pages_some_lack_follow() -> None:
    runs = {
        "b": {"q": {"a": 3.0, "b": 2.0, "c": 1.0, "d": 0.5}},
        "s": {"q": {"a": 1.0, "b": 3.0, "c": 2.0, "e": 9.0, "f": 1.0}},
        "t": {"q": {"a": 1.0, "b": 2.0, "c": 3.0, "d": 0.5, "e": 7.0}},
    }
    fused = fuse(*runs.values(), weight=(1.0, 2.0, 1.0))
    lists = Ragged.of_lengths([3])
    z = [standardize(np.array([run["q"][page] for page in "abc"]), lists) for run in runs.values()]
    np.testing.assert_allclose([fused["q"][page] for page in "abc"], (z[0] + 2 * z[1] + z[2]) / 4, atol=1e-12)
    assert list(fused["q"]) == ["b", "c", "a", "d", "e", "f"]


def test_two_runs_take_one_number_named_or_last() -> None:
    b, s = {"q": {"a": 3.0, "b": 2.0}}, {"q": {"a": 1.0, "b": 3.0}}
    assert fuse(b, s, 0.3) == fuse(b, s, weight=0.3) == fuse(b, s, weight=(0.7, 0.3))


@pytest.mark.parametrize("weight", [None, 0.5, (0.5, 0.5), (1.0, -1.0, 1.0), (0.0, 0.0, 0.0)])
def test_weights_that_do_not_match_the_runs_are_refused(weight: float | tuple[float, ...] | None) -> None:
    run = {"q": {"a": 3.0, "b": 2.0}}
    with pytest.raises(ScoreError, match="weight"):
        fuse(run, run, run, weight=weight)
