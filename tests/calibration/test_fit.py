"""Readouts: held-out scores are held out, also from pages of the documents that questions were made from."""

from dataclasses import replace

import numpy as np
import pytest

from ridgerank.calibration.fit import QueryLists, ReadoutFit, fit, fit_readout
from ridgerank.errors import CalibrationError
from ridgerank.ragged import Ragged
from ridgerank.readout import PENALTIES
from ridgerank.records import Query


def named(count: int, corpora: str = "") -> tuple[Query, ...]:
    """Queries of the corpora of these letters, in turn."""
    return tuple(
        Query(f"q{number}", "", corpora[number % len(corpora)] if corpora else "") for number in range(count)
    )


def one_option(lists: int = 24, *, corpora: str = "", dim: int = 12) -> QueryLists:
    generator = np.random.default_rng(1)
    sizes = generator.integers(5, 12, lists)
    states = generator.normal(size=(int(sizes.sum()), dim))
    targets = states @ generator.normal(size=dim) + 0.5 * generator.normal(size=len(states))
    return QueryLists(
        queries=named(lists, corpora),
        page_ids=tuple(f"p{number % 50}" for number in range(len(states))),
        lists=Ragged.of_lengths(sizes.tolist()),
        retriever=generator.normal(size=len(states)),
        states={"last": states},
        targets={"margin": targets},
        relevance=None,
    )


def fitted(data: QueryLists, documents: dict[str, str] | None = None) -> ReadoutFit:
    return fit_readout(data, "margin", "last", documents or {})


def test_the_readout_solves_the_centered_ridge_problem() -> None:
    data = one_option()
    readout = fitted(data)
    H, t = data.lists.center(data.states["last"]), data.lists.center(data.targets["margin"])
    expected = np.linalg.solve(H.T @ H + readout.penalty.deployed * np.eye(12), H.T @ t)
    np.testing.assert_allclose(readout.vector, expected, rtol=1e-9)
    assert readout.penalty.deployed in PENALTIES
    assert np.corrcoef(readout.held_out_scores, data.targets["margin"])[0, 1] > 0.9
    for fold, errors in readout.penalty.errors.items():
        assert 0 < float(np.min(errors)) / readout.validation_squares[fold] < 1


def test_a_lists_own_targets_never_reach_its_held_out_scores() -> None:
    data = one_option()
    targets = data.targets["margin"].copy()
    members = data.lists.repeat(np.arange(24) % 4 == 0)  # one whole part
    targets[members] = np.random.default_rng(9).normal(size=int(members.sum())) * 100
    before, after = (
        fitted(each).held_out_scores for each in (data, replace(data, targets={"margin": targets}))
    )
    np.testing.assert_array_equal(after[members], before[members])
    assert not np.array_equal(after[~members], before[~members])


def test_a_made_question_is_scored_by_a_readout_that_saw_no_page_of_its_document() -> None:
    data = one_option()
    documents = {f"p{number}": f"document {number % 10}" for number in range(50)}
    queries = tuple(replace(query, source=f"p{number}") for number, query in enumerate(data.queries))
    data = replace(data, queries=queries)
    readout = fitted(data, documents)
    own = np.array([readout.folds[documents[query.source]] for query in queries])
    fold = own[0]
    seen = np.array([readout.folds.get(documents[page]) == fold for page in data.page_ids])
    targets = data.targets["margin"].copy()
    targets[seen] += 0.05 * np.random.default_rng(3).normal(size=int(seen.sum()))
    changed = fitted(replace(data, targets={"margin": targets}), documents)
    assert changed.penalty.chosen[fold] == readout.penalty.chosen[fold]
    np.testing.assert_allclose(changed.fold_vectors[fold], readout.fold_vectors[fold], rtol=1e-9)
    question = replace(data.select(own == fold), targets={})
    expected = question.states["last"] @ readout.fold_vectors[fold]
    np.testing.assert_allclose(readout.score(question, documents), expected, rtol=1e-9)
    elsewhere = replace(question, queries=tuple(replace(query, source="new") for query in question.queries))
    assert len(readout.score(elsewhere, {**documents, "new": "another document"})) == len(expected)


def test_corpora_are_the_folds_where_three_are_named_else_parts() -> None:
    for lists, corpora, parts in ((24, "abc", 0), (24, "ab", 4), (40, "", 8)):
        folds = [f"part {number}" for number in range(1, parts + 1)] or list(corpora)
        assert sorted(fitted(one_option(lists, corpora=corpora)).penalty.chosen) == folds


def test_fewer_than_sixteen_lists_are_refused() -> None:
    assert len(fitted(one_option(16)).data.queries) == 16
    with pytest.raises(CalibrationError, match="candidates of 15 queries apart, expected at least 16"):
        fitted(one_option(15))


def test_targets_and_lists_that_do_not_vary_are_left_out() -> None:
    data = one_option()
    flat = np.zeros(data.lists.members)
    fits = fit(replace(data, targets={**data.targets, "likelihood": flat}))
    assert isinstance(fits["margin", "last"], ReadoutFit)
    assert "one and the same likelihood" in str(fits["likelihood", "last"])
    with pytest.raises(CalibrationError, match="one and the same margin"):
        fit(replace(data, targets={"margin": flat}))
    targets = data.targets["margin"].copy()
    targets[: data.lists.offsets[6]] = 1.0
    assert fitted(replace(data, targets={"margin": targets})).data.queries == data.queries[6:]
