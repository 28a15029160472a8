"""How §4 evaluates, on samples of known truth."""

import numpy as np
import pytest

from experiments.protocols import (
    GRID,
    ScoredCorpus,
    WeightSweep,
    choose_penalty_by_relevance,
    corpus_moments,
    measure_agreement,
    relevance_floor,
    sweep_weights,
)
from experiments.simulation import World, simulate
from ridgerank.evaluation.metrics import evaluate
from ridgerank.fusion.runs import fuse_runs, join
from ridgerank.fusion.standardize import fuse_scores
from ridgerank.readout import merge_moments, nested_folds, ridge_path


def test_a_readout_that_is_its_teacher_has_the_teachers_relevance_as_floor() -> None:
    sample = simulate(World(), queries=50, seed=1)
    agreement = measure_agreement(sample.teacher, sample.teacher, sample.grades, sample.lists)
    np.testing.assert_allclose(agreement.teacher, 1.0)
    np.testing.assert_allclose(agreement.floor, agreement.relevance, atol=1e-6)


def test_no_three_vectors_break_the_floor_of_relevance() -> None:
    vectors = np.random.default_rng(0).standard_normal((5000, 3, 4))
    vectors -= vectors.mean(axis=2, keepdims=True)
    vectors /= np.linalg.norm(vectors, axis=2, keepdims=True)
    gram = vectors @ vectors.transpose(0, 2, 1)
    r, c_s, c_t = gram[:, 0, 1], gram[:, 0, 2], gram[:, 1, 2]
    assert (c_s >= relevance_floor(r, c_t) - 1e-12).all()


DIM = 5
PENALTIES = np.array([1.0, 100.0, 1e4])


def make_corpus(name: str, seed: int) -> ScoredCorpus:
    """States whose first direction is the teacher's score under noise."""
    sample = simulate(World(), queries=12, seed=seed)
    qrels = sample.qrels()
    states = np.random.default_rng(seed).standard_normal((sample.lists.members, DIM))
    states[:, 0] += sample.teacher
    return ScoredCorpus(
        corpus=name,
        queries=tuple(qrels),
        pages=tuple(page for judged in qrels.values() for page in judged),
        lists=sample.lists,
        retriever=sample.retriever,
        margins=sample.teacher,
        states=states,
        lens=np.zeros(sample.lists.members),
        qrels=qrels,
    )


def test_the_labelled_rule_maximizes_ndcg_on_the_validation_corpus() -> None:
    corpora = {name: make_corpus(name, seed) for seed, name in enumerate("abcd")}
    choice = choose_penalty_by_relevance(list(corpora.values()), weight=0.85, penalties=PENALTIES)
    moments = {name: corpus_moments(corpus) for name, corpus in corpora.items()}
    for held_out, validation, fitted in nested_folds(list(corpora)):
        path = ridge_path(merge_moments(moments, fitted), PENALTIES)
        held = corpora[validation]
        quality = [
            held.ndcg(fuse_scores(held.retriever, held.states @ readout, 0.85, held.lists)).mean()
            for readout in path
        ]
        assert quality[list(PENALTIES).index(choice.chosen[held_out])] == max(quality)
        np.testing.assert_allclose(-choice.errors[held_out], quality)


def test_the_sweep_evaluates_every_weight_and_picks_the_best() -> None:
    sample = simulate(World(), queries=40, seed=0)
    joined, qrels = join(sample.run(sample.retriever), sample.run(sample.reranker)), sample.qrels()
    sweep = sweep_weights(lambda w: evaluate(fuse_runs(joined, w), qrels, ("nDCG@5",)).of("nDCG@5"))
    by_hand = [evaluate(fuse_runs(joined, float(w)), qrels).means()["nDCG@5"] for w in GRID]
    np.testing.assert_allclose(sweep.means, by_hand)
    assert sweep.best == GRID[int(np.argmax(by_hand))]
    assert sweep.quality.shape == (21, 40)


def test_the_empirical_optimum_is_the_mean_of_weights_within_one_point_of_the_best() -> None:
    curve = WeightSweep(
        np.array([0.0, 0.25, 0.5, 0.75, 1.0]), np.array([[60.0], [69.5], [70.0], [69.0], [68.9]])
    )
    assert curve.best == 0.5
    assert curve.optimum == pytest.approx((0.25 + 0.5 + 0.75) / 3)
