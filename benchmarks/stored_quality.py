"""How well pages rank that are stored in several ways, compared on the same lists.

`benchmarks.storage` measures with it. Every page is encoded once for all ways and leaves a file with its
targets and states: an interrupted run goes on from there.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from experiments.datasets.base import QUERIES, read_corpus
from experiments.datasets.load import load_miniature
from experiments.protocols import ScoredCorpus, cyclic_weights, fit_fold_readouts, recovery
from experiments.reproduce.experiment import Experiment
from experiments.reproduce.settings import ExperimentSettings
from experiments.reproduce.stages.checkpoint import SilentProgress, save_arrays, short_digest
from miniature import BACKBONES, RETRIEVERS
from ridgerank.backbones.base import Backbone
from ridgerank.backbones.decoder import Prefix, PrefixBatch
from ridgerank.documents.render import PageRef, list_pages, render_pages
from ridgerank.fusion.correlations import correlation
from ridgerank.ragged import Floats, Ragged
from ridgerank.records import Page, Query, State, Target, document_name
from ridgerank.retrievers.bm25 import BM25
from ridgerank.store.codec import StoredPrefixes, even_indices
from ridgerank.store.layout import PackedPrefix
from ridgerank.store.page_filter import PageSelection
from ridgerank.trec import Qrels

SHOWN, FITTED = ("alder", "birch", "cedar", "damson"), ("elder", "fir")
"""Corpora of the miniature that are ranked, and those whose pages fit a basis."""
CANDIDATES = 20
_PARTS = 4

Way = Callable[[Prefix], tuple[PackedPrefix, int]]
"""A page as it comes back from a store, and its bytes there."""


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """Lists that are ranked by a readout fitted on those of the other parts."""

    scored: ScoredCorpus
    """Margins and states are zeros until pages were run."""
    texts: Sequence[str]
    """Of the queries."""
    contents: Mapping[str, Any]
    """What the model reads of each page, by name."""


def read_pages(backbone: Backbone, documents: Iterable[Path], sampled: int | None = None) -> dict[str, Any]:
    """What the model reads of each page, by name; or of so many, spread over the documents."""
    refs = [ref for ref in list_pages(documents) if isinstance(ref, PageRef)]
    if sampled is not None:
        refs = [refs[row] for row in even_indices(len(refs), min(sampled, len(refs)))]
    pages = render_pages(refs, max_pixels=backbone.page_budget)
    return {page.reference: backbone.content(page) for page in pages if isinstance(page, Page)}


def draw_parts(backbone: Backbone, work: Path, *, sampled: int) -> tuple[list[Part], list[Any]]:
    """The miniature's first corpora behind its first retriever; pages of two others to fit on."""
    settings = ExperimentSettings(
        families=tuple(load_miniature(work / "corpora", corpora=frozenset((*SHOWN, *FITTED)))),
        backbones=BACKBONES[:1],
        retrievers=RETRIEVERS[:1],
        device="cpu",
        depths=(),
    )
    experiment = Experiment(settings, work, SilentProgress())
    parts = []
    for key in experiment.corpus_keys(0):
        corpus, names = experiment.corpus(key), experiment.references(key)
        pools = experiment.pools(key, RETRIEVERS[0])
        found = [pools.of(number, CANDIDATES) for number in range(len(corpus.queries))]
        lists = [[(names[page.page_id], page.score) for page in candidates] for candidates in found]
        contents = read_pages(backbone, corpus.documents)
        parts.append(_make_part(corpus.name, corpus.queries, lists, corpus.qrels, contents))
    others = chain.from_iterable(experiment.corpus(key).documents for key in experiment.corpus_keys(1))
    return parts, list(read_pages(backbone, others, sampled).values())


def split_questions(backbone: Backbone, folder: Path, count: int) -> list[Part]:
    """Questions about real PDFs behind BM25, each over its document, in parts that share no document."""
    contents = read_pages(backbone, [folder / "documents"])
    retriever = BM25(cast(Any, SimpleNamespace(uri=str(folder), texts=lambda: contents)))
    rows = map(json.loads, (folder / QUERIES).read_text(encoding="utf-8").splitlines())
    about = {str(row["query_id"]): str(row.get("document", row["query_id"])) for row in rows}
    corpus, _ = read_corpus(folder, name=folder.name)
    rows_taken = even_indices(len(corpus.queries), min(count, len(corpus.queries)))
    queries = [corpus.queries[row] for row in rows_taken]
    documents = sorted({about[query.query_id] for query in queries})
    parts = []
    for number in range(_PARTS):
        asked = [query for query in queries if documents.index(about[query.query_id]) % _PARTS == number]
        lists = []
        for query in asked:
            inside = {page for page in contents if document_name(page) == about[query.query_id]}
            pages = PageSelection(frozenset(inside or contents), "")
            [found] = retriever.search_within([query.text], CANDIDATES, pages)
            lists.append([(page.page_id, page.score) for page in found])
        parts.append(_make_part(f"part {number + 1}", asked, lists, corpus.qrels, contents))
    return parts


