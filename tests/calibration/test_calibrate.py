"""Calibration from end to end: equal to its parts, resumable, and honest about what it cannot do."""

import logging
import re
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from ridgerank.backbones.base import Backbone, full_margins
from ridgerank.calibration.artifact import Calibration
from ridgerank.calibration.calibrate import (
    STATES_STEP,
    TARGETS_STEP,
    calibrate,
    find_candidates,
    share_pages,
)
from ridgerank.calibration.queries import cut_questions
from ridgerank.calibration.readout_file import ReadoutFile
from ridgerank.calibration.teacher import TargetCache
from ridgerank.documents.render import list_pages, render_pages
from ridgerank.errors import ArtifactError, CalibrationError
from ridgerank.indexing.index import index_documents
from ridgerank.ragged import Floats
from ridgerank.readout import CenteredMoments, ridge_path
from ridgerank.records import Candidate, Page, Query
from ridgerank.reranker.reranker import Reranker
from ridgerank.scoring.shallow import ShallowPass
from ridgerank.store.page_store import PageStore
from ridgerank.store.sidecar import calibrations_folder
from tests.calibrated_store import WordOverlap, write_reports
from tests.calibration.conftest import RecordingProgress
from tests.documents import pool_tasks

pytestmark = pytest.mark.slow
SIZES: Any = {"query_count": 20, "candidates": 8}


def overlap(texts: PageStore) -> WordOverlap:
    return WordOverlap(texts.texts())


def run(uri: str, backbone: Backbone, **options: Any) -> Calibration:  # noqa: ANN401
    with PageStore.open(uri) as store:
        return calibrate(store, backbone=backbone, retriever=overlap(store), **SIZES, **options)


def same(first: Calibration, other: Calibration) -> bool:
    return first.facts() == other.facts() and np.array_equal(first.readout.vector, other.readout.vector)


