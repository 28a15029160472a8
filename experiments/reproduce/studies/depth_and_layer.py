"""Pools of every depth (§4.5, §B.5), and the readout at every layer under every λ (§4.3, §4.5)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from experiments.baselines.base import Unavailable
from experiments.baselines.fusion import fuse_by_min_max, fuse_by_rank
from experiments.baselines.load import BaselineRole
from experiments.protocols import (
    Fusion,
    ScoredCorpus,
    WeightRule,
    best_weight,
    closed_form_weight,
    corpus_moments,
    cyclic_weights,
    measure_agreement,
)
from experiments.reproduce.analysis import Analysis
from experiments.reproduce.experiment import CorpusKey
from ridgerank.fusion.standardize import fuse_scores
from ridgerank.ragged import Floats, Ragged
from ridgerank.readout import PENALTIES, choose_penalty, merge_moments, ridge_path


@dataclass(frozen=True, slots=True, eq=False)
class DepthStudy:
    """nDCG@5, macro over corpora, by method and depth."""

    depths: tuple[int, ...]
    quality: dict[str, tuple[float, ...]]
    """Key of a method → its nDCG@5 at each depth."""
    why: dict[str, str]
    """Key of a baseline that could not run → why."""


def study_depths(analysis: Analysis) -> DepthStudy:
    """Rerank the first K candidates for every K; weights are read anew at each."""
    return analysis.cached("depths", lambda: _study_depths(analysis))


def _study_depths(analysis: Analysis) -> DepthStudy:
    settings, experiment = analysis.settings, analysis.experiment
    first = settings.retrievers[0]
    corpus_keys = experiment.corpus_keys(0)
    pages = min(experiment.pools(corpus_key, first).page_ids.shape[1] for corpus_key in corpus_keys)
    depths = tuple(depth for depth in settings.depths if depth <= pages)
    pools = {depth: [_pool(analysis, corpus_key, depth) for corpus_key in corpus_keys] for depth in depths}
    quality: dict[str, tuple[float, ...]] = {
        "retriever": tuple(
            float(np.mean([pool.ndcg(pool.retriever).mean() for pool in pools[depth]])) for depth in depths
        )
    }
    why: dict[str, str] = {}
    baselines: list[tuple[str, BaselineRole, Fusion]] = [
        ("RRF", "text retriever", fuse_by_rank),
        ("Score Aggregation", "text retriever", fuse_by_min_max),
        ("text reranker", "text reranker", fuse_scores),
    ]
    for key, role, fusion in baselines:
        scored = [
            experiment.baseline_scores(corpus_key, first, role, candidates=settings.deepest)
            for corpus_key in corpus_keys
        ]
        missing = next((baseline for baseline in scored if isinstance(baseline, Unavailable)), None)
        if missing is not None:
            why[key] = missing.why
            continue
        scores = [baseline.scores for baseline in scored if not isinstance(baseline, Unavailable)]
        rule = best_weight(fusion)
        quality[key] = tuple(_quality(pools[depth], scores, depth, rule, fusion) for depth in depths)
    for backbone in settings.backbones:
        scores = [_deep_scores(analysis, corpus_key, backbone) for corpus_key in corpus_keys]
        quality[f"ours {backbone}"] = tuple(
            _quality(pools[depth], scores, depth, closed_form_weight, fuse_scores) for depth in depths
        )
    return DepthStudy(depths, quality, why)


def _pool(analysis: Analysis, corpus_key: CorpusKey, depth: int) -> ScoredCorpus:
    """The first `depth` candidates with the retriever's scores, without states or margins."""
    pools = analysis.experiment.pools(corpus_key, analysis.settings.retrievers[0])
    names = analysis.references(corpus_key)
    corpus = analysis.experiment.corpus(corpus_key)
    ids = pools.page_ids[:, :depth]
    return ScoredCorpus(
        corpus=corpus.name,
        queries=tuple(query.query_id for query in corpus.queries),
        pages=tuple(names[page_id] for page_id in ids.ravel().tolist()),
        lists=Ragged.of_lengths([depth] * len(ids)),
        retriever=pools.scores[:, :depth].ravel(),
        margins=np.zeros(ids.size),
        states=np.empty((ids.size, 0)),
        lens=np.zeros(ids.size),
        qrels=corpus.qrels,
    )


