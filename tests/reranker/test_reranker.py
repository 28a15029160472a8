"""Candidates in, rankings out: what a request gives, and what it refuses."""

import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from ridgerank.backbones.base import Backbone
from ridgerank.backbones.load import load_backbone
from ridgerank.backbones.model_settings import ModelSettings
from ridgerank.calibration.artifact import ScoreLists
from ridgerank.documents.render import list_pages, render_pages
from ridgerank.errors import BackboneError, DocumentError, LineageMismatch, QueryError, ScoreError
from ridgerank.fusion.standardize import fuse_scores
from ridgerank.fusion.weight import user_estimate
from ridgerank.indexing.index import index_documents
from ridgerank.lineage import Keep
from ridgerank.ragged import Ragged
from ridgerank.records import Candidate, Page, Query, Ranking
from ridgerank.reranker.candidates import PAGES_PER_PASS, PASS_ENTRIES, Document, pages_per_pass
from ridgerank.reranker.reranker import Reranker
from ridgerank.scoring.shallow import ShallowPass
from ridgerank.store.page_store import PageStore
from ridgerank.store.sidecar import calibrations_folder
from tests.calibrated_store import ByDigest, index_pages, random_calibration
from tests.conftest import write_pdf

QUERY = "revenue in 2023"


@pytest.fixture(scope="module")
def uri(small_backbone: Backbone, tmp_path_factory: pytest.TempPathFactory) -> str:
    uri = index_pages(tmp_path_factory.mktemp("ranked"), small_backbone, pages=12)
    with PageStore.open(uri) as store:
        made = random_calibration(store.lineage, small_backbone.geometry.width)
    made.save(calibrations_folder(uri))
    unsupported = replace(user_estimate(0.0), cause="the scores do not correlate beyond chance")
    replace(made, weight=unsupported).save(calibrations_folder(uri), "unsupported")
    return uri


@pytest.fixture(scope="module")
def reranker(uri: str, small_backbone: Backbone) -> Iterator[Reranker]:
    with PageStore.open(uri) as store:
        retriever = ByDigest(store.page_ids())
    with Reranker.open(uri, backbone=small_backbone, retriever=retriever) as opened:
        yield opened


def essence(ranking: Ranking) -> list[tuple[object, ...]]:
    return [
        (page.rank, page.retriever_rank, page.page_id, page.fused_score, page.readout_score)
        for page in ranking.pages
    ]


def test_a_ranking_is_what_the_stages_give_one_by_one(uri: str, small_backbone: Backbone) -> None:
    with PageStore.open(uri) as store:
        retriever = ByDigest(store.page_ids())
    candidates = retriever.search(QUERY, 10)
    with Reranker.open(uri, backbone=small_backbone, retriever=retriever) as reranker:
        ranking = reranker.search(QUERY, k=10, top_k=10)
        vector = reranker.calibration.readout.vector
    ids = [candidate.page_id for candidate in candidates]
    shallow = ShallowPass(small_backbone, PageStore.open(uri))
    states = shallow.run(QUERY, ids).states.numpy().astype(np.float64)
    scores = states @ vector
    b = np.array([candidate.score for candidate in candidates])
    fused = fuse_scores(b, scores, 0.6, Ragged.of_lengths([10]))
    order = np.argsort(-fused, kind="stable")
    assert [page.page_id for page in ranking.pages] == [ids[place] for place in order]
    assert [page.fused_score for page in ranking.pages] == fused[order].tolist()
    assert [page.readout_score for page in ranking.pages] == scores[order].tolist()
    assert [page.retriever_score for page in ranking.pages] == b[order].tolist()
    assert [page.retriever_rank for page in ranking.pages] == (order + 1).tolist()
    assert [page.rank for page in ranking.pages] == list(range(1, 11))
    assert ranking.weight == 0.6
    assert (ranking.reranked, ranking.reasons) == (True, ())


def test_equal_scores_leave_the_documents_as_they_were_sent(reranker: Reranker) -> None:
    sent = reranker.store.page_ids()[:6][::-1]
    ranking = reranker.rank(QUERY, [(page_id, 1.0) for page_id in sent])
    assert [page.page_id for page in ranking.pages] == sent
    assert not ranking.reranked
    assert "all equal: the documents are in the order sent" in ranking.reasons[0]


