"""The verdict of a trial."""

from collections.abc import Sequence

import numpy as np
import pytest

from ridgerank.evaluation import metrics
from ridgerank.evaluation.metrics import Evaluation, Verdict, compare_evaluations, reach_verdict, widen
from ridgerank.ragged import Floats


def judge(gains: Floats, documents: Sequence[int], *, made: bool = False, blind: str = "") -> Verdict:
    """The verdict on questions that gain so much each."""
    queries = tuple(f"q{number}" for number in range(len(gains)))
    before = Evaluation(queries, ("nDCG@5",), np.zeros((1, len(gains))), 0, 0)
    after = Evaluation(queries, ("nDCG@5",), gains[None, :], 0, 0)
    groups = dict(zip(queries, map(str, documents), strict=True))
    [difference] = compare_evaluations(before, after, groups=groups)
    return reach_verdict(widen(difference), questions=len(gains), made=made, blind=blind)


def test_without_an_effect_at_most_5_percent_of_1000_trials_say_worth_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(metrics, "RESAMPLES", 1000)
    generator = np.random.default_rng(0)
    worth_it = 0
    for _ in range(1000):
        documents = generator.integers(0, generator.integers(5, 30), size=generator.integers(16, 120))
        moved = generator.random(len(documents)) < 0.4  # most questions keep their pages
        effects = generator.normal(0.0, 10.0, 30)[documents] + generator.normal(0.0, 30.0, len(documents))
        worth_it += judge(np.where(moved, effects, 0.0), documents.tolist()).outcome == "worth it"
    assert 0 < worth_it <= 50


def test_a_clear_gain_is_worth_it_and_on_made_questions_is_not_called_so() -> None:
    gains, documents = np.tile([0.0, 8.0, 12.0, 4.0], 15), [number // 4 for number in range(60)]
    assert judge(gains, documents).outcome == "worth it"
    made = judge(gains, documents, made=True)
    assert made.outcome == "cannot tell yet"
    assert made.sentence.startswith("On questions made from your pages")
    assert judge(-gains, documents, made=True).outcome == "not worth it"
    assert judge(gains, documents, blind="the model does not read these pages").outcome == "not worth it"


def test_the_number_of_questions_that_would_tell_follows_from_gain_and_deviation() -> None:
    generator = np.random.default_rng(1)
    gains = generator.normal(0.0, 20.0, 400)
    gains += 1.5 - gains.mean()
    verdict = judge(gains, range(400))
    assert verdict.outcome == "cannot tell yet"
    assert verdict.questions_needed is None
    assert "over 500" in verdict.sentence
    gains = gains[:60] + 4.0 - gains[:60].mean()
    verdict = judge(gains, range(60))
    assert verdict.questions_needed == pytest.approx((1.96 * gains.std() / 4.0) ** 2, rel=0.15)


def test_one_document_cannot_tell() -> None:
    assert judge(np.full(30, 5.0), [0] * 30).outcome == "cannot tell yet"