def _deep_scores(analysis: Analysis, corpus_key: CorpusKey, backbone: str) -> Floats:
    """(queries, depth): s of all candidates, by the readout that left the corpus out."""
    first = analysis.settings.retrievers[0]
    vector = analysis.readouts(backbone).vectors[corpus_key.number]
    near = analysis.experiment.states(corpus_key, backbone, first).states @ vector
    far = analysis.experiment.deeper(corpus_key, backbone, first) @ vector
    return np.concatenate([near, far], axis=1)


def _quality(
    pools: Sequence[ScoredCorpus], scores: Sequence[Floats], depth: int, rule: WeightRule, fusion: Fusion
) -> float:
    """nDCG@5, macro over corpora, of the first `depth` candidates fused at the weights of a rule."""
    shallow = [values[:, :depth].ravel() for values in scores]
    weights = cyclic_weights(pools, shallow, rule)
    means = [
        pool.ndcg(fusion(pool.retriever, values, weight, pool.lists)).mean()
        for pool, values, weight in zip(pools, shallow, weights, strict=True)
    ]
    return float(np.mean(means))


@dataclass(frozen=True, slots=True, eq=False)
class LayerStudy:
    """One backbone, layer by layer."""

    corpora: tuple[str, ...]
    quality: Floats
    """(layers,): nDCG@5, macro over corpora, λ by the teacher's rule at each layer."""
    penalties: tuple[float, ...]
    """(layers,): that λ."""
    agreement: Floats
    """(corpora, layers, λ): r, mean correlation of readout and margin."""
    relevance: Floats
    """(corpora, layers, λ): c_s, mean correlation of readout and relevance."""

    def alignment(self) -> list[float]:
        """Correlation of r and c_s over all layers and λ, corpus by corpus."""
        return [
            float(np.corrcoef(r.ravel(), c.ravel())[0, 1])
            for r, c in zip(self.agreement, self.relevance, strict=True)
        ]


def study_layers(analysis: Analysis, backbone: str) -> LayerStudy:
    """Fit and score at every layer."""
    return analysis.cached(("layers", backbone), lambda: _study(analysis, backbone))


def _study(analysis: Analysis, backbone: str) -> LayerStudy:
    samples, weight = analysis.samples(backbone), analysis.settings.sample_weight
    states = [
        analysis.experiment.layers(corpus_key, backbone, analysis.sample[corpus_key.number])
        for corpus_key in analysis.experiment.corpus_keys(0)
    ]
    layers = states[0].shape[2]
    quality, penalties, agreement, relevance = [], [], [], []
    for layer in range(layers):
        at_layer = [
            replace(sample, states=values[:, :, layer].reshape(len(sample.pages), -1).astype(np.float64))
            for sample, values in zip(samples, states, strict=True)
        ]
        moments = {sample.corpus: corpus_moments(sample) for sample in at_layer}
        deployed = choose_penalty(moments).deployed
        deployed_row = int(np.flatnonzero(deployed == PENALTIES)[0])
        ndcg, r, c_s = [], [], []
        for sample in at_layer:
            others = [name for name in moments if name != sample.corpus]
            scores_by_penalty = ridge_path(merge_moments(moments, others)) @ sample.states.T
            ndcg.append(float(sample.fused_ndcg(scores_by_penalty[deployed_row], weight).mean()))
            agreed = [
                measure_agreement(scores, sample.margins, sample.relevance, sample.lists)
                for scores in scores_by_penalty
            ]
            r.append([float(each.teacher.mean()) for each in agreed])
            c_s.append([float(each.relevance.mean()) for each in agreed])
        quality.append(float(np.mean(ndcg)))
        penalties.append(deployed)
        agreement.append(r)
        relevance.append(c_s)
    return LayerStudy(
        corpora=tuple(sample.corpus for sample in samples),
        quality=np.array(quality),
        penalties=tuple(penalties),
        agreement=np.array(agreement).transpose(1, 0, 2),
        relevance=np.array(relevance).transpose(1, 0, 2),
    )
