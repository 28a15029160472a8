"""Pools of every depth, readouts frozen (§4.5, §B.5): first family, first retriever."""

from dataclasses import dataclass

import numpy as np

from experiments.baselines.base import Unavailable
from experiments.baselines.hybrid import Fusion, by_aggregation, by_rank, by_standard_score, picked_weight
from experiments.baselines.load import Role
from experiments.protocols.scored_corpus import Scored, next_in_cycle
from experiments.reproduce.analysis import Analysis
from experiments.reproduce.protocol.cyclic_weights import cyclic_weights
from ridgerank.fusion.standardize import fuse
from ridgerank.ragged import Floats, Ragged


@dataclass(frozen=True, slots=True, eq=False)
class DepthStudy:
    """nDCG@5, macro over corpora, by arm and depth."""

    depths: tuple[int, ...]
    quality: dict[str, tuple[float, ...]]
    """Key of an arm → one figure a depth."""
    why: dict[str, str]
    """Key of an arm that could not run → why."""


def study_depths(analysis: Analysis) -> DepthStudy:
    """Re-rank the first K candidates for every K; weights are read anew at each."""
    return analysis.once("depths", lambda: _study(analysis))


def _study(analysis: Analysis) -> DepthStudy:
    settings, lab = analysis.settings, analysis.lab
    first = settings.retrievers[0]
    sites = lab.sites(0)
    pages = min(lab.pools(site, first).page_ids.shape[1] for site in sites)
    depths = tuple(depth for depth in settings.depths if depth <= pages)
    pools = {depth: [_pool(analysis, number, depth) for number in range(len(sites))] for depth in depths}
    quality: dict[str, tuple[float, ...]] = {
        "retriever": tuple(
            float(np.mean([own.ndcg(own.retriever).mean() for own in pools[depth]])) for depth in depths
        )
    }
    why: dict[str, str] = {}
    others: list[tuple[str, Role, Fusion]] = [
        ("RRF", "text retriever", by_rank),
        ("Score Aggregation", "text retriever", by_aggregation),
        ("text reranker", "text reranker", by_standard_score),
    ]
    for key, role, fusion in others:
        found = [lab.arm(site, first, role, candidates=settings.deepest) for site in sites]
        missing = next((own for own in found if isinstance(own, Unavailable)), None)
        if missing is not None:
            why[key] = missing.why
            continue
        scores = [own.scores for own in found if not isinstance(own, Unavailable)]
        quality[key] = tuple(_picked(pools[depth], scores, depth, fusion) for depth in depths)
    for backbone in settings.backbones:
        scores = [_deep_scores(analysis, number, backbone) for number in range(len(sites))]
        quality[f"ours {backbone}"] = tuple(_closed_form(pools[depth], scores, depth) for depth in depths)
    return DepthStudy(depths, quality, why)


def _pool(analysis: Analysis, number: int, depth: int) -> Scored:
    site = analysis.lab.sites(0)[number]
    pools = analysis.lab.pools(site, analysis.settings.retrievers[0])
    names = analysis.references(site)
    corpus = analysis.lab.corpus(site)
    ids = pools.page_ids[:, :depth]
    return Scored(
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


def _deep_scores(analysis: Analysis, number: int, backbone: str) -> Floats:
    """(queries, depth): s of all candidates, by the readout that left the corpus out."""
    site, first = analysis.lab.sites(0)[number], analysis.settings.retrievers[0]
    vector = analysis.readouts(backbone).vectors[number]
    near = analysis.lab.states(site, backbone, first).states @ vector
    far = analysis.lab.deeper(site, backbone, first) @ vector
    return np.concatenate([near, far], axis=1)


def _closed_form(pools: list[Scored], scores: list[Floats], depth: int) -> float:
    cut = [own[:, :depth].ravel() for own in scores]
    weights = cyclic_weights(pools, cut)
    found = [
        pool.ndcg(fuse(pool.retriever, own, weight, pool.lists)).mean()
        for pool, own, weight in zip(pools, cut, weights, strict=True)
    ]
    return float(np.mean(found))


def _picked(pools: list[Scored], scores: list[Floats], depth: int, fusion: Fusion) -> float:
    cut = [own[:, :depth].ravel() for own in scores]
    weights = [picked_weight(fusion, pool, own) for pool, own in zip(pools, cut, strict=True)]
    found = [
        pool.ndcg(fusion(pool.retriever, own, next_in_cycle(weights, number), pool.lists)).mean()
        for number, (pool, own) in enumerate(zip(pools, cut, strict=True))
    ]
    return float(np.mean(found))
