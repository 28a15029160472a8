"""Which target, which state: what the model supports, by measure, and the reason in words."""

from dataclasses import replace

import numpy as np
import pytest

from ridgerank.calibration.selection import Observed, choose
from ridgerank.errors import CalibrationError
from ridgerank.evaluation.simulation import Sample, World, simulate
from ridgerank.ragged import Floats
from ridgerank.records import State, Target

QUERIES = 96
_DIM = 6


def states(carried: Floats, *, seed: int, blur: float = 0.3) -> Floats:
    """Random states of which one direction is a score with some noise."""
    generator = np.random.default_rng(seed)
    made = generator.normal(size=(len(carried), _DIM))
    made[:, 2] = carried + blur * generator.normal(size=len(carried))
    return made


def noise(count: int, seed: int) -> Floats:
    return np.random.default_rng(seed).normal(size=count)


def observed(*, margin_knows: bool, likelihood_knows: bool, carrier: State) -> Observed:
    """Targets that follow relevance or nothing at all, each carried by the state `carrier`."""
    drawn = simulate(World(0.5, 0.6, 0.7), queries=QUERIES, seed=1)
    other = simulate(World(0.5, 0.6, 0.7), queries=QUERIES, seed=1).reranker
    members = drawn.lists.members
    margin = drawn.teacher if margin_knows else noise(members, 2)
    likelihood = other if likelihood_knows else noise(members, 3)
    both = states(margin, seed=4)
    both[:, 4] = likelihood + 0.3 * noise(members, 5)
    found: dict[State, Floats] = {
        "last": both if carrier == "last" else states(noise(members, 6), seed=7),
        "mean": both if carrier == "mean" else states(noise(members, 8), seed=9),
    }
    targets: dict[Target, Floats] = {"margin": margin, "likelihood": likelihood}
    return Observed(drawn.lists, ("",) * QUERIES, drawn.retriever, targets, found, None)


def test_the_papers_reading_stays_where_the_model_supports_it() -> None:
    choice = choose(observed(margin_knows=True, likelihood_knows=True, carrier="last"))
    assert choice.taken.reading.name == "margin, last"
    assert choice.reason == "margin, last: the first choice, and this model supports it"
    supported = {reading.name for reading in choice.readings if reading.supported}
    assert supported == {"margin, last", "likelihood, last"}
    assert [reading.name for reading in choice.readings] == [
        "margin, last",
        "margin, mean",
        "likelihood, last",
        "likelihood, mean",
    ]


def test_a_model_that_cannot_answer_is_taught_the_likelihood_and_the_reason_is_said() -> None:
    choice = choose(observed(margin_knows=False, likelihood_knows=True, carrier="mean"))
    assert choice.taken.reading.name == "likelihood, mean"
    assert choice.taken.reading.agreement > 0.5
    assert choice.taken.weighing.deployed.weight > 0
    assert choice.reason.startswith("likelihood, mean: of the readings this model supports")
    assert "margin, last is not supported: the readout does not agree with the full model" in choice.reason


def test_a_readout_of_a_margin_that_knows_nothing_is_no_support() -> None:
    """It follows its target, r is high, but the retriever bears no witness for either."""
    choice = choose(observed(margin_knows=False, likelihood_knows=True, carrier="last"))
    by_name = {reading.name: reading for reading in choice.readings}
    assert by_name["margin, last"].agreement > 0.5
    assert not by_name["margin, last"].supported
    assert abs(by_name["margin, last"].retriever_target) < 0.15
    assert "the one-factor model does not fit" in by_name["margin, last"].note
    assert choice.taken.reading.name == "likelihood, last"


def test_where_nothing_is_supported_the_papers_stays_with_its_warnings() -> None:
    choice = choose(observed(margin_knows=False, likelihood_knows=False, carrier="mean"))
    assert choice.taken.reading.name == "margin, last"
    assert choice.reason.endswith("though this model supports no reading")
    assert choice.taken.weighing.warnings


def test_with_judgements_the_reading_closest_to_relevance_is_taken() -> None:
    seen = observed(margin_knows=False, likelihood_knows=True, carrier="mean")
    grades = simulate(World(0.5, 0.6, 0.7), queries=QUERIES, seed=1).grades.astype(np.float64)
    choice = choose(replace(seen, relevance=grades))
    assert choice.taken.reading.name == "likelihood, mean"
    assert choice.taken.weighing.closed_form is not None
    assert choice.taken.reading.relevance == choice.taken.weighing.closed_form.c_s


