import numpy as np

from experiments.protocols.labelled_penalty import LabelledCorpus, choose_penalty_by_relevance
from ridgerank.evaluation.metrics import evaluate
from ridgerank.evaluation.simulation import World, simulate
from ridgerank.fusion.join import JoinedRuns, join
from ridgerank.fusion.standardize import fuse
from ridgerank.ragged import Floats
from ridgerank.readout.moments import CenteredMoments
from ridgerank.readout.penalty import merge_moments, nested_folds
from ridgerank.readout.ridge import ridge_path

DIM = 5
PENALTIES = np.array([1.0, 100.0, 1e4])


def corpus(seed: int) -> LabelledCorpus:
    """States whose first direction is the teacher's score under noise."""
    sample = simulate(World(), queries=12, seed=seed)
    both: JoinedRuns = join(sample.run(sample.retriever), sample.run(sample.teacher))
    generator = np.random.default_rng(seed)
    states: Floats = generator.standard_normal((both.lists.members, DIM))
    states[:, 0] += both.scores[1]
    moments = CenteredMoments(DIM)
    for start, end in zip(both.lists.offsets[:-1], both.lists.offsets[1:], strict=True):
        moments.add(states[start:end], both.scores[1, start:end])
    return LabelledCorpus(both, states, sample.qrels(), moments)


def test_the_labelled_rule_maximizes_ndcg_on_the_validation_corpus() -> None:
    corpora = {name: corpus(seed) for seed, name in enumerate("abcd")}
    choice = choose_penalty_by_relevance(corpora, weight=0.85, penalties=PENALTIES)
    for fold in nested_folds(list(corpora)):
        moments = {name: one.moments for name, one in corpora.items()}
        path = ridge_path(merge_moments(moments, fold.fitted), PENALTIES)
        held = corpora[fold.validation]
        b, lists = held.retriever.scores[0], held.retriever.lists
        runs = [held.retriever.run(fuse(b, held.states @ a, 0.85, lists)) for a in path]
        quality = [evaluate(run, held.qrels).means()["nDCG@5"] for run in runs]
        assert quality[list(PENALTIES).index(choice.chosen[fold.held_out])] == max(quality)
        np.testing.assert_allclose(-choice.errors[fold.held_out], quality)