def test_documents_that_cannot_be_scored_stand_last_are_dropped_or_are_an_error(reranker: Reranker) -> None:
    known = reranker.store.page_ids()[:3]
    documents = ["absent.pdf#1", known[0], "", known[1], "a text for a model of images", known[2]]
    kept = reranker.rank(QUERY, documents)
    assert {page.page_id for page in kept.pages[:3]} == set(known)
    assert [page.page_id for page in kept.pages[3:]] == ["documents[0]", "documents[2]", "documents[4]"]
    scores = [page.relevance_score for page in kept.pages]
    assert scores == sorted(scores, reverse=True)
    assert kept.reranked
    assert any("3 documents cannot be scored and are put last: documents[0]" in each for each in kept.reasons)
    assert essence(reranker.rank(QUERY, documents, on_missing="drop")) == essence(kept)[:3]
    with pytest.raises(DocumentError, match=r"documents\[0\]: 'absent\.pdf#1' names no page of the store"):
        reranker.rank(QUERY, documents, on_missing="error")


def test_the_calibrated_weight_is_for_one_retriever(reranker: Reranker) -> None:
    pairs = [(page_id, float(place % 5)) for place, page_id in enumerate(reranker.store.page_ids()[:8])]
    assert reranker.rank(QUERY, pairs, retriever="by-digest").weight == 0.6
    for name, said in ((None, "an unnamed retriever"), ("qdrant", "another retriever (qdrant)")):
        ranking = reranker.rank(QUERY, pairs, retriever=name)
        assert ranking.weight == 0.5
        assert said in ranking.reasons[0]
    for field in ("name", "identity"):
        other = ByDigest(reranker.store.page_ids())
        setattr(other, field, "other")
        with Reranker.open(reranker.store.uri, backbone=reranker.backbone, retriever=other) as opened:
            ranking = opened.search(QUERY)
        assert ranking.weight == 0.5
        assert "another retriever (other), and the calibration is for 'by-digest'" in ranking.reasons[0]


def test_a_short_list_is_standardized_by_the_deviations_of_the_calibration(
    uri: str, small_backbone: Backbone
) -> None:
    with PageStore.open(uri) as store:
        made = random_calibration(store.lineage, small_backbone.geometry.width)
        first, second, *others = store.page_ids()
        ten = ScoreLists(
            (Query("q", QUERY),),
            tuple(store.page_ids()[:10]),
            Ragged.of_lengths([10]),
            np.arange(10.0),
            np.arange(10.0),
        )
        measured = replace(made, lists=ten, diagnostics=replace(made.diagnostics, readout_spread=4.0))
        shallow = ShallowPass(small_backbone, store)
        with Reranker(shallow, measured, retriever=ByDigest(store.page_ids())) as reranker:
            pages = reranker.rank(QUERY, [(first, 2.0), (second, 1.0)], retriever="by-digest").pages
            by_id = {page.page_id: page for page in pages}
            gap = by_id[first].readout_score - by_id[second].readout_score
            assert by_id[first].retriever_z == pytest.approx(0.5 / np.arange(10.0).std())
            assert by_id[first].readout_z == pytest.approx(gap / 2 / 4.0)
            five = [(page_id, float(place)) for place, page_id in enumerate([first, second, *others[:3]])]
            whole = reranker.rank(QUERY, five, retriever="by-digest").pages
            assert np.std([page.retriever_z for page in whole]) == pytest.approx(1.0)


def test_pages_and_texts_are_standardized_apart_where_some_have_no_text(reranker: Reranker) -> None:
    def picture(color: str, text: str) -> Document:
        return Document(image=lambda: Image.new("RGB", (60, 80), color), text=text)

    stored = [Document((page_id,)) for page_id in reranker.store.page_ids()[:3]]
    pictures = [picture("red", "revenue in 2023"), picture("blue", "costs in 2023"), picture("green", "")]
    pages = reranker.rank(QUERY, [*stored, *pictures]).pages
    scores = {page.reference: page.retriever_score for page in pages}
    assert [scores[f"documents[{place}]"] for place in (3, 4, 5)] == pytest.approx([1.0, -1.0, 0.0])
    of_stored = [score for name, score in scores.items() if not name.startswith("documents")]
    assert (np.mean(of_stored), np.std(of_stored)) == pytest.approx((0.0, 1.0))


