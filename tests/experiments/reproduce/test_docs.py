"""What docs/reproduce.md says of the miniature is what the committed run says."""

import json

from benchmarks.tables import RESULTS as ALL_RESULTS
from benchmarks.tables import ROOT
from experiments.reproduce.pipeline import CATALOGUE

RESULTS = ALL_RESULTS / "miniature" / "reproduce"
TEXT = (ROOT / "docs" / "reproduce.md").read_text(encoding="utf-8")


def test_the_page_shows_every_method_and_every_claim_that_does_not_hold() -> None:
    claims = json.loads((RESULTS / "directions.json").read_text())
    assert len(claims) > 30
    assert all((f"| {claim['claim']} |" in TEXT) is not claim["holds"] for claim in claims)
    assert TEXT.count("| RidgeRank (mini-qwen) |") == 2


def test_the_committed_run_is_whole() -> None:
    for name in CATALOGUE:
        assert {"json", "md", "tex"} <= {path.suffix[1:] for path in RESULTS.glob(f"{name}.*")}, name
    assert (RESULTS / "report.html").stat().st_size > 100_000
    assert sum(path.stat().st_size for path in RESULTS.iterdir()) < 6 << 20
    assert not list(RESULTS.glob("*-table*"))
