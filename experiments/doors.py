"""What a reranker behind Qdrant gains through every door that clients come through (results/doors.json).

    python -m experiments.doors STORE FOLDER --embedder BGE --judge MINI --work WORK --out results/doors.json

A server of STORE is asked the judged questions of FOLDER (documents/, queries.jsonl, qrels.trec) as clients
do: over 20 pages, or chunks of 800 characters, that langchain-qdrant finds in Qdrant's local mode by the
vectors of BGE, an ONNX model; a query that names its `document` is asked within it. Answers of all folders
are kept in WORK and not asked for again: an interrupted run goes on.

A door that sends scores, or whose order is a retriever's, is compared with the caller's order, the others
with BM25 over the same documents; documents are resampled. The processor time of every tenth list is taken,
and that of MINI, a trained cross encoder in ONNX, over its chunks.
"""

import argparse
import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import cohere
import httpx
import numpy as np
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_qdrant import QdrantVectorStore
from qdrant_client import models

from benchmarks.serving import ready, serving
from experiments.baselines.onnx_models import BGE_QUERY, OnnxModel
from experiments.datasets.base import QUERIES, read_corpus
from experiments.weight_table import MEASURE, RETRIEVER, summarize
from ridgerank.atomic import replace_text_file
from ridgerank.evaluation.metrics import evaluate, group_by_document
from ridgerank.integrations.langchain import PageCompressor
from ridgerank.records import Query
from ridgerank.reranker.options import RerankerOptions
from ridgerank.retrievers.bm25 import BM25, score_texts
from ridgerank.trec import Run

CANDIDATES, CHUNK, OVERLAP, MIXED_TEXT, TIMEOUT_SECONDS, TIMED_EVERY = 20, 800, 100, 1500, 300, 10
TURNS = 4
COST = "processor seconds of a list"
UNKNOWN = ("gone.pdf#3", "absent.pdf#12", "")
JINA = "jina-reranker-v2-base-multilingual"
Row = dict[str, Any]


class Door(NamedTuple):
    """One way to ask."""

    pages: list[str]
    """Of each document its page, or the name of no page."""
    ask: Callable[[], Row]
    """Gives `order` (indices, best first), `scores`, and `reranked` where the answer has room for it."""
    texts: Sequence[str] = ()
    """Of the documents, if BM25 over them is to be beaten."""