def test_documents_come_in_a_retriever_s_order_only_where_that_is_said(reranker: Reranker) -> None:
    sent = reranker.store.page_ids()[:6]
    by_order = reranker.rank(QUERY, sent, order="retriever")
    assert {page.page_id: page.retriever_rank for page in by_order.pages} == dict(
        zip(sent, range(1, 7), strict=True)
    )
    assert essence(reranker.rank(QUERY, sent[::-1], order="retriever")) != essence(by_order)


def test_a_weight_that_is_no_estimate_is_said_with_every_ranking(uri: str, small_backbone: Backbone) -> None:
    with PageStore.open(uri) as store:
        retriever = ByDigest(store.page_ids())
    with Reranker.open(uri, readout="unsupported", backbone=small_backbone, retriever=retriever) as reranker:
        candidates = [(candidate.page_id, candidate.score) for candidate in retriever.search(QUERY, 5)]
        listed = reranker.rank(QUERY, candidates, retriever="another")  # the model is what does not help
        for ranking in (reranker.search(QUERY), reranker.search("cost"), listed):
            [reason] = ranking.reasons
            assert reason.startswith("weight 0, the pages are in the retriever's order: the scores do not")
            assert not ranking.reranked
            assert [page.rank for page in ranking.pages] == [page.retriever_rank for page in ranking.pages]


def test_the_parts_add_up_to_the_fused_score_and_the_reason_names_them(reranker: Reranker) -> None:
    ranking = reranker.search(QUERY)
    for page in ranking.pages:
        assert page.retriever_part + page.readout_part == page.fused_score
        assert page.retriever_part == (1 - ranking.weight) * page.retriever_z
        assert page.readout_part == ranking.weight * page.readout_z
        assert f"retriever {page.retriever_part:+.2f}, readout {page.readout_part:+.2f}" in page.reason
        assert (page.rank == page.retriever_rank) == page.reason.startswith("stays at")


def test_records_pairs_references_and_bare_names_rank_alike(reranker: Reranker) -> None:
    candidates = reranker.retriever.search(QUERY, 8)
    expected = essence(reranker.rank(QUERY, candidates, retriever="by-digest"))
    pairs = [(candidate.page_id, candidate.score) for candidate in candidates]
    named = [(reranker.store.reference(page_id), score) for page_id, score in pairs]
    bare = [page_id for page_id, _ in pairs]
    listed = [[page_id, np.float64(score)] for page_id, score in pairs]
    forms: list[Any] = [pairs, named, bare, pairs[::-1], dict(pairs), listed]
    for form in forms:
        assert essence(reranker.rank(QUERY, form, retriever="by-digest")) == expected
    assert essence(reranker.search(QUERY, k=8, top_k=8)) == expected


@pytest.mark.parametrize("count", ["5", 2.0, 0])
def test_a_number_of_pages_below_1_or_of_another_type_is_refused(reranker: Reranker, count: Any) -> None:  # noqa: ANN401
    with pytest.raises(ScoreError, match=r"top_k is .*, expected a whole number of at least 1"):
        reranker.search("margin", top_k=count)


def test_scores_that_are_not_finite_are_refused_and_those_of_some_do_not_count(reranker: Reranker) -> None:
    with pytest.raises(ScoreError, match="the candidates' scores"):
        reranker.rank(QUERY, [Candidate("0.pdf#1", float("nan")), Candidate("0.pdf#2", 1.0)])
    names = ["0.pdf#1", "0.pdf#2", "0.pdf#3"]
    some = reranker.rank(QUERY, [(names[0], 9.0), *names[1:]])
    assert essence(some) == essence(reranker.rank(QUERY, names))
    assert "1 of 3 documents have a score, so none counts" in some.reasons[0]


def test_top_k_cuts_the_ranking_and_nothing_else_and_one_candidate_or_none_is_a_ranking(
    reranker: Reranker,
) -> None:
    candidates = reranker.retriever.search(QUERY, 8)
    assert essence(reranker.rank(QUERY, candidates, top_k=3)) == essence(reranker.rank(QUERY, candidates))[:3]
    assert len(reranker.rank(QUERY, candidates, top_k=99).pages) == 8
    one = reranker.rank(QUERY, [("0.pdf#1", 3.0)])
    assert [(page.rank, page.fused_score) for page in one.pages] == [(1, 0.0)]
    assert (one.reranked, one.reasons) == (False, ("one candidate: there is nothing to rank",))
    assert len(reranker.search(QUERY, k=1).pages) == 1
    none = reranker.rank(QUERY, [])
    assert (none.pages, none.reranked, none.reasons) == ((), False, ("no candidates",))
    assert reranker.search_many([]) == []