def _make_part(
    name: str,
    queries: Sequence[Query],
    lists: Sequence[Sequence[tuple[str, float]]],
    qrels: Qrels,
    contents: Mapping[str, Any],
) -> Part:
    pages, scores = zip(*chain.from_iterable(lists), strict=True)
    zeros, ids = np.zeros(len(pages)), tuple(query.query_id for query in queries)
    ragged = Ragged.of_lengths(map(len, lists))
    scored = ScoredCorpus(name, ids, pages, ragged, np.array(scores), zeros, zeros[:, None], zeros, qrels)
    return Part(scored, [query.text for query in queries], contents)


def run_part(
    part: Part, backbone: Backbone, ways: Sequence[Way], names: Sequence[str], exit_layer: int, work: Path
) -> dict[str, Floats]:
    """`targets`, `whole` (states in full precision), `states N` and `bytes N` of each way, by candidate."""
    read: Target = "likelihood" if backbone.reads_text else "margin"
    state: State = "mean" if backbone.reads_text else "last"
    found: dict[str, Floats] = {}
    query_of, pages = part.scored.lists.list_numbers(), np.array(part.scored.pages)
    folder = work / short_digest([*names, *part.texts])
    for number, page in enumerate(sorted(set(part.scored.pages))):
        path, members = folder / f"{number:05d}.npz", np.flatnonzero(pages == page)
        if not path.exists():
            queries = [part.texts[row] for row in query_of[members]]
            run = partial(backbone.states, queries, state=state)
            [prefix] = backbone.encode([part.contents[page]], exit_layer=backbone.geometry.layers)
            targets = backbone.targets(queries, PrefixBatch([prefix]), targets=[read])[read]
            shallow = replace(prefix, keys=prefix.keys[:exit_layer], values=prefix.values[:exit_layer])
            arrays = {"targets": targets.numpy(), "whole": run(PrefixBatch([shallow])).numpy()}
            for row, way in enumerate(ways):
                packed, nbytes = way(shallow)
                arrays[f"states {row}"] = run(StoredPrefixes([packed])).numpy()
                arrays[f"bytes {row}"] = np.tile([nbytes, packed.nbytes], (len(members), 1))
            save_arrays(path, arrays)
        with np.load(path) as kept:
            for name, array in kept.items():
                found.setdefault(name, np.zeros((len(pages), *array.shape[1:])))[members] = array
    return found


def rank_quality(parts: Sequence[Part], found: Sequence[Mapping[str, Floats]], row: int) -> dict[str, float]:
    """What one way keeps of the states, r with the full model, and the share of the full model's gain."""
    corpora = [
        replace(part.scored, margins=of["targets"], states=of[f"states {row}"])
        for part, of in zip(parts, found, strict=True)
    ]
    whole = [replace(part.scored, states=of["whole"]) for part, of in zip(parts, found, strict=True)]
    ours, exact = _center(corpora), _center(whole)
    readouts = fit_fold_readouts(corpora).vectors
    scores = [corpus.states @ readout for corpus, readout in zip(corpora, readouts, strict=True)]
    each = zip(corpora, scores, strict=True)
    r = np.concatenate([correlation(of, corpus.margins, corpus.lists) for corpus, of in each])
    retriever = float(np.mean([corpus.ndcg(corpus.retriever).mean() for corpus in corpora]))
    fused, full = _fuse(corpora, scores), _fuse(corpora, [corpus.margins for corpus in corpora])
    return {
        "states_kept": round(1 - float(((ours - exact) ** 2).sum() / (exact**2).sum()), 3),
        "agreement": round(float(r.mean()), 3),
        "ndcg_at_5": round(fused, 2),
        "recovery_percent": round(recovery(retriever, fused, full), 1),
    }


def _center(corpora: Sequence[ScoredCorpus]) -> Floats:
    """States of all candidates, centred over those of a query."""
    lists = chain.from_iterable(np.split(corpus.states, corpus.lists.offsets[1:-1]) for corpus in corpora)
    centred: Floats = np.concatenate([states - states.mean(axis=0) for states in lists])
    return centred


def _fuse(corpora: Sequence[ScoredCorpus], scores: Sequence[Floats]) -> float:
    """nDCG@5 fused with the retriever, at the weight of the next corpus, macro over corpora."""
    each = zip(corpora, scores, cyclic_weights(corpora, scores), strict=True)
    return float(np.mean([corpus.fused_ndcg(of, weight).mean() for corpus, of, weight in each]))
