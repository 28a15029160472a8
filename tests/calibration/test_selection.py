"""Which target, which state: what the model supports, by measure, and the reason in words."""

from dataclasses import replace

import numpy as np
import pytest

from experiments.simulation import Sample, World, simulate
from ridgerank.calibration.selection import CalibrationData, select_readout
from ridgerank.errors import CalibrationError
from ridgerank.ragged import Floats
from ridgerank.records import State, Target

QUERIES = 96
_DIM = 6


def states(carried: Floats, *, seed: int, blur: float = 0.3) -> Floats:
    """Random states of which one direction is a score with some noise."""
    generator = np.random.default_rng(seed)
    drawn_states = generator.normal(size=(len(carried), _DIM))
    drawn_states[:, 2] = carried + blur * generator.normal(size=len(carried))
    return drawn_states


def noise(count: int, seed: int) -> Floats:
    return np.random.default_rng(seed).normal(size=count)


def observed(*, margin_knows: bool, likelihood_knows: bool, carrier: State) -> CalibrationData:
    """Targets that follow relevance or nothing at all, each carried by the state `carrier`."""
    drawn = simulate(World(0.5, 0.6, 0.7), queries=QUERIES, seed=1)
    other = simulate(World(0.5, 0.6, 0.7), queries=QUERIES, seed=1).reranker
    members = drawn.lists.members
    margin = drawn.teacher if margin_knows else noise(members, 2)
    likelihood = other if likelihood_knows else noise(members, 3)
    both = states(margin, seed=4)
    both[:, 4] = likelihood + 0.3 * noise(members, 5)
    states_by_name: dict[State, Floats] = {
        "last": both if carrier == "last" else states(noise(members, 6), seed=7),
        "mean": both if carrier == "mean" else states(noise(members, 8), seed=9),
    }
    targets: dict[Target, Floats] = {"margin": margin, "likelihood": likelihood}
    return CalibrationData(drawn.lists, ("",) * QUERIES, drawn.retriever, targets, states_by_name, None)


def test_the_papers_reading_stays_where_the_model_supports_it() -> None:
    selection = select_readout(observed(margin_knows=True, likelihood_knows=True, carrier="last"))
    assert selection.selected.option.name == "margin, last"
    assert selection.reason == "margin, last: the first choice, and this model supports it"
    supported = {option.name for option in selection.options if option.supported}
    assert supported == {"margin, last", "likelihood, last"}
    assert [option.name for option in selection.options] == [
        "margin, last",
        "margin, mean",
        "likelihood, last",
        "likelihood, mean",
    ]


def test_a_model_that_cannot_answer_is_taught_the_likelihood_and_the_reason_is_said() -> None:
    selection = select_readout(observed(margin_knows=False, likelihood_knows=True, carrier="mean"))
    assert selection.selected.option.name == "likelihood, mean"
    assert selection.selected.option.agreement > 0.5
    assert selection.selected.decision.deployed.weight > 0
    assert selection.reason.startswith("likelihood, mean: of the readings this model supports")
    assert "margin, last is not supported: the readout does not agree with its teacher" in selection.reason


def test_a_readout_of_a_margin_that_knows_nothing_is_no_support() -> None:
    """It follows its target, r is high, but the retriever bears no witness for either."""
    selection = select_readout(observed(margin_knows=False, likelihood_knows=True, carrier="last"))
    by_name = {option.name: option for option in selection.options}
    assert by_name["margin, last"].agreement > 0.5
    assert not by_name["margin, last"].supported
    assert abs(by_name["margin, last"].retriever_target) < 0.15
    assert "do not correlate beyond chance" in by_name["margin, last"].note
    assert selection.selected.option.name == "likelihood, last"


def test_where_nothing_is_supported_the_papers_stays_with_its_warnings() -> None:
    selection = select_readout(observed(margin_knows=False, likelihood_knows=False, carrier="mean"))
    assert selection.selected.option.name == "margin, last"
    assert selection.reason.endswith("though this model supports no reading")
    assert selection.selected.decision.warnings


