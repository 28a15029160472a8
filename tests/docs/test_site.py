"""The site shows every page of docs/; `make docs` builds it and checks its links."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_page_of_the_docs_is_in_the_navigation_once() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text().partition("\nnav:")[2]
    listed = re.findall(r": (\S+\.(?:md|ipynb))$", navigation, flags=re.M)
    pages = {path.name for path in (ROOT / "docs").iterdir() if path.suffix in {".md", ".ipynb"}}
    assert len(listed) == len(set(listed))
    assert pages <= set(listed)
    assert set(listed) - pages == {
        "index.md",
        "changelog.md",
        "contributing.md",
        "options.md",
        "python.md",
        "reporting.md",
    }
