"""Readouts: held-out scores are held out, and the option is selected that the model supports."""

from dataclasses import replace

import numpy as np
import pytest

from experiments.simulation import World, simulate
from ridgerank.calibration.fit import CalibrationLists, Selection, fit, fit_readout, weigh
from ridgerank.errors import CalibrationError
from ridgerank.ragged import Floats, Ragged
from ridgerank.readout.ridge import PENALTIES
from ridgerank.records import Query, State, Target

QUERIES = 96
_DIM = 6


def named(count: int, corpora: str = "") -> tuple[Query, ...]:
    """Queries of the corpora of these letters, in turn."""
    return tuple(
        Query(f"q{number}", "", corpora[number % len(corpora)] if corpora else "") for number in range(count)
    )


def one_option(lists: int = 24, *, corpora: str = "", dim: int = 12) -> CalibrationLists:
    generator = np.random.default_rng(1)
    sizes = generator.integers(5, 12, lists)
    states = generator.normal(size=(int(sizes.sum()), dim))
    targets = states @ generator.normal(size=dim) + 0.5 * generator.normal(size=len(states))
    return CalibrationLists(
        queries=named(lists, corpora),
        page_ids=("",) * len(states),
        lists=Ragged.of_lengths(sizes.tolist()),
        retriever=generator.normal(size=len(states)),
        targets={"margin": targets},
        states={"last": states},
        relevance=None,
    )


def test_the_readout_solves_the_centered_ridge_problem() -> None:
    data = one_option()
    readout = fit_readout(data, "margin", "last")
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
        fit_readout(each, "margin", "last").held_out_scores
        for each in (data, replace(data, targets={"margin": targets}))
    )
    np.testing.assert_array_equal(after[members], before[members])
    assert not np.array_equal(after[~members], before[~members])


@pytest.mark.parametrize(
    ("lists", "corpora", "folds"),
    [
        (24, "abc", {"a", "b", "c"}),
        (24, "ab", {f"part {number}" for number in range(1, 5)}),
        (40, "", {f"part {number}" for number in range(1, 9)}),
    ],
)
def test_corpora_are_the_folds_where_three_are_named_else_parts(
    lists: int, corpora: str, folds: set[str]
) -> None:
    assert set(fit_readout(one_option(lists, corpora=corpora), "margin", "last").penalty.chosen) == folds


def test_fewer_than_sixteen_lists_are_refused() -> None:
    assert len(fit_readout(one_option(16), "margin", "last").data.queries) == 16
    with pytest.raises(CalibrationError, match="candidates of 15 queries apart, expected at least 16"):
        fit_readout(one_option(15), "margin", "last")


def states(carried: Floats, *, seed: int, blur: float = 0.3) -> Floats:
    """Random states of which one direction is a score with some noise."""
    generator = np.random.default_rng(seed)
    drawn_states = generator.normal(size=(len(carried), _DIM))
    drawn_states[:, 2] = carried + blur * generator.normal(size=len(carried))
    return drawn_states


def noise(count: int, seed: int) -> Floats:
    return np.random.default_rng(seed).normal(size=count)


def simulated(
    world: World,
    targets: dict[Target, Floats],
    states_by_name: dict[State, Floats],
    *,
    queries: int = QUERIES,
) -> CalibrationLists:
    """Unjudged lists of a simulated retriever with these targets and states."""
    drawn = simulate(world, queries=QUERIES, seed=1)
    pages = ("",) * drawn.lists.members
    return CalibrationLists(
        named(QUERIES), pages, drawn.lists, drawn.retriever, targets, states_by_name, None
    )


def observed(*, margin_knows: bool, likelihood_knows: bool, carrier: State) -> CalibrationLists:
    """Targets that follow relevance or nothing at all, each carried by the state `carrier`."""
    world = World(0.5, 0.6, 0.7)
    drawn = simulate(world, queries=QUERIES, seed=1)
    members = drawn.lists.members
    margin = drawn.teacher if margin_knows else noise(members, 2)
    likelihood = drawn.reranker if likelihood_knows else noise(members, 3)
    both = states(margin, seed=4)
    both[:, 4] = likelihood + 0.3 * noise(members, 5)
    states_by_name: dict[State, Floats] = {
        "last": both if carrier == "last" else states(noise(members, 6), seed=7),
        "mean": both if carrier == "mean" else states(noise(members, 8), seed=9),
    }
    return simulated(world, {"margin": margin, "likelihood": likelihood}, states_by_name)


