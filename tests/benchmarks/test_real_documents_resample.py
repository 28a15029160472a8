"""Intervals by drawing whole documents, and recovery with an interval of its own."""

from pathlib import Path

import numpy as np
import pytest

from experiments.real_documents.resample import (
    QuestionQualities,
    format_recovery,
    read_written_questions,
    resample_documents,
    summarize_recovery,
)
from ridgerank.errors import DatasetError
from ridgerank.ragged import Floats

READOUT = "stride 1/3, likelihood, mean, closed form"
TEACHER = "teacher: likelihood, closed form"


def qualities(gains: Floats, teacher_gains: Floats, documents: list[str]) -> QuestionQualities:
    base = np.full(len(documents), 40.0)
    return QuestionQualities(
        queries=tuple(f"q{number}" for number in range(len(documents))),
        documents=tuple(documents),
        kinds=tuple("report" for _ in documents),
        qualities={"bm25": base, TEACHER: base + teacher_gains, READOUT: base + gains},
    )


def test_questions_of_one_document_are_drawn_together() -> None:
    values = np.repeat([0.0, 10.0], 50)
    clustered = resample_documents(values, ["a.pdf"] * 50 + ["b.pdf"] * 50)
    assert set(clustered.tolist()) == {0.0, 5.0, 10.0}, "two documents: none, one or both of either"
    separate = resample_documents(values, [f"{number}.pdf" for number in range(100)])
    assert np.ptp(np.quantile(separate, [0.025, 0.975])) < 3


def test_recovery_is_the_share_of_the_teacher_s_gain_draw_by_draw() -> None:
    teacher = np.array([2.0, 4.0, 6.0, 8.0])
    row = summarize_recovery(qualities(teacher / 2, teacher, ["a", "b", "c", "d"]))[READOUT]
    assert row["recovery"] == 0.5
    assert row["recovery_interval"] == [0.5, 0.5]
    assert row["difference"] == -2.5
    assert row["difference_interval"][0] < -2.5 < row["difference_interval"][1]
    assert row["resamples_above_70_percent"] == 0
    assert format_recovery(row) == "50 % [50, 50]"


def test_recovery_has_no_bound_where_the_teacher_may_gain_nothing() -> None:
    row = summarize_recovery(qualities(np.ones(4), np.array([-9.0, -8.0, 9.0, 10.0]), list("abcd")))[READOUT]
    assert row["recovery"] == 2.0
    assert row["recovery_interval"] is None
    assert format_recovery(row) == "200 % [no bound]"


@pytest.mark.parametrize(
    "text", ["", "a,b\n1\n", "query,document,kind\nq,d,k\n", "query,document,kind,bm25\nq,d,k,x\n"]
)
def test_a_file_of_another_kind_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "questions.csv"
    path.write_text(text)
    with pytest.raises(DatasetError, match=r"questions.csv: .*real_documents --out"):
        read_written_questions(path)