def test_a_target_that_is_the_same_for_all_pages_is_reported_and_left_out() -> None:
    seen = observed(margin_knows=True, likelihood_knows=True, carrier="last")
    flat = replace(seen, targets={**seen.targets, "margin": np.zeros(seen.lists.members)})
    choice = choose(flat)
    assert choice.taken.reading.name == "likelihood, last"
    first = choice.readings[0]
    assert (first.name, first.supported) == ("margin, last", False)
    assert "one and the same margin" in first.note
    with pytest.raises(CalibrationError, match="one and the same margin"):
        choose(replace(flat, targets={"margin": flat.targets["margin"]}))


def test_the_spread_is_the_targets_own_and_the_share_counts_lists() -> None:
    seen = observed(margin_knows=True, likelihood_knows=True, carrier="last")
    margins = seen.targets["margin"].copy()
    margins[: seen.lists.offsets[24]] = 1.0
    [first, *_] = choose(replace(seen, targets={"margin": 5 * margins})).readings
    assert first.told_apart == 0.75
    deviations = [
        np.std(5 * margins[start:end])
        for start, end in zip(seen.lists.offsets[24:-1], seen.lists.offsets[25:], strict=True)
    ]
    assert first.spread == pytest.approx(np.mean(deviations))


def two_targets(margin_sees: float, likelihood_sees: float) -> Observed:
    """Targets that follow relevance more or less closely, each carried by a state of its own."""
    drawn = simulate(World(0.5, likelihood_sees, margin_sees), queries=QUERIES, seed=1)
    margin, likelihood = drawn.teacher, drawn.reranker
    found: dict[State, Floats] = {
        "last": states(margin, seed=4, blur=1.0),
        "mean": states(likelihood, seed=5, blur=1.0),
    }
    targets: dict[Target, Floats] = {"margin": margin, "likelihood": likelihood}
    return Observed(drawn.lists, ("",) * QUERIES, drawn.retriever, targets, found, None)


def test_a_margin_that_knows_far_less_than_the_likelihood_gives_way_though_it_is_supported() -> None:
    choice = choose(two_targets(margin_sees=0.35, likelihood_sees=0.9))
    by_name = {reading.name: reading for reading in choice.readings}
    assert by_name["margin, last"].supported
    assert choice.taken.reading.name == "likelihood, mean"
    assert "clearly more than that of margin, last" in choice.reason


def test_a_margin_that_knows_a_little_less_stays() -> None:
    """Retriever and likelihood both count words: a small lead with the retriever proves nothing."""
    choice = choose(two_targets(margin_sees=0.7, likelihood_sees=0.9))
    by_name = {reading.name: reading for reading in choice.readings}
    assert by_name["likelihood, mean"].retriever_readout > by_name["margin, last"].retriever_readout
    assert choice.taken.reading.name == "margin, last"


def taught_by_the_margin(drawn: Sample, found: dict[State, Floats]) -> Observed:
    """Judged queries of which only the margin is a target."""
    return Observed(
        lists=drawn.lists,
        corpora=("",) * len(drawn.lists),
        retriever=drawn.retriever,
        targets={"margin": drawn.teacher},
        states=found,
        relevance=drawn.grades.astype(np.float64),
    )


def test_the_retriever_is_as_good_as_the_reading_that_shows_it_best() -> None:
    """A readout that copies its teacher's noise makes the retriever look worse than it is.

    The state `mean` knows relevance but nothing of that noise, and so shows what the retriever is worth:
    c_b rises for `last` as well, and its label-free weight comes closer to the one from judgements.
    """
    drawn = simulate(World(0.5, 0.75, 0.6), queries=400, seed=1)
    seen = taught_by_the_margin(
        drawn, {"last": states(drawn.teacher, seed=4), "mean": states(drawn.reranker, seed=9)}
    )
    alone = choose(replace(seen, states={"last": seen.states["last"]})).attempts[0].weighing
    beside = choose(seen).attempts[0].weighing
    assert alone.closed_form is not None
    assert beside.label_free.c_b > alone.label_free.c_b + 0.05
    wanted = alone.closed_form.weight
    assert abs(beside.label_free.weight - wanted) < abs(alone.label_free.weight - wanted) - 0.05


def test_a_readout_that_copies_the_retriever_does_not_make_it_perfect() -> None:
    drawn = simulate(World(0.5, 0.75, 0.6), queries=400, seed=1)
    copied = states(drawn.retriever, seed=9, blur=0.1)
    seen = taught_by_the_margin(drawn, {"last": states(drawn.teacher, seed=4, blur=1.0), "mean": copied})
    last, mean = choose(seen).attempts
    assert mean.weighing.retriever_readout > 0.9
    assert last.weighing.label_free.c_b == pytest.approx(np.sqrt(last.weighing.retriever_target))
    assert last.weighing.closed_form is not None
    assert abs(last.weighing.label_free.weight - last.weighing.closed_form.weight) < 0.1
