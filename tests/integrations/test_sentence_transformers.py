"""The cross encoder's interface, beside sentence-transformers' own."""

import inspect

import numpy as np
import pytest
import torch

from ridgerank.errors import ScoreError
from ridgerank.integrations.sentence_transformers import PageCrossEncoder
from ridgerank.reranker.candidates import Document
from ridgerank.reranker.reranker import Reranker
from tests.integrations.conftest import QUERY, scan

NAMES = [f"report.pdf#{number}" for number in range(1, 8)]


@pytest.fixture
def model(reranker: Reranker) -> PageCrossEncoder:
    return PageCrossEncoder(reranker)


def test_rank_is_the_rerankers_ranking(model: PageCrossEncoder, reranker: Reranker) -> None:
    expected = [
        {"corpus_id": NAMES.index(page.reference), "score": page.relevance_score}
        for page in reranker.rank(QUERY, NAMES).pages
    ]
    assert model.rank(QUERY, NAMES) == expected
    assert model.rank(QUERY, NAMES, top_k=2, batch_size=4, show_progress_bar=False) == expected[:2]


def test_images_and_the_retrievers_scores_are_taken(model: PageCrossEncoder, reranker: Reranker) -> None:
    image = scan("a page in no store")
    documents = [Document(image=lambda: image, score=3.0), Document(("report.pdf#1",), score=1.0)]
    expected = reranker.rank(QUERY, documents)
    rows = model.rank(QUERY, [image, "report.pdf#1"], return_documents=True, scores=[3.0, 1.0])
    assert [row["score"] for row in rows] == [page.relevance_score for page in expected.pages]
    by_index = {row["corpus_id"]: row for row in rows}
    assert by_index[0]["image"] is image
    assert by_index[1]["text"] == "report.pdf#1"
    with pytest.raises(ScoreError, match="1 scores for 2 documents"):
        model.rank(QUERY, [image, "report.pdf#1"], scores=[3.0])


def test_predict_gives_each_pair_s_own_score(model: PageCrossEncoder, reranker: Reranker) -> None:
    alone = {page.reference: page.readout_score for page in reranker.rank(QUERY, NAMES, weight=1.0).pages}
    pairs = [(QUERY, name) for name in NAMES]
    scores = model.predict(pairs)
    assert isinstance(scores, np.ndarray)
    assert scores.dtype == np.float32
    assert scores.tolist() == pytest.approx([alone[name] for name in NAMES])
    tensor = model.predict(pairs, convert_to_tensor=True)
    assert isinstance(tensor, torch.Tensor)
    assert tensor.tolist() == scores.tolist()
    assert float(model.predict((QUERY, NAMES[0]))) == pytest.approx(scores[0], abs=1e-5)  # type: ignore[arg-type]
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
    best = NAMES[int(np.argmax(model.predict([(QUERY, name) for name in NAMES])))]
    sample = {"query": QUERY, "positive": [best], "documents": NAMES}
    evaluator = evaluation.CrossEncoderRerankingEvaluator([sample], name="pages", write_csv=False)
    assert evaluator(model)["pages_mrr@10"] == 1.0
    assert model.model_card_data.metrics[0]["pages_mrr@10"].startswith("1.0000")