def test_batches_and_threads_give_what_one_call_gives(reranker: Reranker) -> None:
    queries = [f"query {number}" for number in range(6)]
    candidates = [reranker.retriever.search(query, 7) for query in queries]
    rank = partial(reranker.rank, retriever="by-digest")
    expected = [essence(rank(query, own)) for query, own in zip(queries, candidates, strict=True)]
    assert [essence(found) for found in reranker.search_many(queries, k=7, top_k=7)] == expected
    with ThreadPoolExecutor(4) as threads:
        found = threads.map(rank, queries, candidates)
        assert [essence(one) for one in found] == expected


def test_a_page_given_twice_counts_once_at_its_higher_score(reranker: Reranker) -> None:
    first, second = reranker.store.page_ids()[:2]
    name = reranker.store.reference(first)
    rank = partial(reranker.rank, retriever="by-digest")
    doubled = rank(QUERY, [(first, 0.1), (second, 0.5), (name, 0.9)])
    assert essence(doubled) == essence(rank(QUERY, [(first, 0.9), (second, 0.5)]))
    assert doubled.reasons == ("1 repeated candidates count once, at their highest score",)
    assert len(reranker.rank(QUERY, [first, name, second]).pages) == 2


def test_a_page_in_no_store_is_encoded_on_the_fly_as_if_it_were_stored(
    reranker: Reranker, small_backbone: Backbone, tmp_path: Path
) -> None:
    write_pdf(tmp_path / "new.pdf", pages=2, seed=77)
    read = render_pages(list_pages([tmp_path / "new.pdf"]), max_pixels=small_backbone.max_pixels)
    new = [page for page in read if isinstance(page, Page)]
    images = [Document(image=lambda page=page: page.image, score=1.5) for page in new]  # type: ignore[misc]
    known = Document((reranker.store.page_ids()[0],), score=2.0)
    ranking = reranker.rank(QUERY, [*images, known])
    assert {page.reference for page in ranking.pages} >= {"documents[0]", "documents[1]"}
    assert essence(ranking) == essence(reranker.rank(QUERY, [*images, known]))
    assert len(reranker.store) == 12
    hurried = reranker.rank(QUERY, [*images, known], max_encoded=1)
    assert np.isnan(hurried.pages[-1].readout_score)
    assert "1 documents were not read, for want of time" in " ".join(hurried.reasons)
    unscored = reranker.rank(QUERY, [*(replace(image, score=None) for image in images), *known.page_names])
    assert (unscored.reranked, len(unscored.pages)) == (False, 3)  # no text, and a group of one


@pytest.mark.parametrize(
    ("query", "reason"), [(" \n\t", "empty"), ("x" * 10_000, "10,000 characters"), (None, "query")]
)
def test_queries_nobody_can_ask_are_refused(reranker: Reranker, query: Any, reason: str) -> None:  # noqa: ANN401
    with pytest.raises(QueryError, match=reason):
        reranker.rank(query, [("0.pdf#1", 1.0)])
    with pytest.raises(QueryError, match=reason):
        reranker.search(query)


def test_pages_the_model_does_not_read_stay_in_the_retriever_s_order(reranker: Reranker) -> None:
    lists = reranker.retrieve([QUERY], k=6)[0]
    [ranking] = reranker.rank_lists([replace(lists, unread="the model is busy")])
    assert [page.page_id for page in ranking.pages] == lists.page_ids
    assert (ranking.reranked, ranking.reasons, ranking.weight) == (False, ("the model is busy",), 0.0)
    assert all(np.isnan(page.readout_score) for page in ranking.pages)
    scores = [page.relevance_score for page in ranking.pages]
    assert scores == sorted(scores, reverse=True)


def test_another_lineage_is_refused(uri: str, model_folder: Path, small_backbone: Backbone) -> None:
    other = load_backbone(model_folder, device="cpu", max_pixels=99 * 28 * 28)
    with pytest.raises(LineageMismatch, match="max_pixels: 23520 there, 77616 here"):
        Reranker.open(uri, backbone=other)
    with PageStore.open(uri) as store:
        storage = replace(store.lineage.storage, keep=Keep.parse("value-norm 1/4"))
        other_lineage = replace(store.lineage, storage=storage)
        foreign = random_calibration(other_lineage, small_backbone.geometry.width)
    foreign.save(calibrations_folder(uri), "foreign")
    with pytest.raises(LineageMismatch, match="'value-norm 1/4' there, 'stride 1/3' here"):
        Reranker.open(uri, readout="foreign", backbone=small_backbone)


