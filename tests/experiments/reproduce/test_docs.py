"""What docs/reproduce.md says of the miniature is what the committed run says."""

import json
from pathlib import Path

from experiments.reproduce.catalogue import CATALOGUE
from experiments.reproduce.docs_tables import BLOCKS, PAGE, RESULTS, write_blocks

TEXT = PAGE.read_text(encoding="utf-8")


def test_the_tables_are_those_of_the_run() -> None:
    """If not: `python -m experiments.reproduce.docs_tables`."""
    assert write_blocks(TEXT) == TEXT


def test_the_page_shows_every_method_and_every_claim() -> None:
    claims = json.loads((RESULTS / "directions.json").read_text())
    assert sum(f"| {claim['claim']} |" in TEXT for claim in claims) == len(claims) > 30
    assert TEXT.count("| RidgeRank (mini-qwen) |") == 2
    assert "RidgeRank (mini-glm), label-free weight" in TEXT


def test_a_page_is_written_anew_from_other_results(tmp_path: Path) -> None:
    for name in ("table1", "table2", "table4", "directions", "weights", "run"):
        (tmp_path / f"{name}.json").write_text((RESULTS / f"{name}.json").read_text())
    table = json.loads((tmp_path / "table1.json").read_text())
    table["rows"][0]["cells"][2] = 12.34
    (tmp_path / "table1.json").write_text(json.dumps(table))
    page = write_blocks(TEXT, tmp_path)
    assert "| No reranking | 12.3 |" in page
    for name in BLOCKS:
        assert page.count(f"<!-- {name} -->") == 1


def test_the_committed_run_is_whole() -> None:
    for name in CATALOGUE:
        assert {"json", "md", "tex"} <= {path.suffix[1:] for path in RESULTS.glob(f"{name}.*")}, name
    assert (RESULTS / "report.html").stat().st_size > 100_000
    assert sum(path.stat().st_size for path in RESULTS.iterdir()) < 6 << 20
    assert not list(RESULTS.glob("*-table*"))


def test_every_option_is_documented() -> None:
    for option in ("--only", "--work", "--backbone", "--retriever", "--time-every", "--ocr", "--quick"):
        assert f"`{option}" in TEXT
