"""Candidates out of the answers of search engines: the engine itself where it runs in this process."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ridgerank.adapters.engines import (
    elasticsearch_candidates,
    lancedb_candidates,
    qdrant_candidates,
    vespa_candidates,
)
from ridgerank.errors import ScoreError, StoreError
from ridgerank.ranking.reranker import Reranker
from tests.adapters.conftest import QUERY

ANSWERS = Path(__file__).parents[1] / "fixtures/engines"
NAMES = [f"report.pdf#{number}" for number in range(1, 8)]
VECTORS = np.random.default_rng(0).normal(size=(7, 4)).astype(np.float32)


def recorded(name: str) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads((ANSWERS / f"{name}.json").read_text())
    return answer


def references(reranker: Reranker, candidates: list[tuple[str, float]]) -> list[tuple[str, float]]:
    return [(reranker.store.reference(page_id), score) for page_id, score in candidates]


def test_lancedb_answers_become_candidates(reranker: Reranker, tmp_path: Path) -> None:
    lancedb = pytest.importorskip("lancedb", reason="the [adapters-test] extra is not installed")
    rows = [{"page_id": name, "vector": vector} for name, vector in zip(NAMES, VECTORS, strict=True)]
    table = lancedb.connect(tmp_path / "db").create_table("pages", rows)
    answer = table.search(VECTORS[3]).limit(3).to_list()
    candidates = lancedb_candidates(answer, reranker.store)
    distances = ((VECTORS - VECTORS[3]) ** 2).sum(axis=1)
    nearest = np.argsort(distances)[:3]
    assert [name for name, _ in references(reranker, candidates)] == [NAMES[row] for row in nearest]
    assert [score for _, score in candidates] == pytest.approx((-distances[nearest]).tolist(), abs=1e-5)
    assert len(reranker.rank(QUERY, candidates).pages) == 3


def test_qdrant_answers_become_candidates(reranker: Reranker) -> None:
    qdrant = pytest.importorskip("qdrant_client", reason="the [adapters-test] extra is not installed")
    models = qdrant.models
    client = qdrant.QdrantClient(":memory:")
    client.create_collection("pages", models.VectorParams(size=4, distance=models.Distance.DOT))
    payloads = [{"file_path": "/data/report.pdf", "page_number": number} for number in range(1, 8)]
    points = [
        models.PointStruct(id=number, vector=vector.tolist(), payload=payload)
        for number, (vector, payload) in enumerate(zip(VECTORS, payloads, strict=True))
    ]
    client.upsert("pages", points)
    answer = client.query_points("pages", query=VECTORS[2].tolist(), limit=4, with_payload=True)
    candidates = qdrant_candidates(answer, reranker.store)
    products = VECTORS @ VECTORS[2]
    best = np.argsort(-products)[:4]
    assert [name for name, _ in references(reranker, candidates)] == [NAMES[row] for row in best]
    assert [score for _, score in candidates] == pytest.approx(products[best].tolist(), abs=1e-5)
    client.close()


def test_elasticsearch_s_hits_become_candidates(reranker: Reranker) -> None:
    candidates = elasticsearch_candidates(recorded("elasticsearch"), reranker.store)
    assert references(reranker, candidates) == [
        ("report.pdf#2", 3.25),
        ("report.pdf#5", 2.5),
        ("report.pdf#1", 1.0),
    ]
    assert len(reranker.rank(QUERY, candidates).pages) == 3


def test_vespa_s_children_become_candidates(reranker: Reranker) -> None:
    candidates = vespa_candidates(recorded("vespa"), reranker.store)
    assert references(reranker, candidates) == [("report.pdf#3", 0.83), ("report.pdf#6", 0.41)]
    assert vespa_candidates({"root": {"fields": {"totalCount": 0}}}, reranker.store) == []


def test_what_names_no_page_or_has_no_score_is_refused(reranker: Reranker) -> None:
    answer = recorded("elasticsearch")
    answer["hits"]["hits"][1]["_source"]["page_number"] = 70
    with pytest.raises(StoreError, match=r"entry 2 of 3 of Elasticsearch's answer names no page .*a2"):
        elasticsearch_candidates(answer, reranker.store)
    answer = recorded("elasticsearch")
    answer["hits"]["hits"][0]["_score"] = None
    with pytest.raises(ScoreError, match="entry 1 of 3 of Elasticsearch's answer has no score"):
        elasticsearch_candidates(answer, reranker.store)
    with pytest.raises(ScoreError, match="an answer with error, status in it; wanted 'hits'"):
        elasticsearch_candidates({"error": {}, "status": 400}, reranker.store)
    with pytest.raises(ScoreError, match="wanted 'root'"):
        vespa_candidates({}, reranker.store)
