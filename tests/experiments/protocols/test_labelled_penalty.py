import numpy as np

from experiments.protocols import ScoredCorpus, choose_penalty_by_relevance, corpus_moments
from experiments.simulation import World, simulate
from ridgerank.fusion.standardize import fuse_scores
from ridgerank.readout.ridge import merge_moments, nested_folds, ridge_path

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
