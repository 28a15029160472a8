"""Which target, which state: what the model supports, by measure, and the reason in words."""

from dataclasses import replace

import numpy as np
import pytest

from ridgerank.calibration.choosing import Observed, choose
from ridgerank.errors import CalibrationError
from ridgerank.evaluation.simulation import World, simulate
from ridgerank.lists import Floats
from ridgerank.records import State, Target

QUERIES = 96
_DIM = 6


def states(carried: Floats, *, seed: int) -> Floats:
    """Random states of which one direction is a score with some noise."""
    generator = np.random.default_rng(seed)
    made = generator.normal(size=(len(carried), _DIM))
    made[:, 2] = carried + 0.3 * generator.normal(size=len(carried))
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
