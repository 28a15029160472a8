"""The deployed weight: an estimate where one can be had, safe where none can; estimated again at will."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from experiments.simulation import World, simulate
from ridgerank.calibration.artifact import Calibration, ScoreLists
from ridgerank.calibration.weight import (
    WeightDecision,
    decide_weight,
    propose_pages,
    reweigh,
    weigh_step_by_step,
)
from ridgerank.errors import CalibrationError
from ridgerank.fusion.correlations import correlate
from ridgerank.fusion.weight import WeightEstimate
from ridgerank.ragged import Floats, Ragged
from ridgerank.records import Query, ScoredPages
from tests.calibrated_store import random_calibration
from tests.test_lineage import LINEAGE


@dataclass(frozen=True)
class Scores:
    """Scores of a retriever, a readout and its teacher, and grades."""

    retriever: Floats
    readout: Floats
    targets: Floats
    lists: Ragged
    relevance: Floats

    def decide(self, *, judged: bool = False, transferred: WeightEstimate | None = None) -> WeightDecision:
        b, s = self.retriever, self.readout
        correlations = correlate(b, s, self.relevance, self.lists) if judged else None
        return decide_weight(b, s, self.targets, self.lists, correlations, transferred=transferred)


def world(queries: int, *, seed: int = 0) -> Scores:
    drawn = simulate(World(0.45, 0.6, 0.7), queries=queries, seed=seed)
    grades = drawn.grades.astype(np.float64)
    return Scores(drawn.retriever, drawn.reranker, drawn.teacher, drawn.lists, grades)


def unreadable(queries: int, *, seed: int = 0, blur: float = 0.3) -> Scores:
    """A model that cannot read these pages: it agrees with itself, and with nothing else."""
    scores = world(queries, seed=seed)
    noise = np.random.default_rng(1000 + seed).normal(size=(2, scores.lists.members))
    return replace(scores, targets=noise[0], readout=noise[0] + blur * noise[1])


def test_scores_that_follow_the_model_give_an_estimate_with_a_gain() -> None:
    decision = world(200).decide()
    assert (decision.deployed.method, decision.deployed.shrunk, decision.warnings) == ("label-free", True, ())
    assert decision.deployed.note.startswith("an estimate without judgements")
    assert decision.deployed.chance_of_gain < 1.0
    assert decision.paper_label_free.method == "label-free"
    assert decision.closed_form is None
    assert decision.deployed.interior
    assert decision.expected_gain > 0
    assert decision.agreement_interval[0] < decision.agreement < decision.agreement_interval[1]
    assert decision.teacher_relevance == pytest.approx(0.7, abs=0.15)


def test_judgements_set_the_weight_and_stand_before_those_of_another_corpus() -> None:
    judged = world(200).decide(judged=True)
    assert judged.deployed is judged.closed_form
    assert (judged.deployed.method, judged.label_free.method) == ("closed-form", "label-free")
    transferred = world(100, seed=1).decide(judged=True).closed_form
    without = world(200).decide(transferred=transferred)
    assert without.deployed is without.closed_form is transferred
    assert world(200).decide(judged=True, transferred=transferred).deployed == judged.deployed


def test_a_readout_that_does_not_follow_its_teacher_gets_no_weight() -> None:
    scores = world(64)
    noise = np.random.default_rng(3).normal(size=scores.lists.members)
    decision = replace(scores, readout=noise).decide()
    assert (decision.deployed.weight, decision.expected_gain) == (0.0, 0.0)
    assert "does not agree with its teacher" in decision.warnings[0]
    assert "the weight is 0, pages stay in the retriever's order" in decision.warnings[0]


def test_a_model_that_shares_nothing_with_the_retriever_gets_no_weight() -> None:
    """Readout and teacher agree with each other only; pulled to a prior, w would be near 1."""
    decisions = [unreadable(32, seed=seed, blur=0.5).decide() for seed in range(40)]
    assert all(bool(each.warnings) == (each.deployed.weight == 0.0) for each in decisions)
    assert [each.deployed.weight for each in decisions].count(0.0) >= 39


def test_a_readout_that_adds_nothing_by_the_judgements_leaves_the_retrievers_order() -> None:
    scores = world(64)
    decision = replace(scores, relevance=scores.retriever - scores.retriever.min()).decide(judged=True)
    assert decision.deployed.weight == 0.0
    assert "no gain over the retriever is expected" in decision.warnings[0]


@pytest.mark.parametrize("judged_queries", [1, 8, 40])
def test_judgements_that_show_nothing_do_not_open_the_gate(judged_queries: int) -> None:
    scores = unreadable(40)
    assert "nothing shows" in scores.decide().doubt
    masked = np.where(scores.lists.list_numbers() < judged_queries, scores.relevance, 0.0)
    decision = replace(scores, relevance=masked).decide(judged=True)
    assert decision.deployed.weight == 0.0
    assert "do not show it either" in decision.warnings[0]
    assert decision.doubt


def test_few_judgements_that_show_the_readout_knows_relevance_open_the_gate() -> None:
    scores = unreadable(40)
    informed = replace(scores, readout=scores.readout + 2.0 * scores.relevance)
    assert informed.decide().deployed.weight == 0.0
    masked = np.where(scores.lists.list_numbers() < 16, scores.relevance, 0.0)
    decision = replace(informed, relevance=masked).decide(judged=True)
    assert decision.deployed.weight > 0.5
    assert (decision.doubt, decision.deployed.method) == ("", "closed-form")


SCORES = world(40)
NUMBERS = SCORES.lists.list_numbers().tolist()
JUDGED: dict[str, dict[str, int]] = {}
for _member, _grade in enumerate(SCORES.relevance.tolist()):
    JUDGED.setdefault(f"query {NUMBERS[_member]}", {})[f"page-{_member}"] = int(_grade > 0)


@pytest.fixture(scope="module")
def lists() -> ScoreLists:
    """A readout that is better than the retriever, on 40 lists."""
    return ScoreLists(
        queries=tuple(Query(f"q{number}", f"query {number}") for number in range(40)),
        page_ids=tuple(f"page-{member}" for member in range(SCORES.lists.members)),
        lists=SCORES.lists,
        retriever=SCORES.retriever,
        readout=SCORES.readout,
        targets=SCORES.targets,
    )


@pytest.fixture(scope="module")
def calibration(lists: ScoreLists) -> Calibration:
    return replace(random_calibration(LINEAGE, 8), lists=lists)


def test_reweighing_gives_the_weight_a_whole_calibration_decides_on(calibration: Calibration) -> None:
    binary = replace(SCORES, relevance=(SCORES.relevance > 0).astype(np.float64))
    assert reweigh(calibration, {}, JUDGED).weight == binary.decide(judged=True).deployed
    assert reweigh(calibration, {}, {}).weight == SCORES.decide().deployed


def test_judgements_make_the_interval_shrink(calibration: Calibration) -> None:
    estimate, steps = weigh_step_by_step(calibration, {}, JUDGED)
    assert [steps[0].queries, steps[-1].queries] == [0, 40]
    widths = [step.weight_interval[1] - step.weight_interval[0] for step in steps]
    assert widths[-1] < 0.8 * widths[0]
    assert estimate.weight == steps[-1].weight


def test_lists_kept_by_a_server_count_like_the_calibrations_own(
    calibration: Calibration, lists: ScoreLists
) -> None:
    known = {f"typed {text}": pages for text, pages in lists.by_query().items()}
    typed = {f"typed {text}": grades for text, grades in JUDGED.items()}
    assert reweigh(calibration, known, typed).weight == reweigh(calibration, {}, JUDGED).weight
    # Judgements of queries nobody has candidates of change nothing.
    assert reweigh(calibration, {}, {"unknown": {"a": 2}}).weight == reweigh(calibration, {}, {}).weight


def test_lists_and_the_judgements_made_with_them_are_saved_and_count_besides_new_ones(
    calibration: Calibration, lists: ScoreLists, tmp_path: Path
) -> None:
    texts = list(JUDGED)
    first, later = ({text: JUDGED[text] for text in part} for part in (texts[:24], texts[24:]))
    replace(calibration, lists=lists.with_grades(first)).save(tmp_path)
    kept = Calibration.load(tmp_path)
    assert kept.lists is not None
    assert kept.lists.by_query() == lists.by_query()
    assert kept.lists.queries == lists.queries
    for given, every in (({}, first), (later, JUDGED)):
        weight, expected = reweigh(kept, {}, given).weight, reweigh(calibration, {}, every).weight
        assert (weight.weight, weight.weight_interval) == (expected.weight, expected.weight_interval)


def test_a_calibration_without_lists_says_what_to_do(calibration: Calibration) -> None:
    with pytest.raises(CalibrationError, match="calibrate once more"):
        reweigh(replace(calibration, lists=None), {}, {})


def test_disputed_pages_of_both_first_fives_are_proposed_first() -> None:
    retriever = tuple(float(score) for score in range(20, 0, -1))
    readout = (*retriever[:6], 30.0, *retriever[7:])
    pages = ScoredPages(tuple(f"p{number}" for number in range(20)), retriever, readout)
    proposed = propose_pages(pages, {"p1": 2})
    assert proposed[0] == "p6"
    assert set(proposed) == {"p0", "p2", "p3", "p4", "p6"}
