"""docs/real-documents.md says what the results say, and the results follow from the questions they ship."""

import json
import re
from pathlib import Path

import pytest

from benchmarks.tables import RESULTS
from experiments.real_documents.resample import read_written_questions, summarize, summarize_recovery

SHIPPED = sorted(RESULTS.glob("real_documents_*_questions.csv"))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_the_intervals_follow_from_the_questions_that_are_shipped(path: Path) -> None:
    questions = read_written_questions(path)
    measured = json.loads(path.with_name(path.name.replace("_questions.csv", ".json")).read_text())
    assert len(questions.queries) == measured["questions"]
    assert summarize(questions) == measured["table"]
    assert summarize_recovery(questions) == measured["recovery"]


def test_questions_are_shipped_for_the_folder_that_is_reported_on() -> None:
    assert any("second_smollm2" in path.name for path in SHIPPED)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_questions_are_identifiers_and_numbers_only(path: Path) -> None:
    for line in path.read_text().splitlines()[1:]:
        query, _, _, *numbers = line.split(",")
        assert re.fullmatch(r"[\w.-]{1,20}", query)
        assert all(re.fullmatch(r"-?\d+\.\d\d", number) for number in numbers)