def test_with_judgements_the_reading_closest_to_relevance_is_taken() -> None:
    seen = observed(margin_knows=False, likelihood_knows=True, carrier="mean")
    grades = simulate(World(0.5, 0.6, 0.7), queries=QUERIES, seed=1).grades.astype(np.float64)
    selection = select_readout(replace(seen, relevance=grades))
    assert selection.selected.option.name == "likelihood, mean"
    assert selection.selected.decision.closed_form is not None
    assert selection.selected.option.relevance == selection.selected.decision.closed_form.c_s


def test_a_target_that_is_the_same_for_all_pages_is_reported_and_left_out() -> None:
    seen = observed(margin_knows=True, likelihood_knows=True, carrier="last")
    flat = replace(seen, targets={**seen.targets, "margin": np.zeros(seen.lists.members)})
    selection = select_readout(flat)
    assert selection.selected.option.name == "likelihood, last"
    first = selection.options[0]
    assert (first.name, first.supported) == ("margin, last", False)
    assert "one and the same margin" in first.note
    with pytest.raises(CalibrationError, match="one and the same margin"):
        select_readout(replace(flat, targets={"margin": flat.targets["margin"]}))


def test_the_spread_is_the_targets_own_and_the_share_counts_lists() -> None:
    seen = observed(margin_knows=True, likelihood_knows=True, carrier="last")
    margins = seen.targets["margin"].copy()
    margins[: seen.lists.offsets[24]] = 1.0
    [first, *_] = select_readout(replace(seen, targets={"margin": 5 * margins})).options
    assert first.varied_share == 0.75
    deviations = [
        np.std(5 * margins[start:end])
        for start, end in zip(seen.lists.offsets[24:-1], seen.lists.offsets[25:], strict=True)
    ]
    assert first.spread == pytest.approx(np.mean(deviations))


def two_targets(margin_sees: float, likelihood_sees: float) -> CalibrationData:
    """Targets that follow relevance more or less closely, each carried by a state of its own."""
    drawn = simulate(World(0.5, likelihood_sees, margin_sees), queries=QUERIES, seed=1)
    margin, likelihood = drawn.teacher, drawn.reranker
    states_by_name: dict[State, Floats] = {
        "last": states(margin, seed=4, blur=1.0),
        "mean": states(likelihood, seed=5, blur=1.0),
    }
    targets: dict[Target, Floats] = {"margin": margin, "likelihood": likelihood}
    return CalibrationData(drawn.lists, ("",) * QUERIES, drawn.retriever, targets, states_by_name, None)


def test_a_margin_that_knows_far_less_than_the_likelihood_gives_way_though_it_is_supported() -> None:
    selection = select_readout(two_targets(margin_sees=0.35, likelihood_sees=0.9))
    by_name = {option.name: option for option in selection.options}
    assert by_name["margin, last"].supported
    assert selection.selected.option.name == "likelihood, mean"
    assert "clearly more than that of margin, last" in selection.reason


def test_a_margin_that_knows_a_little_less_stays() -> None:
    """Retriever and likelihood both count words: a small lead with the retriever proves nothing."""
    selection = select_readout(two_targets(margin_sees=0.7, likelihood_sees=0.9))
    by_name = {option.name: option for option in selection.options}
    assert by_name["likelihood, mean"].retriever_readout > by_name["margin, last"].retriever_readout
    assert selection.selected.option.name == "margin, last"


def taught_by_the_margin(drawn: Sample, states_by_name: dict[State, Floats]) -> CalibrationData:
    """Judged queries of which only the margin is a target."""
    return CalibrationData(
        lists=drawn.lists,
        corpora=("",) * len(drawn.lists),
        retriever=drawn.retriever,
        targets={"margin": drawn.teacher},
        states=states_by_name,
        relevance=drawn.grades.astype(np.float64),
    )


def test_a_readout_that_copies_the_retriever_does_not_make_it_perfect() -> None:
    drawn = simulate(World(0.5, 0.75, 0.6), queries=400, seed=1)
    copied = states(drawn.retriever, seed=9, blur=0.1)
    seen = taught_by_the_margin(drawn, {"last": states(drawn.teacher, seed=4, blur=1.0), "mean": copied})
    last, mean = select_readout(seen).fitted
    assert mean.decision.retriever_readout > 0.9
    assert last.decision.label_free.c_b <= np.sqrt(last.decision.retriever_target)
    assert last.decision.closed_form is not None
    low, high = last.decision.label_free.weight_interval
    assert low < last.decision.closed_form.weight < high
