"""A reranking task through `mteb.evaluate`, from drawn pages to MTEB's own figures."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ridgerank.backbones.base import Backbone
from ridgerank.indexing.index import index_documents
from ridgerank.miniature.corpora import find_plan, make_corpus
from ridgerank.miniature.draw import draw_document
from ridgerank.ranking.reranker import Reranker
from ridgerank.records import Query
from ridgerank.runs.run import Qrels
from ridgerank.store.page_store import PageStore
from ridgerank.store.sidecar import calibrations_folder
from tests.calibrated_store import ByDigest, random_calibration
from tests.indexing.test_index import Seen

mteb = pytest.importorskip("mteb", reason="the [mteb] extra is not installed")

from benchmarks.mteb_task import JudgedPagesReranking, measure  # noqa: E402
from ridgerank.adapters.mteb import PageCrossEncoderModel  # noqa: E402

CORPUS = make_corpus(find_plan("alder"))


@pytest.fixture(scope="module")
def drawn(small_backbone: Backbone, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reranker]:
    """The first document of a drawn corpus."""
    folder = tmp_path_factory.mktemp("task")
    name, pages = next(iter(CORPUS.documents.items()))
    (folder / name).write_bytes(draw_document(pages))
    uri = str(folder / "pages")
    index_documents([folder / name], uri, small_backbone, hook=Seen(), processes=1)
    with PageStore.open(uri) as store:
        calibration = random_calibration(store.lineage, small_backbone.geometry.width)
        retriever = ByDigest(store.page_ids())
    calibration.save(calibrations_folder(uri))
    with Reranker.open(uri, backbone=small_backbone, retriever=retriever) as opened:
        yield opened


@pytest.fixture(scope="module")
def judged(drawn: Reranker) -> tuple[list[Query], Qrels]:
    """The questions that pages of this document answer."""
    stored = set(drawn.store.references(drawn.store.page_ids()))
    qrels: dict[str, dict[str, int]] = {}
    queries = []
    for number, question in enumerate(CORPUS.questions):
        grades = {page: grade for page, grade in CORPUS.grades[number].items() if page in stored}
        if grades:
            qrels[CORPUS.query_id(number)] = grades
            queries.append(Query(CORPUS.query_id(number), question.text))
    return queries, qrels


def test_mteb_measures_what_the_rerankers_own_rankings_are_worth(
    drawn: Reranker, judged: tuple[list[Query], Qrels]
) -> None:
    measured = measure(drawn, *judged, k=8)
    assert measured["queries"] == len(judged[0]) > 1
    assert measured["mteb_ndcg_at_5"] == pytest.approx(measured["ridgerank_ndcg_at_5"], abs=1e-3)
    assert measured["mteb_ndcg_at_5"] != pytest.approx(measured["retriever_ndcg_at_5"], abs=1e-3)


def test_mteb_files_the_result_and_reads_its_predictions_back(
    drawn: Reranker, judged: tuple[list[Query], Qrels], tmp_path: Path
) -> None:
    queries, qrels = judged
    pages = drawn.store.references(drawn.store.page_ids())
    task = JudgedPagesReranking(drawn, queries, qrels, {query.query_id: pages for query in queries})
    model = PageCrossEncoderModel(drawn, name="someone/pages")
    result = mteb.evaluate(
        model, task, cache=mteb.ResultCache(tmp_path), prediction_folder=tmp_path, show_progress_bar=False
    )
    assert result.model_name == "someone/pages"
    assert list(tmp_path.rglob("JudgedPagesReranking.json")), "MTEB keeps the result in its cache"
    again = JudgedPagesReranking(drawn, queries, qrels, {}).convert_to_reranking(tmp_path, top_k=3)
    top_ranked = again.dataset["default"]["test"]["top_ranked"]
    for query in queries:
        best = drawn.rank(query.text, pages, top_k=3).pages
        assert top_ranked[query.query_id] == [page.reference for page in best]
