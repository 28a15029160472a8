"""A reranking task of MTEB over a folder of judged pages, through `mteb.evaluate`; nothing is downloaded.

    ridgerank miniature draw --out drawn --corpus alder
    ridgerank index drawn/documents --store drawn/pages --calibrate \
        --backbone mini-qwen --retriever mini-colqwen
    python -m benchmarks.mteb_task --corpus drawn --store drawn/pages [--out results/mteb_task.json]

Any folder with `queries.jsonl` and `qrels.trec` will do, over a calibrated store of its pages. The candidates
are those of the store's retriever. Needs `pip install 'ridgerank[mteb]'`.
"""

import argparse
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import Any

import mteb
from datasets import Dataset
from mteb.abstasks.retrieval import AbsTaskRetrieval
from mteb.abstasks.retrieval_dataset_loaders import RetrievalSplitData
from mteb.abstasks.task_metadata import TaskMetadata

from benchmarks.report import publish
from ridgerank.adapters.mteb import PageCrossEncoderModel
from ridgerank.evaluation.metrics import evaluate
from ridgerank.ranking.reranker import CANDIDATES, Reranker
from ridgerank.records import Candidate, Query
from ridgerank.runs.queries import read_queries
from ridgerank.runs.run import Qrels, Run
from ridgerank.runs.trec import read_qrels
from ridgerank.store.rerender import rerender_pages

SPLIT = "test"


class JudgedPagesReranking(AbsTaskRetrieval):  # type: ignore[misc]
    """Judged queries, the images of all pages of a store, and the candidates to rerank."""

    metadata = TaskMetadata(
        name="JudgedPagesReranking",
        description="Pages of a folder, reranked for its queries.",
        dataset={"path": "local", "revision": "local"},
        type="Any2AnyReranking",
        category="t2i",
        modalities=["text", "image"],
        eval_splits=[SPLIT],
        eval_langs=["eng-Latn"],
        main_score="ndcg_at_5",
    )

    def __init__(
        self,
        reranker: Reranker,
        queries: Sequence[Query],
        qrels: Qrels,
        candidates: Mapping[str, Iterable[str]],
    ) -> None:
        """`qrels` and `candidates` name pages by reference, for each query id."""
        super().__init__()
        store = reranker.store
        batches = rerender_pages(store, store.page_ids(), max_pixels=reranker.backbone.page_budget)
        corpus = [{"id": page.reference, "image": page.image} for page in chain.from_iterable(batches)]
        data = RetrievalSplitData(
            corpus=Dataset.from_list(corpus),
            queries=Dataset.from_list([{"id": query.query_id, "text": query.text} for query in queries]),
            relevant_docs={query_id: dict(grades) for query_id, grades in qrels.items()},
            top_ranked={query_id: list(pages) for query_id, pages in candidates.items()},
        )
        self.dataset = {"default": {SPLIT: data}}
        self.data_loaded = True


def measure(reranker: Reranker, queries: Sequence[Query], qrels: Qrels, *, k: int) -> dict[str, Any]:
    """What MTEB measures, beside what `ridgerank evaluate` measures on the same candidates."""
    retrieved = reranker.retriever.search_many([query.text for query in queries], k)
    first_stage = {
        query.query_id: _by_reference(reranker, candidates)
        for query, candidates in zip(queries, retrieved, strict=True)
    }
    task = JudgedPagesReranking(reranker, queries, qrels, first_stage)
    result = mteb.evaluate(PageCrossEncoderModel(reranker), task, cache=None, show_progress_bar=False)
    (task_result,) = result.task_results
    ranked = {
        query.query_id: {page.reference: page.fused_score for page in ranking.pages}
        for query, ranking in zip(
            queries, reranker.rank_many([query.text for query in queries], retrieved), strict=True
        )
    }
    return {
        "mteb": version("mteb"),
        "model": result.model_name,
        "queries": len(queries),
        "pages": len(reranker.store),
        "candidates": k,
        "mteb_ndcg_at_5": 100 * task_result.get_score(),
        "ridgerank_ndcg_at_5": _ndcg_at_5(ranked, qrels),
        "retriever_ndcg_at_5": _ndcg_at_5(first_stage, qrels),
    }


def _by_reference(reranker: Reranker, candidates: Sequence[Candidate]) -> dict[str, float]:
    references = reranker.store.references([candidate.page_id for candidate in candidates])
    return dict(zip(references, (candidate.score for candidate in candidates), strict=True))


def _ndcg_at_5(scores: Mapping[str, Mapping[str, float]], qrels: Qrels) -> float:
    return evaluate(Run.of_dict(scores), qrels, ("nDCG@5",)).means()["nDCG@5"]


def main() -> None:
    """Evaluate, and print both figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--store", required=True)
    parser.add_argument("--k", type=int, default=CANDIDATES)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    qrels = read_qrels(arguments.corpus / "qrels.trec")
    queries = [query for query in read_queries(arguments.corpus / "queries.jsonl") if query.query_id in qrels]
    with Reranker.open(arguments.store) as reranker:
        publish(measure(reranker, queries, qrels, k=arguments.k), arguments.out)


if __name__ == "__main__":
    main()
