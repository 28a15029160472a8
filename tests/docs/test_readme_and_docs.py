"""Documentation is tested: links lead somewhere, commands exist, snippets run, figures have their file."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import ridgerank
from benchmarks import tables
from experiments.simulation import World, simulate
from miniature.corpora import find_plan, make_corpus
from miniature.draw import draw_corpus

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
README = (ROOT / "README.md").read_text()
COMMANDS = (ROOT / "docs" / "commands.md").read_text()


def run(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ridgerank", *words]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=True)


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with simulated runs, for the commands of docs/commands.md."""
    folder = tmp_path_factory.mktemp("readme")
    simulate(World(), queries=200, seed=0).write(folder / "demo")
    return folder


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_readme_fits_on_a_page_or_two() -> None:
    assert len(README.splitlines()) <= 120


def test_every_command_is_documented() -> None:
    from ridgerank.cli.main import app

    commands = [command.name for command in app.registered_commands]
    groups = [
        f"{group.name} {command.name or command.callback.__name__}"
        for group in app.registered_groups
        if group.typer_instance
        for command in group.typer_instance.registered_commands
        if command.callback
    ]
    for name in [*commands, *groups]:
        assert f"`ridgerank {name}`" in COMMANDS, f"`ridgerank {name}` is not in docs/commands.md"


def test_the_trials_shown_are_those_that_were_run() -> None:
    page = (ROOT / "docs/trial.md").read_text()
    for path in (ROOT / "results/trials").glob("*.txt"):
        printed = path.read_text().strip()
        assert printed in page or f"> {printed.splitlines()[-1]}\n" in page, path.name


@pytest.mark.slow
def test_the_commands_shown_print_what_is_shown(tried: Path) -> None:
    words = re.search(r"\$ ridgerank (fuse .*) > fused\.trec\n(weight .*)\n", COMMANDS)
    assert words is not None
    fused = run(*words[1].split(), cwd=tried)
    assert fused.stderr.strip() == words[2]
    (tried / "fused.trec").write_text(fused.stdout)
    measures = json.loads(run("evaluate", "fused.trec", "--qrels", "demo/qrels.trec", cwd=tried).stdout)
    shown = re.search(r'\{"nDCG@5": ([\d.]+), …\}', COMMANDS)
    assert shown is not None
    assert round(measures["nDCG@5"], 1) == float(shown[1])


def test_every_suite_stands_in_its_table() -> None:
    results = json.loads((ROOT / "results/compatibility.json").read_text())
    text = (ROOT / "docs/compatibility.md").read_text()
    assert all(suite["passed"] + suite["not_passed"] == suite["tests"] for suite in results["suites"])
    for row in results["suites"]:
        assert f"| {' | '.join(str(value) for value in row.values())} |" in text


def test_every_page_of_the_docs_is_in_the_navigation_of_the_site_once() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text().partition("\nnav:")[2]
    listed = re.findall(r": (\S+\.(?:md|ipynb))$", navigation, flags=re.M)
    pages = {path.name for path in (ROOT / "docs").iterdir() if path.suffix in {".md", ".ipynb"}}
    built = {
        f"{name}.md" for name in ("index", "changelog", "contributing", "options", "python", "reporting")
    }
    assert len(listed) == len(set(listed))
    assert pages <= set(listed)
    assert set(listed) - pages == built


def test_every_table_is_what_the_results_say_and_stands_in_one_page() -> None:
    """If not: `python -m benchmarks.tables`."""
    assert not [page.name for page in tables.outdated_pages()]
    text = "".join(page.read_text(encoding="utf-8") for page in tables.PAGES)
    assert sorted(re.findall(r"<!-- (?:table|figure) (.+?) -->", text)) == sorted(tables.TABLES)


API = (ROOT / "docs/api.md").read_text()


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