@pytest.fixture
def no_encoding(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a page was encoded")

    monkeypatch.setattr(Backbone, "encode", refuse)


def test_a_calibration_is_what_its_stages_give_by_hand(
    store: str, reports: Path, small_backbone: Backbone
) -> None:
    calibration = run(store, small_backbone, target="margin", state="last")
    pages = {
        page.page_id: page.image
        for page in render_pages(list_pages([reports]), max_pixels=small_backbone.max_pixels)
        if isinstance(page, Page)
    }
    shallow = ShallowPass(small_backbone, PageStore.open(store))
    queries = cut_questions(shallow.store.texts(), 20)
    candidate_lists = overlap(shallow.store).search_many([query.text for query in queries], 8)
    cache = TargetCache(calibrations_folder(store), shallow.store.lineage)
    moments = CenteredMoments(small_backbone.geometry.width)
    for query, candidates in zip(queries, candidate_lists, strict=True):
        ids = [candidate.page_id for candidate in candidates]
        kept = [cache.target("margin", query.text, page_id) for page_id in ids]
        full = full_margins(small_backbone, query.text, [pages[page_id] for page_id in ids])
        np.testing.assert_allclose(np.array(kept, dtype=float), full.numpy(), rtol=1e-4, atol=1e-4)
        states = shallow.run_both(query.text, ids)["last"].numpy().astype(np.float64)
        requested = shallow.run(query.text, ids).states.numpy()
        np.testing.assert_allclose(states, requested, rtol=1e-4, atol=1e-4)
        moments.add(states, np.array(kept, dtype=np.float64))
    [vector] = ridge_path(moments, np.array([calibration.readout.penalty]))
    np.testing.assert_allclose(calibration.readout.vector, vector, rtol=1e-6, atol=1e-9)
    assert (calibration.diagnostics.lists, calibration.diagnostics.pairs) == (20, 160)


@pytest.mark.parametrize("step", [TARGETS_STEP, STATES_STEP])
def test_an_interrupted_calibration_goes_on_and_ends_the_same(
    store: str, small_backbone: Backbone, tmp_path: Path, step: str
) -> None:
    copy = str(tmp_path / "copy")
    shutil.copytree(store, copy)
    whole = run(store, small_backbone)
    stopped, resumed = RecordingProgress(interrupt={step: 8}), RecordingProgress()
    with pytest.raises(KeyboardInterrupt):
        run(copy, small_backbone, progress=stopped)
    again = run(copy, small_backbone, progress=resumed)
    assert resumed.total[TARGETS_STEP] == stopped.total[TARGETS_STEP] - stopped.done[TARGETS_STEP]
    np.testing.assert_allclose(again.readout.vector, whole.readout.vector, rtol=1e-3, atol=1e-6)


def test_another_retriever_runs_only_the_pairs_that_are_new(
    store: str, small_backbone: Backbone, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Backwards(WordOverlap):
        def score(self, query: str, page_ids: Sequence[str]) -> Floats:
            return -super().score(query, page_ids)

    ran: list[tuple[str, str]] = []
    run_both = ShallowPass.run_both

    def count(self: ShallowPass, query: str, page_ids: Sequence[str]) -> Any:  # noqa: ANN401
        ran.extend((query, page_id) for page_id in page_ids)
        return run_both(self, query, page_ids)

    monkeypatch.setattr(ShallowPass, "run_both", count)
    first, seen = run(store, small_backbone), set(ran)
    ran.clear()
    assert same(run(store, small_backbone, name="again"), first)
    assert not ran
    with PageStore.open(store) as opened:
        calibrate(opened, backbone=small_backbone, retriever=Backwards(opened.texts()), **SIZES)
    assert ran
    assert not seen & set(ran)
    with pytest.raises(CalibrationError, match="the model of this store reads page images"):
        run(store, small_backbone, texts={"a": "some text"})


def test_a_model_that_cannot_read_gets_no_weight_and_the_report_says_why(
    store: str, small_backbone: Backbone
) -> None:
    """The model here is random: it agrees with itself, and with nothing else."""
    with PageStore.open(store) as opened:
        calibration = calibrate(opened, backbone=small_backbone, retriever=overlap(opened), query_count=40)
    assert calibration.weight.weight == 0.0
    assert "the model does not read these pages" in calibration.summary()
    assert (calibrations_folder(store) / "default.png").read_bytes().startswith(b"\x89PNG")


def test_given_queries_and_judgements_are_used(store: str, small_backbone: Backbone) -> None:
    queries = [Query(f"q{number}", f"growth of market {number} in Chile") for number in range(20)]
    options: Any = {"queries": [*queries, Query("again", queries[0].text)], "queries_from": "by hand"}
    lists = run(store, small_backbone, name="unjudged", **options).lists
    assert lists is not None
    assert [query.text for query in lists.queries] == [query.text for query in queries]
    qrels = {query.query_id: {lists.by_query()[query.text].page_ids[0]: 1} for query in lists.queries}
    judged = run(store, small_backbone, **options, qrels=qrels)
    diagnostics = judged.diagnostics
    assert (diagnostics.queries, diagnostics.queries_from) == (20, "by hand")
    assert (judged.weight.method, judged.weight.queries_used) == ("closed-form", 20)
    assert judged.weight.weight < 0.5  # the retriever's first page is always the relevant one
    with pytest.raises(CalibrationError, match="the judgements name none of the queries"):
        run(store, small_backbone, **options, qrels={"other": {"page": 1}})


def test_lists_share_a_bounded_number_of_pages_with_their_sources_among_them(store: str) -> None:
    with PageStore.open(store) as opened:
        retriever = overlap(opened)
        queries = cut_questions(opened.texts(), 12)
    free = find_candidates(retriever, queries, 8)
    shared = share_pages(retriever, free, 8, pages=16)
    pages = {each.page_id for candidates in shared.values() for each in candidates}
    assert len(pages) <= 16 < len({each.page_id for each_list in free.values() for each in each_list})
    found = [query.source in {each.page_id for each in shared[query]} for query in shared]
    assert sum(found) >= sum(query.source in {each.page_id for each in free[query]} for query in free)
    assert share_pages(retriever, free, 8) == free


def test_the_readout_fitted_in_the_docs_on_exported_lists_is_the_one_deployed(
    store: str, small_backbone: Backbone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made = run(store, small_backbone, target="margin", state="last", export=Path("lists.safetensors"))
    page = (Path(__file__).parents[2] / "docs/reproduce.md").read_text()
    [snippet] = re.findall(r"```python\n(.*?)```", page, flags=re.S)
    exec(snippet.replace('"pages"', repr(store)), {})
    mine = Calibration.load(calibrations_folder(store), "mine")
    np.testing.assert_allclose(
        mine.readout.vector, made.readout.vector, rtol=1e-4, atol=1e-6 * abs(made.readout.vector).max()
    )
    tensors = load_file("lists.safetensors")
    assert tensors["made/relevance"].sum() <= len(tensors["made/list_lengths"])


def test_a_readout_that_travels_is_weighed_and_no_page_is_encoded_to_full_depth(
    store: str, small_backbone: Backbone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = run(store, small_backbone)
    ReadoutFile.of(made, small_backbone).save(tmp_path / "it.ridge")
    file = ReadoutFile.load(tmp_path / "it.ridge")
    encode, layers = Backbone.encode, small_backbone.geometry.layers

    def shallow_only(*arguments: Any, exit_layer: int) -> Any:  # noqa: ANN401
        assert exit_layer < layers
        return encode(*arguments, exit_layer=exit_layer)

    monkeypatch.setattr(Backbone, "encode", shallow_only)
    taken = run(store, small_backbone, readout=file, name="taken", queries_from="the readout it")
    np.testing.assert_array_equal(taken.readout.vector, made.readout.vector)
    assert (taken.target, taken.state) == (made.target, made.state)
    assert (taken.weight.method, taken.diagnostics.queries_from) == ("prior", "the readout it")
    assert taken.diagnostics.agreement == made.diagnostics.agreement
    other = replace(file, probe=replace(file.probe, scores=file.probe.scores[:, ::-1]))
    with pytest.raises(ArtifactError, match=r"was not made with .*expected at least 0\.99"):
        run(store, small_backbone, readout=other)


def test_too_few_queries_are_refused_before_a_page_is_read(
    store: str, small_backbone: Backbone, no_encoding: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = tuple(Query(str(number), f"query number {number}") for number in range(15))
    with pytest.raises(CalibrationError, match=r"15 different queries, expected at least 16; give them"):
        run(store, small_backbone, queries=few)
    monkeypatch.setattr(PageStore, "texts", lambda _: {})
    with pytest.raises(CalibrationError, match=r"0 different queries.* read pages without text with index"):
        run(store, small_backbone)


def test_a_retriever_that_tells_nothing_apart_is_refused(store: str, small_backbone: Backbone) -> None:
    class Flat(WordOverlap):
        def score(self, query: str, page_ids: Sequence[str]) -> Floats:
            return np.ones(len(page_ids))

        def search_many(self, queries: Sequence[str], k: int) -> list[list[Candidate]]:
            return [[Candidate(page_id, 1.0) for page_id in list(self._words)[:k]] for _ in queries]

    with PageStore.open(store) as opened, pytest.raises(CalibrationError, match="one and the same score"):
        calibrate(opened, backbone=small_backbone, retriever=Flat(opened.texts()), **SIZES)


def test_all_readings_are_compared_and_the_one_taken_is_what_it_would_be_alone(
    store: str, small_backbone: Backbone
) -> None:
    whole = run(store, small_backbone)
    assert [option.name for option in whole.diagnostics.options] == [
        "margin, last",
        "margin, mean",
        "likelihood, last",
        "likelihood, mean",
    ]
    assert whole.diagnostics.reason
    alone = run(store, small_backbone, target=whole.target, state=whole.state)
    np.testing.assert_array_equal(alone.readout.vector, whole.readout.vector)
    assert alone.weight == whole.weight
    assert len(alone.diagnostics.options) == 1


def test_a_target_and_a_state_asked_for_are_ranked_with(store: str, small_backbone: Backbone) -> None:
    calibration = run(store, small_backbone, target="likelihood", state="mean", name="asked")
    with PageStore.open(store) as opened:
        retriever = overlap(opened)
    with Reranker.open(store, readout="asked", backbone=small_backbone, retriever=retriever) as reranker:
        assert (reranker.calibration.target, reranker.calibration.state) == ("likelihood", "mean")
        pages = reranker.search("margin of Norway", k=6, top_k=6).pages
        shallow = ShallowPass(small_backbone, reranker.store)
        states = shallow.run("margin of Norway", [page.page_id for page in pages], state="mean").states
    scores = calibration.readout.score(states.numpy().astype(np.float64))
    np.testing.assert_allclose([page.readout_score for page in pages], scores, rtol=1e-4, atol=1e-6)


def test_documents_that_are_gone_are_named_and_may_be_said_where_they_are(
    reports: Path, small_backbone: Backbone, tmp_path: Path
) -> None:
    shutil.copytree(reports, tmp_path / "docs")
    uri = str(tmp_path / "store")
    index_documents([tmp_path / "docs"], uri, small_backbone, preset="paper", processes=0)
    (tmp_path / "docs").rename(tmp_path / "moved")
    with pytest.raises(CalibrationError, match=r"report-\d\.pdf#\d+.*pass their present paths"):
        run(uri, small_backbone)
    run(uri, small_backbone, documents=[tmp_path / "moved"])


def test_without_matplotlib_there_is_no_picture_and_a_line_says_so(
    store: str, small_backbone: Backbone, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with caplog.at_level(logging.WARNING):
        run(store, small_backbone, name="plain")
    assert "no picture of the calibration: matplotlib is missing" in caplog.text
    assert sorted(path.name for path in calibrations_folder(store).glob("plain.*")) == [
        "plain.json",
        "plain.safetensors",
    ]


def test_a_page_that_ends_the_process_that_reads_it_is_left_out(
    small_backbone: Backbone,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    uri = str(tmp_path / "store")
    index_documents([write_reports(tmp_path / "docs", pages=40)], uri, small_backbone, processes=0)
    monkeypatch.setattr("ridgerank.documents.render._renderer", pool_tasks.ending_on_the_second_page)
    assert np.isfinite(run(uri, small_backbone).readout.vector).all()
    assert "is left out: report-0.pdf#2: ended the process that read it" in caplog.text
