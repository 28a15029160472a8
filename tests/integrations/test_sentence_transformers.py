"""The cross encoder's interface, beside sentence-transformers' own."""

import inspect
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from ridgerank.errors import DocumentError, ScoreError, StoreError
from ridgerank.integrations.sentence_transformers import PageCrossEncoder
from ridgerank.reranker.reranker import Reranker
from tests.integrations.conftest import QUERY, scan

NAMES = [f"report.pdf#{number}" for number in range(1, 8)]


@pytest.fixture
def model(reranker: Reranker) -> PageCrossEncoder:
    return PageCrossEncoder(reranker)


def test_rank_is_the_rerankers_ranking(model: PageCrossEncoder, reranker: Reranker) -> None:
    expected = [
        {"corpus_id": NAMES.index(page.reference), "score": page.fused_score}
        for page in reranker.rank(QUERY, NAMES).pages
    ]
    assert model.rank(QUERY, NAMES) == expected
    assert model.rank(QUERY, NAMES, top_k=2, batch_size=4, show_progress_bar=False) == expected[:2]


def test_images_and_the_retrievers_scores_are_taken(model: PageCrossEncoder, reranker: Reranker) -> None:
    image = scan("a page in no store")
    expected = reranker.rank(QUERY, [("new", 3.0), ("report.pdf#1", 1.0)], encode_missing={"new": image})
    rows = model.rank(QUERY, [image, "report.pdf#1"], return_documents=True, scores=[3.0, 1.0])
    assert [row["score"] for row in rows] == [page.fused_score for page in expected.pages]
    by_index = {row["corpus_id"]: row for row in rows}
    assert by_index[0]["image"] is image
    assert by_index[1]["text"] == "report.pdf#1"
    with pytest.raises(ScoreError, match="1 scores for 2 documents"):
        model.rank(QUERY, [image, "report.pdf#1"], scores=[3.0])


def test_predict_gives_the_scores_of_rank(model: PageCrossEncoder) -> None:
    expected = {row["corpus_id"]: row["score"] for row in model.rank(QUERY, NAMES)}
    pairs = [(QUERY, name) for name in NAMES]
    scores = model.predict(pairs)
    assert isinstance(scores, np.ndarray)
    assert scores.dtype == np.float32
    assert scores.tolist() == pytest.approx([expected[index] for index in range(len(NAMES))])
    tensor = model.predict(pairs, convert_to_tensor=True)
    assert isinstance(tensor, torch.Tensor)
    assert tensor.tolist() == scores.tolist()
    assert model.predict((QUERY, NAMES[0])) == 0.0
    assert len(model.predict([])) == len(model.predict([], convert_to_tensor=True)) == 0
    with pytest.raises(ScoreError, match="prompt 'query', expected none"):
        model.predict(pairs, prompt_name="query")


def test_its_arguments_are_those_of_sentence_transformers() -> None:
    real = pytest.importorskip("sentence_transformers").CrossEncoder
    for method in ("rank", "predict"):
        ours = inspect.signature(getattr(PageCrossEncoder, method)).parameters
        expected_parameters = inspect.signature(inspect.unwrap(getattr(real, method))).parameters
        assert set(ours) - {"scores"} <= set(expected_parameters)
        for name in set(ours) & set(expected_parameters):
            assert ours[name].default == expected_parameters[name].default


def test_the_evaluator_of_sentence_transformers_runs_on_it(model: PageCrossEncoder) -> None:
    evaluation = pytest.importorskip("sentence_transformers.cross_encoder.evaluation")
    best = NAMES[model.rank(QUERY, NAMES)[0]["corpus_id"]]
    sample = {"query": QUERY, "positive": [best], "documents": NAMES}
    evaluator = evaluation.CrossEncoderRerankingEvaluator([sample], name="pages", write_csv=False)
    assert evaluator(model)["pages_mrr@10"] == 1.0
    assert model.model_card_data.metrics[0]["pages_mrr@10"].startswith("1.0000")


def test_pairwise_scores_depend_on_no_other_pair(reranker: Reranker) -> None:
    model = PageCrossEncoder(reranker, pairwise=True)
    together = model.predict([(QUERY, name) for name in NAMES])
    assert isinstance(together, np.ndarray)
    alone = [float(model.predict((QUERY, name))) for name in NAMES]  # type: ignore[arg-type]
    assert together.tolist() == pytest.approx(alone, abs=1e-5)
    order = [row["corpus_id"] for row in model.rank(QUERY, NAMES)]
    assert order == np.argsort(-together, kind="stable").tolist()


def test_a_text_that_names_no_page_needs_a_model_that_reads_text(reranker: Reranker) -> None:
    pairs = [(QUERY, "Sales rose by a third."), (QUERY, "report.pdf#2")]
    with pytest.raises(DocumentError, match="reads page images; index the document"):
        PageCrossEncoder(reranker, pairwise=True, encode_missing=True).predict(pairs)
    with pytest.raises(StoreError, match="names no page"):
        PageCrossEncoder(reranker, pairwise=True).predict(pairs)


def test_the_nano_beir_evaluator_runs_on_data_of_its_shape(
    model: PageCrossEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluation = pytest.importorskip("sentence_transformers.cross_encoder.evaluation")
    config = pytest.importorskip("datasets", reason="the [vidore] extra is not installed").config
    monkeypatch.setattr(config, "HF_DATASETS_CACHE", tmp_path / "cache")
    best = NAMES[model.rank(QUERY, NAMES)[0]["corpus_id"]]
    tables: dict[str, list[dict[str, object]]] = {
        "corpus": [{"_id": name, "text": name} for name in NAMES],
        "queries": [{"_id": "q", "text": QUERY}],
        "qrels": [{"query-id": "q", "corpus-id": best}],
        "bm25": [{"query-id": "q", "corpus-ids": NAMES}],
    }
    card = ["---", "configs:"]
    for name, rows in tables.items():
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        card += [f"- config_name: {name}", "  data_files:", "  - split: NanoNQ", f"    path: {name}.jsonl"]
    (tmp_path / "README.md").write_text("\n".join([*card, "---", ""]))
    evaluator = evaluation.CrossEncoderNanoBEIREvaluator(["nq"], dataset_id=str(tmp_path), write_csv=False)
    measured = evaluator(model)
    assert measured["NanoBEIR_R100_mean_ndcg@10"] == measured["NanoNQ_R100_ndcg@10"] == 1.0
    assert measured["NanoNQ_R100_base_mrr@10"] == 1 / (1 + NAMES.index(best))
