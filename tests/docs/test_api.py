"""Every example of docs/api.md runs, in the order of the page."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import ridgerank
from miniature.corpora import find_plan, make_corpus
from miniature.draw import draw_corpus

ROOT = Path(__file__).parents[2]
API = (ROOT / "docs" / "api.md").read_text()


def test_every_name_of_the_front_door_is_in_the_table() -> None:
    table = API.partition("## Index")[0]
    for name in set(ridgerank.__all__) - {"__version__"}:
        assert f"`{name}`" in table


@pytest.mark.slow
def test_the_examples_run_and_print_what_they_say(tmp_path: Path) -> None:
    for _ in draw_corpus(make_corpus(find_plan("alder")), tmp_path / "drawn"):
        pass
    (tmp_path / "miniature").symlink_to(ROOT / "miniature")
    documents = sorted((tmp_path / "drawn/documents").glob("*.pdf"))[:2]
    (tmp_path / "reports").mkdir()
    for document in documents:
        document.rename(tmp_path / "reports" / document.name)
    script = "\n".join(re.findall(r"```python\n(.*?)```", API, flags=re.S))
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert re.match(r"[1-9]\d* pages added, 0 were there, 0 unreadable\n", done.stdout)
    assert "no page store at no-such-store; make one with `ridgerank index`" in done.stdout
