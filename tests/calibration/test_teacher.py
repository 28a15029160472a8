"""Targets on disk, and readouts of other scores than the model's own."""

import fcntl
import resource
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ridgerank.backbones.base import Backbone
from ridgerank.calibration.artifact import Calibration
from ridgerank.calibration.calibrate import calibrate
from ridgerank.calibration.teacher import FILE_NAME, TargetCache, read_teacher
from ridgerank.errors import CalibrationError, WriteError
from ridgerank.records import Query
from ridgerank.store.page_store import PageStore
from ridgerank.store.sidecar import calibrations_folder
from tests.calibrated_store import WordOverlap
from tests.store.pages import LINEAGE

QUERIES = [Query(f"q{number}", f"page {number} of report") for number in range(18)]


def test_targets_are_read_back_to_the_last_digit_and_kept_apart(tmp_path: Path) -> None:
    cache = TargetCache(tmp_path, LINEAGE)
    cache.add({"page": {"first?": 0.1 + 0.2, "second?": -1e-17}, "other": {"first?": 3.0}})
    cache.add({"page": {"first?": -2.5}}, target="likelihood")
    for reopened in (cache, TargetCache(tmp_path, LINEAGE)):
        assert reopened.target("margin", "first?", "page") == 0.1 + 0.2
        assert reopened.target("margin", "second?", "page") == -1e-17
        assert reopened.target("margin", "second?", "other") is None
        assert reopened.target("likelihood", "first?", "page") == -2.5
        assert len(reopened) == 4


def test_a_line_cut_short_by_a_kill_is_dropped_wherever_it_was_cut(tmp_path: Path) -> None:
    cache = TargetCache(tmp_path, LINEAGE)
    cache.add({"page": {"q": 1.0}})
    whole = (tmp_path / FILE_NAME).read_bytes()
    cache.add({"other": {"q": 2.0}})
    both = (tmp_path / FILE_NAME).read_bytes()
    for length in range(len(whole), len(both)):
        (tmp_path / FILE_NAME).write_bytes(both[:length])
        reopened = TargetCache(tmp_path, LINEAGE)
        assert [reopened.target("margin", "q", page) for page in ("page", "other")] == [1.0, None]
        reopened.add({"third": {"q": 3.0}})
        assert TargetCache(tmp_path, LINEAGE).target("margin", "q", "third") == 3.0


def test_targets_of_another_model_or_prompt_are_forgotten_but_not_those_of_another_store(
    tmp_path: Path,
) -> None:
    TargetCache(tmp_path, LINEAGE).add({"page": {"q": 1.0}})
    other_store = replace(LINEAGE, storage=replace(LINEAGE.storage, exit_layer=2))
    assert TargetCache(tmp_path, other_store).target("margin", "q", "page") == 1.0
    assert TargetCache(tmp_path, replace(LINEAGE, prompt="another")).target("margin", "q", "page") is None
    assert len(TargetCache(tmp_path, LINEAGE)) == 0


def test_a_disk_that_takes_no_more_is_named(tmp_path: Path) -> None:
    """The limit on the size of files stands in for the end of a disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        with pytest.raises(WriteError, match=r"margins\.jsonl cannot be written: File too large"):
            TargetCache(tmp_path, LINEAGE)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def run(uri: str, backbone: Backbone, teacher: Path, **options: Any) -> Calibration:  # noqa: ANN401
    with PageStore.open(uri) as store:
        return calibrate(
            store,
            backbone=backbone,
            retriever=WordOverlap(store.texts()),
            queries=QUERIES,
            candidates=8,
            teacher=teacher,
            **options,
        )


def write_scores(path: Path, uri: str, line: str) -> Path:
    """Scores of every query and page, by a rule one can repeat, in lines of this form."""
    with PageStore.open(uri) as store:
        pages = store.page_ids()
    rows = [
        line.format(query=query.query_id, page=page, score=(7 * number + 3 * place) % 5)
        for number, query in enumerate(QUERIES)
        for place, page in enumerate(pages)
    ]
    path.write_text("\n".join(rows) + "\n")
    return path


@pytest.mark.slow
def test_a_run_is_a_teacher_and_the_report_says_so(
    store: str, small_backbone: Backbone, tmp_path: Path
) -> None:
    run_file = write_scores(tmp_path / "a.trec", store, "{query} Q0 {page} 1 {score} t")
    calibration = run(store, small_backbone, run_file, name="run")
    assert calibration.target == "teacher"
    loaded = Calibration.load(calibrations_folder(store), "run")
    assert loaded.diagnostics.teacher == "the run a.trec"
    assert {option.target for option in loaded.diagnostics.options} == {"teacher"}


def test_a_run_that_is_not_there_or_of_other_queries_is_refused(
    store: str, small_backbone: Backbone, tmp_path: Path
) -> None:
    with PageStore.open(store) as pages, pytest.raises(CalibrationError, match="no file"):
        read_teacher(tmp_path / "file", pages)
    (tmp_path / "other.trec").write_text("x Q0 y 1 0.5 t\n")
    with pytest.raises(CalibrationError, match="scores no two candidates of any of 18 queries"):
        run(store, small_backbone, tmp_path / "other.trec")


def test_a_cache_that_another_calibration_writes_to_is_not_cut(tmp_path: Path) -> None:
    TargetCache(tmp_path, LINEAGE).add({"page": {"q": 1.0}})
    with (tmp_path / FILE_NAME).open("ab") as other, ThreadPoolExecutor(1) as threads:
        fcntl.flock(other, fcntl.LOCK_EX)
        other.write(b'{"page_id": "other", "mar')
        other.flush()
        reading = threads.submit(TargetCache, tmp_path, LINEAGE)
        with pytest.raises(TimeoutError):
            reading.result(0.3)
        other.write(b'gins": {}}\n')
        other.flush()
        fcntl.flock(other, fcntl.LOCK_UN)
        assert reading.result(60).target("margin", "q", "page") == 1.0
    assert (tmp_path / FILE_NAME).read_bytes().endswith(b'"other", "margins": {}}\n')
