"""Write every table of README and docs/ that shows a measurement, from the files in results/.

python -m benchmarks.docs_tables            # after new results: rewrite the pages
python -m benchmarks.docs_tables --check    # say which pages differ, change nothing
"""

import argparse
import sys
from pathlib import Path

from benchmarks.abstention_tables import ABSTENTION_TABLES
from benchmarks.choice_tables import CHOICE_TABLES
from benchmarks.markdown_tables import ROOT, TableMakers, insert_tables
from benchmarks.miniature_tables import MINIATURE_TABLES
from benchmarks.model_tables import MODEL_TABLES
from benchmarks.real_documents_tables import REAL_DOCUMENTS_TABLES
from benchmarks.reproduce_tables import REPRODUCE_TABLES
from benchmarks.scale_tables import SCALE_TABLES
from benchmarks.server_tables import SERVER_TABLES
from benchmarks.summary_tables import SUMMARY_TABLES

TABLES: TableMakers = {
    **MINIATURE_TABLES,
    **SUMMARY_TABLES,
    **CHOICE_TABLES,
    **ABSTENTION_TABLES,
    **REPRODUCE_TABLES,
    **REAL_DOCUMENTS_TABLES,
    **MODEL_TABLES,
    **SERVER_TABLES,
    **SCALE_TABLES,
}
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))


def outdated_pages() -> dict[Path, str]:
    """Pages whose tables are not what the results say → the page as it should be."""
    current = {page: page.read_text(encoding="utf-8") for page in PAGES}
    renewed = {page: insert_tables(text, TABLES) for page, text in current.items()}
    return {page: text for page, text in renewed.items() if text != current[page]}


def main() -> None:
    """Rewrite the pages, or check them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="exit with 1 where a page differs")
    check = parser.parse_args().check
    outdated = outdated_pages()
    for page, text in outdated.items():
        print(f"{page.relative_to(ROOT)}: {'differs from results/' if check else 'written'}")
        if not check:
            page.write_text(text, encoding="utf-8")
    sys.exit(bool(outdated) if check else 0)


if __name__ == "__main__":
    main()
