"""The paper's figures are copied rightly, and docs/reproduce.md says what the committed run says."""

import json

import numpy as np
import pytest

from benchmarks.tables import RESULTS as ALL_RESULTS
from benchmarks.tables import ROOT
from experiments.reproduce import paper
from experiments.reproduce.pipeline import CATALOGUE


@pytest.mark.parametrize(("table", "corpora"), [("table1", 4), ("table2", 8)])
def test_averages_are_those_of_the_columns(table: str, corpora: int) -> None:
    rows = [(method, row) for arms in paper.look_up(table).values() for method, row in arms.items()]
    assert len(rows) == 17
    for method, row in rows:
        columns = [value for name, value in row.items() if name != "Avg"]
        assert len(columns) == corpora
        # Four of the paper's own averages are 0.15 to 0.4 away from the columns beside them.
        assert np.mean(columns) == pytest.approx(row["Avg"], abs=0.4), method


def test_recoveries_follow_from_the_figures_beside_them() -> None:
    for retriever, arms in paper.look_up("table4").items():
        base, full = arms["retriever"]["NDCG@5"], arms["cross encoder"]["NDCG@5"]
        for method, row in arms.items():
            if row["recovery"] is not None:
                share = 100 * (row["NDCG@5"] - base) / (full - base)
                assert share == pytest.approx(row["recovery"], abs=1.1), (retriever, method)


RESULTS = ALL_RESULTS / "miniature" / "reproduce"
TEXT = (ROOT / "docs" / "reproduce.md").read_text(encoding="utf-8")


def test_the_page_shows_every_method_and_every_claim_that_does_not_hold() -> None:
    claims = json.loads((RESULTS / "directions.json").read_text())
    assert len(claims) > 30
    assert all((f"| {claim['claim']} |" in TEXT) is not claim["holds"] for claim in claims)
    assert TEXT.count("| RidgeRank (mini-qwen) |") == 1


def test_the_committed_run_is_whole() -> None:
    for name in CATALOGUE:
        assert {"json", "md"} <= {path.suffix[1:] for path in RESULTS.glob(f"{name}.*")}, name
    assert sum(path.stat().st_size for path in RESULTS.iterdir()) < 6 << 20
    assert not list(RESULTS.glob("*-table*"))
