"""The cross encoder's interface, beside sentence-transformers' own."""

import inspect

import pytest
import torch

from ridgerank.adapters.cross_encoder import PageCrossEncoder
from ridgerank.errors import ScoreError
from ridgerank.ranking.reranker import Reranker
from tests.adapters.conftest import QUERY, scan

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


def test_documents_come_back_on_request(model: PageCrossEncoder) -> None:
    for row in model.rank(QUERY, NAMES, return_documents=True):
        assert row["text"] == NAMES[row["corpus_id"]]


def test_images_and_the_retrievers_scores_are_taken(model: PageCrossEncoder, reranker: Reranker) -> None:
    image = scan("a page in no store")
    expected = reranker.rank(QUERY, [("new", 3.0), ("report.pdf#1", 1.0)], encode_missing={"new": image})
    rows = model.rank(QUERY, [image, "report.pdf#1"], return_documents=True, scores=[3.0, 1.0])
    assert [row["score"] for row in rows] == [page.fused_score for page in expected.pages]
    assert next(row for row in rows if row["corpus_id"] == 0)["image"] is image
    with pytest.raises(ScoreError, match="1 scores for 2 documents"):
        model.rank(QUERY, [image, "report.pdf#1"], scores=[3.0])


def test_predict_gives_the_scores_of_rank(model: PageCrossEncoder) -> None:
    expected = {row["corpus_id"]: row["score"] for row in model.rank(QUERY, NAMES)}
    pairs = [(QUERY, name) for name in NAMES]
    scores = model.predict(pairs)
    assert scores.tolist() == [expected[index] for index in range(len(NAMES))]  # type: ignore[union-attr]
    tensor = model.predict(pairs, convert_to_tensor=True)
    assert isinstance(tensor, torch.Tensor)
    assert tensor.tolist() == scores.tolist()  # type: ignore[union-attr]
    assert model.predict((QUERY, NAMES[0])) == 0.0
    with pytest.raises(ScoreError, match="prompt 'query', wanted none"):
        model.predict(pairs, prompt_name="query")


def test_its_arguments_are_those_of_sentence_transformers() -> None:
    real = pytest.importorskip(
        "sentence_transformers", reason="the [dense] extra is not installed"
    ).CrossEncoder
    for method in ("rank", "predict"):
        ours = inspect.signature(getattr(PageCrossEncoder, method)).parameters
        expected_parameters = inspect.signature(inspect.unwrap(getattr(real, method))).parameters
        assert set(ours) - {"scores"} <= set(expected_parameters)
        for name in set(ours) & set(expected_parameters):
            assert ours[name].default == expected_parameters[name].default


def test_the_evaluator_of_sentence_transformers_runs_on_it(model: PageCrossEncoder) -> None:
    evaluation = pytest.importorskip(
        "sentence_transformers.cross_encoder.evaluation", reason="the [dense] extra is not installed"
    )
    best = NAMES[model.rank(QUERY, NAMES)[0]["corpus_id"]]
    sample = {"query": QUERY, "positive": [best], "documents": NAMES}
    evaluator = evaluation.CrossEncoderRerankingEvaluator([sample], name="pages", write_csv=False)
    evaluator.store_metrics_in_model_card_data = lambda *_: None  # a model card is a CrossEncoder's own
    assert evaluator(model)["pages_mrr@10"] == 1.0