def select(data: CalibrationLists) -> Selection:
    return weigh(data, fit(data))


def test_the_papers_option_stays_where_the_model_supports_it() -> None:
    selection = select(observed(margin_knows=True, likelihood_knows=True, carrier="last"))
    assert selection.reason == "margin, last: the first choice, and this model supports it"
    assert {option.name: option.supported for option in selection.options} == {
        "margin, last": True,
        "margin, mean": False,
        "likelihood, last": True,
        "likelihood, mean": False,
    }


def test_a_model_that_cannot_answer_is_taught_the_likelihood_and_the_reason_is_said() -> None:
    selection = select(observed(margin_knows=False, likelihood_knows=True, carrier="mean"))
    assert selection.selected.option.name == "likelihood, mean"
    assert selection.selected.option.agreement > 0.5
    assert selection.selected.decision.deployed.weight > 0
    assert selection.reason.startswith("likelihood, mean: of the readings this model supports")
    assert "margin, last is not supported: the readout does not agree with its teacher" in selection.reason


def test_where_nothing_is_supported_the_papers_stays_with_its_warnings() -> None:
    selection = select(observed(margin_knows=False, likelihood_knows=False, carrier="mean"))
    assert selection.selected.option.name == "margin, last"
    assert selection.reason.endswith("though this model supports no reading")
    assert selection.selected.decision.warnings


def test_with_judgements_the_option_closest_to_relevance_is_taken() -> None:
    data = observed(margin_knows=False, likelihood_knows=True, carrier="mean")
    grades = simulate(World(0.5, 0.6, 0.7), queries=QUERIES, seed=1).grades.astype(np.float64)
    selected = select(replace(data, relevance=grades)).selected
    assert selected.option.name == "likelihood, mean"
    assert selected.decision.closed_form is not None
    assert selected.option.relevance == selected.decision.closed_form.c_s


def test_a_target_that_is_the_same_for_all_pages_is_reported_and_left_out() -> None:
    data = observed(margin_knows=True, likelihood_knows=True, carrier="last")
    flat = np.zeros(data.lists.members)
    selection = select(replace(data, targets={**data.targets, "margin": flat}))
    assert selection.selected.option.name == "likelihood, last"
    first = selection.options[0]
    assert (first.name, first.supported) == ("margin, last", False)
    assert "one and the same margin" in first.note
    with pytest.raises(CalibrationError, match="one and the same margin"):
        select(replace(data, targets={"margin": flat}))


def test_the_spread_is_the_targets_own_and_lists_in_which_it_does_not_vary_are_left_out() -> None:
    data = observed(margin_knows=True, likelihood_knows=True, carrier="last")
    margins, constant = data.targets["margin"].copy(), data.lists.offsets[24]
    margins[:constant] = 1.0
    selection = select(replace(data, targets={"margin": 5 * margins}))
    assert selection.options[0].varied_share == 0.75
    assert selection.selected.fit.data.queries == data.queries[24:]
    np.testing.assert_array_equal(selection.selected.fit.targets, 5 * margins[constant:])
    deviations = [np.std(part) for part in np.split(5 * margins, data.lists.offsets[1:-1])[24:]]
    assert selection.options[0].spread == pytest.approx(np.mean(deviations))


@pytest.mark.parametrize(("margin_sees", "selected"), [(0.35, "likelihood, mean"), (0.7, "margin, last")])
def test_a_margin_gives_way_only_to_a_likelihood_that_knows_far_more(
    margin_sees: float, selected: str
) -> None:
    """Retriever and likelihood both count words: a small lead with the retriever proves nothing."""
    world = World(0.5, 0.9, margin_sees)
    drawn = simulate(world, queries=QUERIES, seed=1)
    margin, likelihood = drawn.teacher, drawn.reranker
    last, mean = states(margin, seed=4, blur=1.0), states(likelihood, seed=5, blur=1.0)
    targets: dict[Target, Floats] = {"margin": margin, "likelihood": likelihood}
    selection = select(simulated(world, targets, {"last": last, "mean": mean}))
    by_name = {option.name: option for option in selection.options}
    assert by_name["margin, last"].supported
    assert by_name["likelihood, mean"].retriever_readout > by_name["margin, last"].retriever_readout
    assert selection.selected.option.name == selected
    assert ("clearly more than that of margin, last" in selection.reason) == (selected != "margin, last")
