"""Readouts of other scores than the model's own."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ridgerank.backbones.base import Backbone
from ridgerank.calibration.artifact import Calibration
from ridgerank.calibration.calibrate import calibrate
from ridgerank.calibration.teacher import read_teacher
from ridgerank.calibration.weight import transfer_weight
from ridgerank.errors import CalibrationError, RunFileError
from ridgerank.records import Query
from ridgerank.store.page_store import PageStore
from ridgerank.store.sidecar import calibrations_folder
from tests.calibrated_store import WordOverlap

QUERIES = [Query(f"q{number}", f"page {number} of report") for number in range(18)]


def run(uri: str, backbone: Backbone, teacher: str, **options: Any) -> Calibration:  # noqa: ANN401
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


def write_scores(path: Path, uri: str, *, judgements: bool = False) -> Path:
    """Scores of every query and page, by a rule one can repeat."""
    with PageStore.open(uri) as store:
        pages = store.page_ids()
    rows = []
    for number, query in enumerate(QUERIES):
        for place, page in enumerate(pages):
            score = (7 * number + 3 * place) % 5
            rows.append(
                f"{query.query_id} 0 {page} {score}"
                if judgements
                else f"{query.query_id} Q0 {page} 1 {score} t"
            )
    path.write_text("\n".join(rows) + "\n")
    return path


def test_a_run_is_a_teacher_and_the_report_says_so(
    store: str, small_backbone: Backbone, tmp_path: Path
) -> None:
    calibration = run(store, small_backbone, str(write_scores(tmp_path / "scores.trec", store)), name="run")
    assert calibration.target == "teacher"
    assert calibration.diagnostics.teacher == "the run scores.trec"
    loaded = Calibration.load(calibrations_folder(store), "run")
    assert loaded.diagnostics.teacher == "the run scores.trec"
    assert {option.target for option in loaded.diagnostics.options} == {"teacher"}


def test_judgements_give_the_readout_of_the_same_scores_as_a_run(
    store: str, small_backbone: Backbone, tmp_path: Path
) -> None:
    one = run(store, small_backbone, str(write_scores(tmp_path / "a.trec", store)), name="a")
    other = run(
        store, small_backbone, str(write_scores(tmp_path / "b.qrels", store, judgements=True)), name="b"
    )
    assert np.array_equal(one.readout.vector, other.readout.vector)
    assert other.diagnostics.teacher == "the judgements b.qrels"


def test_a_file_that_is_neither_run_nor_judgements_is_refused(store: str, tmp_path: Path) -> None:
    (tmp_path / "odd.txt").write_text("one two three\n")
    with PageStore.open(store) as pages, pytest.raises(CalibrationError, match="3 fields in its first line"):
        read_teacher(tmp_path / "odd.txt", pages)
    (tmp_path / "bad.trec").write_text("q0 Q0 a 1 high t\n")
    with PageStore.open(store) as pages, pytest.raises(RunFileError, match="score 'high'"):
        read_teacher(tmp_path / "bad.trec", pages)


def test_a_file_that_is_not_there_is_refused(store: str, tmp_path: Path) -> None:
    with PageStore.open(store) as pages, pytest.raises(CalibrationError, match="no file"):
        read_teacher(tmp_path / "gone.trec", pages)


def test_scores_of_other_queries_are_refused(store: str, small_backbone: Backbone, tmp_path: Path) -> None:
    (tmp_path / "other.trec").write_text("x Q0 y 1 0.5 t\n")
    with pytest.raises(CalibrationError, match="scores no two candidates of any of 18 queries"):
        run(store, small_backbone, str(tmp_path / "other.trec"))


def test_the_weight_of_another_teacher_is_not_transferred(
    store: str, small_backbone: Backbone, tmp_path: Path
) -> None:
    run(store, small_backbone, str(write_scores(tmp_path / "s.trec", store)), name="taught")
    with PageStore.open(store) as pages, pytest.raises(CalibrationError, match=r"reproduces the run s\.trec"):
        transfer_weight(f"{store}#taught", lineage=pages.lineage, retriever="word-overlap")
