"""The weight: eq. 4 on judgements, pulled to equal weights by its error; 0 only on evidence of blindness."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from experiments.simulation import Sample, World, simulate
from ridgerank.calibration.artifact import Calibration, ScoreLists
from ridgerank.calibration.fit import CalibrationLists, QueryLists
from ridgerank.calibration.weight import (
    BETWEEN_SETS,
    Reading,
    Scorer,
    Weighed,
    equal_weight,
    judged_weight,
    reweigh,
    shows_blindness,
    weigh,
)
from ridgerank.errors import CalibrationError
from ridgerank.fusion.correlations import Correlations, correlate
from ridgerank.ragged import Floats
from ridgerank.records import Query, ScoredPages
from ridgerank.serving.judging import propose_pages
from tests.calibrated_store import random_calibration
from tests.test_lineage import LINEAGE

LAST: Reading = ("margin", "last")
MEAN: Reading = ("likelihood", "mean")


def world(queries: int, *, seed: int = 0, c_s: float = 0.6) -> Sample:
    return simulate(World(0.45, c_s, 0.7), queries=queries, seed=seed)


def judge(sample: Sample) -> Correlations:
    return correlate(sample.retriever, sample.reranker, sample.grades.astype(np.float64), sample.lists)


def asked(sample: Sample, scores: Floats | None = None, *, judged: bool = True) -> QueryLists:
    """Lists whose one state is the score itself."""
    scores = sample.reranker if scores is None else scores
    count = len(sample.lists)
    return QueryLists(
        queries=tuple(Query(f"q{number}", f"query {number}") for number in range(count)),
        page_ids=tuple(f"page-{member}" for member in range(sample.lists.members)),
        lists=sample.lists,
        retriever=sample.retriever,
        states={"last": scores[:, None], "mean": np.column_stack([sample.teacher])},
        targets={},
        relevance=sample.grades.astype(np.float64) if judged else None,
    )


def scorer(state: str) -> Scorer:
    return lambda lists: lists.states[state][:, 0]  # type: ignore[index]


def run(
    made: QueryLists | None = None,
    given: QueryLists | None = None,
    *,
    reordered: QueryLists | None = None,
    readings: dict[Reading, Scorer] | None = None,
    **options: float | bool,
) -> Weighed:
    lists = CalibrationLists(None, made, reordered, given, {})
    return weigh(lists, readings or {LAST: scorer("last")}, **options)  # type: ignore[arg-type]


def with_spread(judged: Correlations, spread: float, incumbent: float = 0.5) -> float:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ridgerank.calibration.weight.BETWEEN_SETS", spread)
        return judged_weight(judged, incumbent).weight


def test_the_weight_leaves_the_incumbent_as_far_as_its_error_allows() -> None:
    judged = judge(world(200))
    assert with_spread(judged, 10.0) > judged_weight(judged).weight > with_spread(judged, 0.01) > 0.5
    assert with_spread(judged, 0.01, 1 / 3) == pytest.approx(1 / 3, abs=0.05)


def test_pulled_weights_of_few_judgements_are_nearer_to_the_true_one_than_their_own() -> None:
    truth = with_spread(judge(world(5000, seed=99)), 10.0)
    errors = {BETWEEN_SETS: 0.0, 10.0: 0.0}
    for seed in range(40):
        few = judge(world(12, seed=seed))
        for spread in errors:
            errors[spread] += (with_spread(few, spread) - truth) ** 2
    assert errors[BETWEEN_SETS] < 0.7 * errors[10.0]


def test_judgements_decide_and_made_questions_are_reported_at_an_equal_say() -> None:
    made, given = asked(world(60, seed=1)), asked(world(60, seed=2))
    unjudged = run(made)
    assert (unjudged.weight.weight, unjudged.weight.method) == (0.5, "prior")
    assert unjudged.weight == equal_weight(0.5, judge(world(60, seed=1)))
    judged = run(made, given)
    assert judged.weight == run(None, given).weight == judged_weight(judge(world(60, seed=2)))
    assert judged.kept is not None
    assert judged.kept.relevance is given.relevance
    assert run(made, replace(given, relevance=None)).weight == unjudged.weight


def test_without_any_questions_every_score_has_an_equal_say_and_that_is_said() -> None:
    weighed = run(None, asked(world(20), judged=False), incumbent=1 / 3)
    assert (weighed.weight.weight, weighed.weight.method) == (1 / 3, "prior")
    assert "nothing was measured" in weighed.weight.note
    assert weighed.kept is not None


def test_the_weight_is_0_only_if_the_model_does_not_read_the_pages() -> None:
    sample = world(60)
    noise = np.random.default_rng(3).normal(size=sample.lists.members)
    blind = run(asked(sample, noise), reordered=asked(sample, noise))
    assert blind.weight.weight == 0.0
    assert blind.weight.cause.startswith("the model does not read these pages")
    assert run(asked(sample), reordered=asked(sample, noise)).weight.weight > 0.0
    assert run(asked(sample, noise), reordered=asked(sample)).weight.weight > 0.0
    few = world(20)
    agrees = run(asked(sample, noise), asked(sample, judged=False), reordered=asked(sample, noise))
    assert agrees.weight.weight > 0.0  # on given queries it ranks much as the retriever does
    lost = replace(asked(sample, noise), retriever=noise)
    assert run(lost, reordered=lost).weight.weight > 0.0  # questions that the retriever cannot answer, either
    few_noise = noise[: few.lists.members]
    unsure = run(asked(few, few_noise), reordered=asked(few, few_noise))
    assert unsure.weight.weight > 0.0


def test_blindness_needs_thirty_two_questions_and_an_upper_end_below_a_fifth() -> None:
    assert shows_blindness(np.zeros(32) + 1e-3 * np.arange(32))
    assert not shows_blindness(np.zeros(31) + 1e-3 * np.arange(31))
    assert not shows_blindness(np.tile([-0.6, 0.9], 20))


def test_the_reading_is_chosen_on_half_of_the_questions_unless_the_papers_is_to_stay() -> None:
    sample = world(80)
    weak = sample.reranker + 3.0 * np.random.default_rng(5).normal(size=sample.lists.members)
    readings = {LAST: scorer("last"), MEAN: scorer("mean")}
    chosen = run(asked(sample, weak), readings=readings)
    assert chosen.reading == MEAN
    assert chosen.relevance[MEAN] > chosen.relevance[LAST]
    assert run(asked(sample, weak), readings=readings, keep_paper=True).reading == LAST
    wrong = asked(sample, -sample.reranker)
    assert run(wrong, readings=readings, keep_paper=True).reading == MEAN


SCORES = world(40)
NUMBERS = SCORES.lists.list_numbers().tolist()
JUDGED: dict[str, dict[str, int]] = {}
for _member, _grade in enumerate(SCORES.grades.tolist()):
    JUDGED.setdefault(f"query {NUMBERS[_member]}", {})[f"page-{_member}"] = int(_grade > 0)


@pytest.fixture(scope="module")
def lists() -> ScoreLists:
    """A readout that is better than the retriever, on 40 lists."""
    return ScoreLists(
        queries=tuple(Query(f"q{number}", f"query {number}") for number in range(40)),
        page_ids=tuple(f"page-{member}" for member in range(SCORES.lists.members)),
        lists=SCORES.lists,
        retriever=SCORES.retriever,
        readout=SCORES.reranker,
    )


@pytest.fixture(scope="module")
def calibration(lists: ScoreLists) -> Calibration:
    return replace(random_calibration(LINEAGE, 8), lists=lists)


def test_reweighing_gives_the_weight_of_the_judgements_and_without_any_changes_nothing(
    calibration: Calibration,
) -> None:
    relevance = (SCORES.grades > 0).astype(np.float64)
    judged = correlate(SCORES.retriever, SCORES.reranker, relevance, SCORES.lists)
    assert reweigh(calibration, {}, JUDGED).weight == judged_weight(judged)
    # Judgements of queries nobody has candidates of change nothing, either.
    assert reweigh(calibration, {}, {}).weight == calibration.weight
    assert reweigh(calibration, {}, {"unknown": {"a": 2}}).weight == calibration.weight
    with pytest.raises(CalibrationError, match="calibrate once more"):
        reweigh(replace(calibration, lists=None), {}, {})


def test_lists_kept_by_a_server_count_like_the_calibrations_own(
    calibration: Calibration, lists: ScoreLists
) -> None:
    known = {f"typed {text}": pages for text, pages in lists.by_query().items()}
    typed = {f"typed {text}": grades for text, grades in JUDGED.items()}
    assert reweigh(calibration, known, typed).weight == reweigh(calibration, {}, JUDGED).weight


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


def test_disputed_pages_of_both_first_fives_are_proposed_first() -> None:
    retriever = tuple(float(score) for score in range(20, 0, -1))
    readout = (*retriever[:6], 30.0, *retriever[7:])
    pages = ScoredPages(tuple(f"p{number}" for number in range(20)), retriever, readout)
    proposed = propose_pages(pages, {"p1": 2})
    assert proposed[0] == "p6"
    assert set(proposed) == {"p0", "p2", "p3", "p4", "p6"}
