"""Leaving one corpus out: what a corpus is judged by never saw it."""

from dataclasses import replace

import numpy as np
import pytest

from experiments.protocols.held_out import hold_out_each
from experiments.protocols.scored_corpus import ScoredCorpus
from ridgerank.ragged import Ragged

QUERIES, PAGES, DIM = 30, 8, 12


def make_corpus(name: str, seed: int, *, noise: float = 0.1) -> ScoredCorpus:
    """Pages whose states hide relevance in one direction, the same in every corpus."""
    chance = np.random.default_rng(seed)
    direction = np.random.default_rng(99).normal(size=DIM)
    states = chance.normal(size=(QUERIES * PAGES, DIM))
    margins = states @ direction + noise * chance.normal(size=len(states))
    lists = Ragged.of_lengths([PAGES] * QUERIES)
    qrels = {}
    for number in range(QUERIES):
        of_query = margins[number * PAGES : (number + 1) * PAGES]
        relevant = of_query > np.sort(of_query)[-3]
        qrels[f"q{number}"] = {f"p{page}": int(grade) for page, grade in enumerate(relevant)}
    return ScoredCorpus(
        corpus=name,
        queries=tuple(qrels),
        pages=tuple(f"p{page}" for _ in range(QUERIES) for page in range(PAGES)),
        lists=lists,
        retriever=margins + 4 * chance.normal(size=len(states)),
        margins=margins,
        states=states,
        lens=chance.normal(size=len(states)),
        qrels=qrels,
    )


@pytest.fixture
def corpora() -> list[ScoredCorpus]:
    return [make_corpus(name, seed) for seed, name in enumerate(("one", "two", "three", "four"))]


def test_a_readout_recovers_what_states_hold(corpora: list[ScoredCorpus]) -> None:
    held_out, _ = hold_out_each(corpora)
    for each in held_out:
        ndcg = {name: values.mean() for name, values in each.ndcg_by_method().items()}
        assert each.agreement > 0.99
        assert ndcg["readout"] > ndcg["retriever"] + 10
        assert ndcg["logit lens"] < ndcg["readout"] - 10
        assert ndcg["ridgerank"] == pytest.approx(ndcg["cross encoder"], abs=3)


def test_the_margins_of_a_corpus_do_not_reach_its_own_readout(corpora: list[ScoredCorpus]) -> None:
    before, _ = hold_out_each(corpora)
    changed = [replace(corpora[0], margins=corpora[0].margins * 1.01), *corpora[1:]]
    after, _ = hold_out_each(changed)
    np.testing.assert_array_equal(before[0].readout_scores, after[0].readout_scores)
    assert not np.array_equal(before[1].readout_scores, after[1].readout_scores)


def test_judgements_of_a_corpus_do_not_reach_its_own_weight(corpora: list[ScoredCorpus]) -> None:
    before, _ = hold_out_each(corpora)
    unjudged = replace(corpora[0], qrels={query: {"p0": 1} for query in corpora[0].queries})
    after, _ = hold_out_each([unjudged, *corpora[1:]])
    assert before[0].weight == after[0].weight
    assert before[3].weight != after[3].weight  # the one before it in the cycle reads there


def test_the_label_free_weight_reads_no_judgement(corpora: list[ScoredCorpus]) -> None:
    before, _ = hold_out_each(corpora)
    unjudged = [replace(each, qrels={query: {"p0": 1} for query in each.queries}) for each in corpora]
    after, _ = hold_out_each(unjudged)
    assert [repr(each.label_free) for each in before] == [repr(each.label_free) for each in after]
