"""Any teacher, measured: on made-up questions whose states carry one teacher and not the other."""

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.real_documents_checkpoints import QuestionTable
from benchmarks.teachers import KEEP, TEXT_TEACHERS, measure_text
from ridgerank.ragged import Ragged
from ridgerank.runs.run import Qrels

ROOT = Path(__file__).parents[2]
QUESTIONS, PAGES, WIDTH = 48, 12, 4


@pytest.fixture(scope="module")
def table() -> tuple[QuestionTable, Qrels]:
    """The cross encoder's scores are linear in the states and follow relevance; the likelihood is noise."""
    generator = np.random.default_rng(3)
    members = QUESTIONS * PAGES
    relevance = np.zeros(members)
    relevance[PAGES * np.arange(QUESTIONS) + generator.integers(PAGES, size=QUESTIONS)] = 1.0
    states = generator.normal(size=(members, WIDTH))
    states[:, 0] += 3 * relevance
    queries = [f"q{number}" for number in range(QUESTIONS)]
    references = [f"{number}.pdf#{page}" for number in range(QUESTIONS) for page in range(PAGES)]
    columns = {
        "bm25": relevance + generator.normal(size=members),
        "cross": states[:, 0] + 0.1 * generator.normal(size=members),
        "likelihood": generator.normal(size=members),
        "margin": generator.normal(size=members),
        f"{KEEP}, last": states,
        f"{KEEP}, mean": generator.normal(size=(members, WIDTH)),
    }
    questions = QuestionTable(
        queries=queries,
        documents=[f"{number // 2}.pdf" for number in range(QUESTIONS)],
        kinds=np.array([("letter", "manual", "report")[number % 3] for number in range(QUESTIONS)]),
        lists=Ragged.of_lengths([PAGES] * QUESTIONS),
        references=references,
        columns=columns,
        per_question={},
        relevance=relevance,
    )
    qrels = {
        query: {references[number * PAGES + int(relevance[number * PAGES :][:PAGES].argmax())]: 1}
        for number, query in enumerate(queries)
    }
    return questions, qrels


def test_a_readout_reproduces_the_teacher_it_was_fitted_to(
    table: tuple[QuestionTable, Qrels],
) -> None:
    measured = measure_text(*table)
    own, encoder = TEXT_TEACHERS.values()
    held_out = measured["readouts"][encoder]["held_out_r"]
    assert held_out[encoder] > 0.95
    assert abs(held_out[own]) < 0.2
    assert set(measured["readouts"][encoder]["states"].values()) == {"last"}
    rows = measured["table"]
    assert rows[f"readout of {encoder}"]["nDCG@5"] > rows["bm25"]["nDCG@5"] + 20
    assert rows[f"readout of {own}"]["nDCG@5"] < rows["bm25"]["nDCG@5"]
    difference = measured["difference"]["readout"]
    low, high = difference["difference_interval"]
    assert 20 < low <= difference["difference"] <= high


def test_held_out_agreement_is_of_readouts_that_never_saw_the_kind(
    table: tuple[QuestionTable, Qrels],
) -> None:
    questions, qrels = table
    noise = measure_text(questions, qrels)["readouts"]["its own likelihood"]["held_out_r"]
    assert abs(noise["its own likelihood"]) < 0.2, "a readout fitted to all kinds would fit the noise"


def test_the_page_names_the_questions_that_were_measured() -> None:
    text = json.loads((ROOT / "results" / "teachers.json").read_text())["text"]
    page = (ROOT / "docs" / "models.md").read_text()
    assert f"{text['questions']} questions about {text['documents']} real documents" in page
    for row in text["difference"].values():
        low, high = row["difference_interval"]
        assert low < 0 < high, "the page says that no difference is beyond chance"
