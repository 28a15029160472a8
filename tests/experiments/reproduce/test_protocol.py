"""Every step of §4's protocol on an example small enough to work out by hand."""

import math

import numpy as np
import pytest

from experiments.protocols import (
    ScoredCorpus,
    closed_form_weight,
    cyclic_weights,
    fit_fold_readouts,
    readouts_for,
)
from experiments.reproduce.experiment import even_shares
from experiments.reproduce.studies.weight_rules import label_free_weight
from ridgerank.ragged import Ragged


def corpus(
    name: str,
    *,
    retriever: tuple[float, ...],
    margins: tuple[float, ...],
    states: tuple[float, ...],
    grades: tuple[int, ...],
) -> ScoredCorpus:
    """One query over as many pages as there are scores; states are numbers."""
    pages = tuple(f"p{page}" for page in range(len(retriever)))
    return ScoredCorpus(
        corpus=name,
        queries=("q",),
        pages=pages,
        lists=Ragged.of_lengths([len(pages)]),
        retriever=np.array(retriever),
        margins=np.array(margins),
        states=np.array(states)[:, None],
        lens=np.zeros(len(pages)),
        qrels={"q": dict(zip(pages, grades, strict=True))},
    )


def two_pages(name: str, target: float) -> ScoredCorpus:
    """Two pages with the states 1 and 0 and the margins `target` and 0."""
    return corpus(name, retriever=(1.0, 0.0), margins=(target, 0.0), states=(1.0, 0.0), grades=(1, 0))


def test_154_queries_are_39_39_38_38() -> None:
    assert even_shares(154, [100, 100, 100, 100]) == [39, 39, 38, 38]


def test_a_corpus_of_the_first_family_is_scored_by_the_readout_that_left_it_out() -> None:
    assert [readouts_for(0, number, 4) for number in range(4)] == [(0,), (1,), (2,), (3,)]
    assert readouts_for(1, 7, 4) == (0, 1, 2, 3)  # of the second by all


def test_the_penalty_is_chosen_by_the_next_corpus_and_the_modal_one_is_deployed() -> None:
    # Centered, two pages with states (1, 0) and margins (t, 0) give H'H = 1/2, H't = t/2: n such corpora fit
    # a = (Σt/2) / (n/2 + λ), and a third one with target v is missed by (a − v)²/2.
    # A: fitted on C and D, a = 0.75/(1 + λ), validated on B, v = 1: the smaller λ the better, 0.001.
    # B: fitted on D and A, the same against C: 0.001.
    # C: fitted on A and B, a = 1/(1 + λ), validated on D, v = 0.5: exactly right at λ = 1.
    # D: fitted on B and C, a = 1/(1 + λ), validated on A, v = 1: 0.001.
    corpora = [two_pages("A", 1.0), two_pages("B", 1.0), two_pages("C", 1.0), two_pages("D", 0.5)]
    readouts = fit_fold_readouts(corpora)
    assert readouts.choice.chosen == {"A": 0.001, "B": 0.001, "C": 1.0, "D": 0.001}
    assert readouts.choice.deployed == 0.001
    # Without A: Σt/2 = (1 + 1 + 0.5)/2 over 3/2 + λ; without D: 3/2 over 3/2 + λ.
    expected = [1.25 / 1.501, 1.25 / 1.501, 1.25 / 1.501, 1.5 / 1.501]
    np.testing.assert_allclose(readouts.vectors[:, 0], expected, rtol=1e-9)


def by_hand(b: list[float], s: list[float], y: list[float]) -> float:
    """w* with the discounts of ranks 1, 2, 3 under the retriever's order, b descending."""
    omega = [1.0, 1.0 / math.log2(3.0), 0.5]
    total = sum(omega)

    def standard(values: list[float]) -> list[float]:
        mean = sum(o * v for o, v in zip(omega, values, strict=True)) / total
        variance = sum(o * (v - mean) ** 2 for o, v in zip(omega, values, strict=True)) / total
        return [(v - mean) / math.sqrt(variance) for v in values]

    def inner(x: list[float], z: list[float]) -> float:
        return sum(o * p * q for o, p, q in zip(omega, standard(x), standard(z), strict=True)) / total

    c_b, c_s, rho = inner(b, y), inner(s, y), inner(b, s)
    assert c_b > rho * c_s > 0
    assert c_s > rho * c_b > 0
    return (c_s - rho * c_b) / ((c_b + c_s) * (1 - rho))


def test_a_corpus_is_ranked_with_the_weight_of_the_next_one() -> None:
    b = (3.0, 2.0, 1.0)
    s = {"A": (2.0, 2.5, 0.0), "B": (2.0, 0.5, 1.8), "C": (1.5, 0.2, 1.4)}
    grades = {"A": (1, 1, 0), "B": (1, 0, 0), "C": (2, 0, 1)}
    corpora = [
        corpus(name, retriever=b, margins=(0.0, 1.0, 2.0), states=(0.0, 0.0, 1.0), grades=grades[name])
        for name in "ABC"
    ]
    scores = [np.array(s[name]) for name in "ABC"]
    weights = {name: by_hand(list(b), list(s[name]), [float(g) for g in grades[name]]) for name in "ABC"}
    assert [round(weights[name], 3) for name in "ABC"] == [0.703, 0.386, 0.662]
    assert [closed_form_weight(*each) for each in zip(corpora, scores, strict=True)] == pytest.approx(
        list(weights.values())
    )
    # A is ranked with B's, B with C's, C, the last, with A's.
    assert cyclic_weights(corpora, scores) == pytest.approx([weights["B"], weights["C"], weights["A"]])


def test_the_label_free_weight_recovers_the_one_factor_model() -> None:
    c_b, c_s, c_t = 0.4, 0.6, 0.7
    weight, beyond = label_free_weight(np.array([c_b * c_t, c_s * c_t, c_b * c_s]))
    rho = c_b * c_s
    assert not beyond
    assert weight == pytest.approx((c_s - rho * c_b) / ((c_b + c_s) * (1 - rho)))


def test_a_label_free_weight_beyond_the_model_is_taken_at_its_edge() -> None:
    weight, beyond = label_free_weight(np.array([0.3, 0.95, 0.5]))  # c_s = √(0.5·0.95/0.3) > 1
    assert beyond
    assert weight == pytest.approx(1.0)  # with c_s = 1 the retriever has nothing to add