def main() -> None:
    """Ask what was not asked yet, and write the result."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("store", help="a calibrated store of the documents of FOLDER")
    parser.add_argument("folder", type=Path, help="documents, queries.jsonl, qrels.trec")
    parser.add_argument("--embedder", type=Path, required=True, help="folder of model.onnx, tokenizer.json")
    parser.add_argument("--judge", type=Path, required=True, help="the same of a cross encoder")
    parser.add_argument("--work", type=Path, required=True, help="folder for answers, a file for each FOLDER")
    parser.add_argument("--out", type=Path, required=True, help="JSON of all answers in WORK")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    ask_all(options)
    rows = [json.loads(line) for path in sorted(options.work.glob("*.jsonl")) for line in path.open()]
    with replace_text_file(options.out) as file:
        file.write(json.dumps(summarize_doors(rows), indent=1) + "\n")


def ask_all(options: argparse.Namespace) -> None:
    """Ask every question through every door."""
    log = options.work / f"{options.folder.name}.jsonl"
    done = {(row["query"], row["door"]) for row in map(json.loads, log.open())} if log.exists() else set()
    corpus, _ = read_corpus(options.folder, name=options.folder.name)
    lines = (options.folder / QUERIES).read_text(encoding="utf-8").splitlines()
    about = {str(row["query_id"]): row.get("document", "") for row in map(json.loads, lines)}
    groups = group_by_document(corpus.qrels)
    start = ("--store", options.store, "--dtype", "bfloat16", "--device", "cpu", "--workers", 1)
    with serving(*start) as (address, _), log.open("a") as file:
        client = Client(address, options)
        asyncio.run(ready(httpx.AsyncClient(base_url=address)))
        spread = [query for start in range(TURNS) for query in corpus.queries[start::TURNS]]
        for number, query in enumerate(spread):  # a run that is cut short has asked about all documents
            for name, door in client.doors(query.text, about[query.query_id]).items():
                if (query.query_id, name) not in done:
                    row: Row = {"set": corpus.name, "query": query.query_id}
                    row["document"] = groups[query.query_id]
                    if name == "chunks" and number % TIMED_EVERY == 0:
                        row[COST] = client.time(query.text, door)
                    row |= {"door": name, **client.measure(query, door, corpus.qrels[query.query_id])}
                    file.write(json.dumps(row) + "\n")
                    file.flush()


class Client:
    """A user's program: pages and chunks in Qdrant, and clients of the server."""

    def __init__(self, address: str, options: argparse.Namespace) -> None:
        self._address = address
        self._cohere = cohere.ClientV2(api_key="none", base_url=address, timeout=TIMEOUT_SECONDS)
        reranker = RerankerOptions(dtype="bfloat16", device="cpu").open(options.store)
        store = reranker.store
        self._compressor, self._words = PageCompressor(reranker=reranker), BM25(store)
        texts = {store.reference(page_id): text for page_id, text in store.texts().items() if text.strip()}
        chunks = [
            _document(page, part)
            for page, text in texts.items()
            for start in range(0, len(text), CHUNK - OVERLAP)
            if (part := text[start : start + CHUNK]).strip()
        ]
        embedder, self._judge = Encoder(options.embedder), Encoder(options.judge)
        self._pages, self._chunks = (
            QdrantVectorStore.from_documents(each, embedder, location=":memory:", collection_name="all")
            for each in (list(map(_document, texts, texts.values())), chunks)
        )

    def doors(self, query: str, document: str) -> dict[str, Door]:
        """Every way to ask one question, within a document if one is named; none if that has no text."""
        if not (found := self._find(self._pages, query, document)):
            return {}
        pages, texts, scores = map(list, zip(*found, strict=True))
        chunk_pages, chunk_texts, _ = map(list, zip(*self._find(self._chunks, query, document), strict=True))
        mixed = [page if place % 2 else texts[place][:MIXED_TEXT] for place, page in enumerate(pages)]
        some, generator = list(zip(pages, scores, strict=True)), random.Random(query)
        for name in UNKNOWN:
            some.insert(generator.randrange(len(some) + 1), (name, min(scores)))
        names, some_scores = map(list, zip(*some, strict=True))
        http, langchain = partial(self._by_http, query), partial(self._by_langchain, query)
        return {
            "stored pages, scores": Door(pages, partial(http, pages, scores)),
            "stored pages": Door(pages, partial(self._by_cohere, query, pages), texts),
            "chunks": Door(chunk_pages, partial(self._by_cohere, query, chunk_texts), chunk_texts),
            "stored pages and texts": Door(pages, partial(http, mixed), texts),
            "unknown ones among stored pages, scores": Door(names, partial(http, names, some_scores)),
            "LangChain, scores": Door(pages, partial(langchain, pages, texts, scores)),
            "LangChain, order alone": Door(pages, partial(langchain, pages, texts)),
        }

    def measure(self, query: Query, door: Door, relevant: Mapping[str, int]) -> Row:
        """nDCG@5 of the order that came back, of the caller's and of BM25's, and what else is promised."""

        def rate(order: Sequence[int]) -> float:
            pages = [door.pages[index] for index in order if door.pages[index] not in UNKNOWN]
            scored = {page: -place for place, page in reversed(list(enumerate(pages)))}  # of chunks the first
            run = Run.of_dict({query.query_id: scored})
            return evaluate(run, {query.query_id: relevant}, (MEASURE,)).means()[MEASURE]

        sent = range(len(door.pages))
        row: Row = {"caller": rate(sent), "ranked": 0.0}
        if door.texts:
            scores = score_texts(query.text, door.texts, self._words)
            row["bm25"] = rate(np.argsort(-scores, kind="stable").tolist())
        try:
            answer = door.ask()
        except Exception as error:  # whatever a client raises: this question was not answered
            return {**row, "error": f"{type(error).__name__}: {error}"[:300]}
        order, scores = answer["order"], answer["scores"]
        stated = sorted(sent, key=lambda index: door.pages[index] in UNKNOWN)
        known = sum(page not in UNKNOWN for page in door.pages)
        falls = all(first >= second for first, second in pairwise(scores))
        return {
            **row,
            "ranked": rate(order),
            "complete": sorted(order) == [*sent] and order[known:] == stated[known:],
            "scores_fall": falls and all(0 <= score <= 1 for score in scores),
            "reranked": answer.get("reranked"),
            "as_stated": order == stated,
        }

    def time(self, query: str, door: Door) -> Row:
        """Processor seconds over texts of no store, over the same again, over their pages; the judge's."""
        reranker = self._compressor.reranker
        texts, pages = (partial(reranker.rank, query, each) for each in (door.texts, door.pages))
        ways: dict[str, Callable[[], object]] = {"texts": texts, "texts again": texts, "stored pages": pages}
        ways["cross encoder"] = lambda: [self._judge.run([(query, text)]) for text in door.texts]
        row: Row = {}
        for name, way in ways.items():
            start = time.process_time()
            way()
            row[name] = time.process_time() - start
        return row

    def _find(self, store: QdrantVectorStore, query: str, document: str) -> list[tuple[str, str, float]]:
        """Page, text and score of what Qdrant finds."""
        within = models.FieldCondition(key="metadata.source", match=models.MatchValue(value=document))
        inside = models.Filter(must=[within]) if document else None
        found = store.similarity_search_with_score(query, k=CANDIDATES, filter=inside)
        return [(_page_of(each), each.page_content, score) for each, score in found]

    def _by_http(self, query: str, documents: Sequence[str], scores: Sequence[float] | None = None) -> Row:
        """Jina's documented request, with scores if there are any."""
        body: Row = {"model": JINA, "query": query, "documents": documents, "top_n": len(documents)}
        body |= {"retriever_scores": scores} if scores else {}
        response = httpx.post(f"{self._address}/v1/rerank", json=body, timeout=TIMEOUT_SECONDS)
        return _answer(response.raise_for_status().json())

    def _by_cohere(self, query: str, documents: Sequence[str]) -> Row:
        answer = self._cohere.rerank(model="rerank-v3.5", query=query, documents=documents)
        return _answer(answer.model_dump())

    def _by_langchain(
        self, query: str, pages: list[str], texts: Sequence[str], scores: Sequence[float] = ()
    ) -> Row:
        """What langchain-qdrant found, through the compressor; with scores in the metadata or without."""
        documents = list(map(_document, pages, texts))
        for document, score in zip(documents, scores, strict=False):
            document.metadata["score"] = score
        ranked = self._compressor.compress_documents(documents, query)
        order = [pages.index(_page_of(each)) for each in ranked]
        return {"order": order, "scores": [each.metadata["relevance_score"] for each in ranked]}


