"""Pools of every depth, readouts frozen (§4.5, §B.5): first family, first retriever."""

from collections.abc import Sequence
from dataclasses import dataclass

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
    cyclic_weights,
)
from experiments.reproduce.analysis import Analysis
from experiments.reproduce.experiment import CorpusKey
from ridgerank.fusion.standardize import fuse_scores
from ridgerank.ragged import Floats, Ragged


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
    return analysis.cached("depths", lambda: _study(analysis))


def _study(analysis: Analysis) -> DepthStudy:
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