def test_the_model_of_the_store_is_loaded_where_none_is_given(uri: str) -> None:
    with Reranker.open(uri, device="cpu") as reranker:
        assert len(reranker.rank(QUERY, [("0.pdf#1", 1.0), ("1.pdf#2", 2.0)]).pages) == 2


def test_a_long_list_or_query_runs_in_several_passes_and_ranks_as_in_one(
    reranker: Reranker, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert pages_per_pass(256, 1280) == pages_per_pass(20, 4000) == PAGES_PER_PASS
    for tokens in (300, 2048, 10**6):
        assert pages_per_pass(tokens, 1280) in (1, PASS_ENTRIES // (tokens * (tokens + 1280)))
    expected = reranker.search(QUERY, k=12, top_k=12)
    for name, most, count in (("PAGES_PER_PASS", 5, 3), ("PASS_ENTRIES", 1, 12)):
        monkeypatch.setattr(f"ridgerank.reranker.candidates.{name}", most)
        passes: list[int] = []
        lists = reranker.retrieve([QUERY], k=12)
        [found] = reranker.rank_lists(lists, before_pass=partial(passes.append, 1))
        assert [page.page_id for page in found.pages] == [page.page_id for page in expected.pages]
        assert len(passes) == count


def test_the_retriever_is_loaded_once_on_the_device_asked_for(
    uri: str, small_backbone: Backbone, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[object] = []

    def load(name: str, store: PageStore, **options: object) -> ByDigest:
        loaded.append((name, options))
        return ByDigest(store.page_ids())

    monkeypatch.setattr("ridgerank.reranker.reranker.load_retriever", load)
    with Reranker.open(uri, backbone=small_backbone, device="cpu", dtype=torch.bfloat16) as reranker:
        for _ in range(2):
            reranker.search(QUERY)
    assert loaded == [("by-digest", {"device": "cpu", "dtype": torch.bfloat16})]


def test_a_moved_model_is_found_where_it_was_named_once(
    tmp_path: Path, model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(shutil.copytree(model_folder, tmp_path / "here" / "model").parent)
    write_pdf(tmp_path / "docs/a.pdf", pages=1)
    index_documents(tmp_path / "docs", tmp_path / "store", "model", processes=0)
    monkeypatch.chdir(tmp_path)
    shutil.move(tmp_path / "here", tmp_path / "there")
    with PageStore.open(tmp_path / "store") as store:
        assert store.lineage.backbone == str(tmp_path / "here/model")
        settings = ModelSettings.from_lineage(store.lineage, device="cpu")
        with pytest.raises(BackboneError, match="name it once where it is now"):
            settings.load()
        ShallowPass(load_backbone("there/model", device="cpu"), store)
        assert ModelSettings.from_lineage(store.lineage).name == str(tmp_path / "there/model")
    assert index_documents(tmp_path / "docs", tmp_path / "store", processes=0).skipped == 1


def test_a_search_over_a_store_still_being_written_ranks_as_one_over_the_whole_store(
    tmp_path: Path, small_backbone: Backbone
) -> None:
    uri = str(tmp_path / "store")
    write_pdf(tmp_path / "in/a.pdf", pages=6)
    index = partial(index_documents, [tmp_path / "in"], uri, small_backbone, preset="paper", processes=0)
    index(only=())
    with PageStore.open(uri) as store:
        assert len(store.pending()) == len(store) == 6
        retriever = ByDigest(store.page_ids())
        random_calibration(store.lineage, small_backbone.geometry.width).save(calibrations_folder(uri))

    def search() -> Ranking:
        with Reranker.open(uri, backbone=small_backbone, retriever=retriever) as reranker:
            return reranker.search(QUERY, k=4, top_k=4)

    early = search()
    assert any("4 candidates were encoded just now" in reason for reason in early.reasons)
    index(only={early.pages[0].page_id})
    with PageStore.open(uri) as store:
        assert len(store.pending()) == 5
    assert index().added == 5
    late = search()
    assert not any("encoded" in reason for reason in late.reasons)
    assert [page.reference for page in early.pages] == [page.reference for page in late.pages]
    assert [page.fused_score for page in early.pages] == pytest.approx(
        [page.fused_score for page in late.pages], abs=1e-3
    )