class Encoder(OnnxModel, Embeddings):  # type: ignore[misc]
    """An encoder in ONNX: what it gives at the first position, for LangChain as vectors of length 1."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(256)

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Vectors of texts, one after the other."""
        vectors = (self.run([text])[0] for text in texts)
        return [(vector / np.linalg.norm(vector)).tolist() for vector in vectors]

    def embed_query(self, text: str) -> list[float]:
        """The vector of a question, with the instruction that BGE was trained with."""
        return self.embed_documents([BGE_QUERY + text])[0]


def _document(page: str, text: str) -> Document:
    """Text of a page, with the metadata that LangChain's loaders write."""
    source, _, number = page.rpartition("#")
    return Document(text, metadata={"source": source, "page": int(number) - 1})


def _page_of(document: Document) -> str:
    return f"{document.metadata['source']}#{document.metadata['page'] + 1}"


def _answer(body: Mapping[str, Any]) -> Row:
    order, scores = ([each[key] for each in body["results"]] for key in ("index", "relevance_score"))
    return {"order": order, "scores": scores, "reranked": body.get("reranked")}


def summarize_doors(rows: Sequence[Row]) -> Row:
    """Each door against what it is to beat, and all together, every question counted once."""
    doors, asked = dict.fromkeys(row["door"] for row in rows), dict[str, dict[str, Row]]()
    for row in rows:
        asked.setdefault(row["query"], {})[row["door"]] = row
    questions = [by_door for by_door in asked.values() if by_door.keys() == doors.keys()]
    groups = [next(iter(by_door.values()))["document"] for by_door in questions]
    results, beaten, ranked = [], [], []
    for door in doors:
        of_door = [by_door[door] for by_door in questions]
        against = "bm25" if "bm25" in of_door[0] else "caller"
        answered = [row for row in of_door if "error" not in row]
        said = [row for row in answered if row["reranked"] is not None]
        counts = {"answered": len(answered), "say_if_reranked": len(said)}
        counts |= {name: sum(row[name] for row in answered) for name in ("complete", "scores_fall")}
        counts |= {"reranked": sum(row["reranked"] for row in said)}
        counts |= {"kept_as_stated": sum(row["as_stated"] for row in said if not row["reranked"])}
        caller, other, ours = (
            np.array([row[key] for row in of_door]) for key in ("caller", against, "ranked")
        )
        gained = summarize({RETRIEVER: other, "ranked": ours}, groups)
        sides = {"caller": round(float(caller.mean()), 2), against: gained[RETRIEVER][MEASURE]}
        results.append({"door": door, **counts, "against": against, **sides, **gained["ranked"]})
        beaten.append(other)
        ranked.append(ours)
    means = {RETRIEVER: np.mean(beaten, axis=0), "ranked": np.mean(ranked, axis=0)}
    sets = Counter(next(iter(by_door.values()))["set"] for by_door in questions)
    timed = [row[COST] for row in rows if COST in row]
    cost = {name: round(float(np.mean([seconds[name] for seconds in timed])), 3) for name in timed[0]}
    together = summarize(means, groups)["ranked"]
    return {"questions": sets, "doors": results, "together": together, COST: {"lists": len(timed), **cost}}


if __name__ == "__main__":
    main()
