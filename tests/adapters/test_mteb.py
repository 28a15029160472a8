"""The model as MTEB uses it: its protocol, its data loaders, its search."""

import pytest

from ridgerank.errors import ScoreError
from ridgerank.ranking.reranker import Reranker
from tests.adapters.conftest import scan

mteb = pytest.importorskip("mteb", reason="the [mteb] extra is not installed")

from datasets import Dataset  # noqa: E402
from mteb.models.search_wrappers import SearchCrossEncoderWrapper  # noqa: E402

from ridgerank.adapters.mteb import PageCrossEncoderModel  # noqa: E402

QUERIES = {"q1": "revenue in 2023", "q2": "number of staff"}
WHERE = {"hf_split": "test", "hf_subset": "default"}


def test_it_is_a_cross_encoder_to_mteb(reranker: Reranker) -> None:
    model = PageCrossEncoderModel(reranker, name="someone/pages")
    assert isinstance(model, mteb.CrossEncoderProtocol)
    assert not isinstance(model, mteb.EncoderProtocol)
    assert model.mteb_model_meta.name == "someone/pages"
    assert PageCrossEncoderModel(reranker).mteb_model_meta.name.startswith("ridgerank/")


def test_mteb_gets_the_rerankers_scores(reranker: Reranker) -> None:
    names = [f"report.pdf#{number}" for number in range(1, 7)]
    metadata = mteb.get_task("Vidore2ESGReportsRetrieval").metadata
    corpus = Dataset.from_dict({"id": names, "image": [scan(name) for name in names]})
    queries = Dataset.from_dict({"id": list(QUERIES), "text": list(QUERIES.values())})
    wrapper = SearchCrossEncoderWrapper(PageCrossEncoderModel(reranker))
    wrapper.index(corpus, task_metadata=metadata, encode_kwargs={}, **WHERE)
    top_ranked = {"q1": names[:5], "q2": names[2:]}
    scores = wrapper.search(
        queries,
        task_metadata=metadata,
        top_k=10,
        encode_kwargs={"batch_size": 4},
        top_ranked=top_ranked,
        **WHERE,
    )
    for query_id, query in QUERIES.items():
        ranking = reranker.rank(query, top_ranked[query_id])
        assert scores[query_id] == {page.reference: page.fused_score for page in ranking.pages}


def test_corpus_ids_of_a_task_lead_to_pages_by_a_mapping(reranker: Reranker) -> None:
    metadata = mteb.get_task("Vidore2ESGReportsRetrieval").metadata
    names = {"corpus-7": "report.pdf#2", "corpus-8": "report.pdf#5"}
    model = PageCrossEncoderModel(reranker, names=names)
    query, pages = {"text": ["staff", "staff"]}, {"id": list(names)}
    scores = model.predict([query], [pages], task_metadata=metadata, **WHERE)
    ranked = {page.reference: page.fused_score for page in reranker.rank("staff", list(names.values())).pages}
    assert scores.tolist() == [ranked["report.pdf#2"], ranked["report.pdf#5"]]


def test_pages_in_no_store_and_half_pairs_are_refused(reranker: Reranker) -> None:
    model = PageCrossEncoderModel(reranker)
    metadata = mteb.get_task("Vidore2ESGReportsRetrieval").metadata
    query, page = {"text": ["staff"]}, {"id": ["unknown"], "image": [scan("unknown")]}
    with pytest.raises(ScoreError, match="the retriever does not know"):
        model.predict([query], [page], task_metadata=metadata, **WHERE)
    with pytest.raises(ScoreError, match="2 queries with 1 documents"):
        model.predict([query, query], [page], task_metadata=metadata, **WHERE)
