"""The weight from a calibration's own scores and judgements, without a model."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ridgerank.calibration.artifact import Calibration, ScoreLists
from ridgerank.calibration.weight import decide_from_scores, propose_pages, reweigh, weigh_step_by_step
from ridgerank.errors import CalibrationError
from ridgerank.fusion.correlations import correlate
from ridgerank.ragged import Ragged
from ridgerank.records import Query, ScoredPages
from tests.calibrated_store import random_calibration
from tests.calibration.test_fusion_weight import world
from tests.test_lineage import LINEAGE


@pytest.fixture(scope="module")
def calibration() -> Calibration:
    """A readout that is better than the retriever, on 40 lists."""
    problem, fit, _ = world(40)
    members = problem.lists.members
    lists = ScoreLists(
        queries=tuple(Query(f"q{number}", f"query {number}") for number in range(len(problem.lists))),
        page_ids=tuple(f"page-{member}" for member in range(members)),
        lists=problem.lists,
        retriever=problem.retriever,
        readout=fit.held_out_scores,
        targets=problem.targets,
    )
    return replace(random_calibration(LINEAGE, 8), lists=lists)


@pytest.fixture(scope="module")
def judged() -> dict[str, dict[str, int]]:
    problem, _, relevance = world(40)
    numbers = problem.lists.list_numbers()
    grades: dict[str, dict[str, int]] = {}
    for member, grade in enumerate(relevance.tolist()):
        grades.setdefault(f"query {numbers[member]}", {})[f"page-{member}"] = int(grade > 0)
    return grades


def test_it_is_the_weight_a_whole_calibration_decides_on(
    calibration: Calibration, judged: dict[str, dict[str, int]]
) -> None:
    lists = calibration.lists
    assert lists is not None
    b, s, t = lists.retriever, lists.readout, lists.targets
    relevance = np.array(
        [judged[f"query {lists.lists.list_numbers()[i]}"][f"page-{i}"] for i in range(len(b))]
    )
    expected = decide_from_scores(b, s, t, lists.lists, correlate(b, s, relevance * 1.0, lists.lists))
    assert reweigh(calibration, {}, judged).weight == expected.deployed
    without = decide_from_scores(b, s, t, lists.lists, None)
    assert reweigh(calibration, {}, {}).weight == without.deployed


def test_judgements_make_the_interval_shrink(
    calibration: Calibration, judged: dict[str, dict[str, int]]
) -> None:
    estimate, steps = weigh_step_by_step(calibration, {}, judged)
    assert [steps[0].queries, steps[-1].queries] == [0, 40]
    widths = [step.weight_interval[1] - step.weight_interval[0] for step in steps]
    assert widths[-1] < 0.8 * widths[0]
    assert estimate.weight == steps[-1].weight


def test_lists_kept_by_a_server_count_like_the_calibrations_own(
    calibration: Calibration, judged: dict[str, dict[str, int]]
) -> None:
    lists = calibration.lists
    assert lists is not None
    known = {f"typed {text}": pages for text, pages in lists.by_query().items()}
    typed = {f"typed {text}": grades for text, grades in judged.items()}
    assert reweigh(calibration, known, typed).weight == reweigh(calibration, {}, judged).weight
    # Judgements of queries nobody has candidates of change nothing.
    assert reweigh(calibration, {}, {"unknown": {"a": 2}}).weight == reweigh(calibration, {}, {}).weight


def test_lists_survive_being_saved(calibration: Calibration, tmp_path: Path) -> None:
    calibration.save(tmp_path)
    loaded = Calibration.load(tmp_path).lists
    assert loaded is not None
    assert calibration.lists is not None
    assert loaded.by_query() == calibration.lists.by_query()
    assert [query.query_id for query in loaded.queries][:2] == ["q0", "q1"]


def test_a_calibration_of_an_older_release_says_what_to_do(calibration: Calibration) -> None:
    with pytest.raises(CalibrationError, match="calibrate once more"):
        reweigh(replace(calibration, lists=None), {}, {})


def test_disputed_pages_of_both_first_fives_are_proposed_first() -> None:
    retriever = tuple(float(score) for score in range(20, 0, -1))
    readout = (*retriever[:6], 30.0, *retriever[7:])
    pages = ScoredPages(tuple(f"p{number}" for number in range(20)), retriever, readout)
    proposed = propose_pages(pages, {"p1": 2})
    assert proposed[0] == "p6"
    assert set(proposed) == {"p0", "p2", "p3", "p4", "p6"}


def test_lists_in_which_the_target_does_not_vary_are_left_out() -> None:
    from ridgerank.records import Candidate

    candidates = {
        Query("a", "first"): [Candidate("p1", 1.0), Candidate("p2", 0.5)],
        Query("b", "second"): [Candidate("p3", 1.0)],
    }
    members = np.array([True, True, False])
    values = np.array([1.0, 0.5])
    lists = ScoreLists.of_candidates(candidates, members, values, values, values)
    assert [query.text for query in lists.queries] == ["first"]
    assert lists.page_ids == ("p1", "p2")
    assert lists.lists.lengths.tolist() == Ragged.of_lengths([2]).lengths.tolist()


def test_judgements_a_calibration_was_made_with_stay_and_count_besides_new_ones(
    calibration: Calibration, judged: dict[str, dict[str, int]], tmp_path: Path
) -> None:
    lists = calibration.lists
    assert lists is not None
    texts = list(judged)
    first, later = ({text: judged[text] for text in part} for part in (texts[:24], texts[24:]))
    replace(calibration, lists=lists.with_grades(first)).save(tmp_path)
    kept = Calibration.load(tmp_path)
    for given, every in (({}, first), (later, judged)):
        weight, expected = reweigh(kept, {}, given).weight, reweigh(calibration, {}, every).weight
        assert (weight.weight, weight.weight_interval) == (expected.weight, expected.weight_interval)


def test_a_model_that_nothing_speaks_for_gets_no_weight(calibration: Calibration) -> None:
    lists = calibration.lists
    assert lists is not None
    noise = np.random.default_rng(3).normal(size=len(lists.page_ids))
    blind = replace(calibration, lists=replace(lists, readout=noise, targets=noise))
    assert reweigh(blind, {}, {}).weight.weight == 0.0
